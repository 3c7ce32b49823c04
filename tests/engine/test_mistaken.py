"""Mistakes in a call: an array differs from the valid call in one size, and everything else is the same."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.bridge.contract import Call
from conformance.bridge.tensor import Tensor
from conformance.engine.adapters import Subject, read_adapters, subjects_of
from conformance.engine.cells import Cell, Refused, make_cell
from conformance.spec.case import Case
from conformance.spec.loader import load
from conformance.spec.materialise import alone, materialise

PROJECT = Path(__file__).parents[2]
CASES = {case.id: case for case in load([PROJECT / "cases" / "shapes" / "mistakes.yaml"], PROJECT / "cases")}
B, H, Q, K, D = 3, 2, 7, 7, 8


def subject(adapter: str) -> Subject:
    return subjects_of(read_adapters([PROJECT / "adapters" / f"{adapter}.py"]))[0]


def made(name: str, operator: str, mistake: str, adapter: str) -> Cell | Refused | None:
    case = CASES[f"shapes/mistakes/{name}[operator={operator},mistake={mistake}]"]
    return make_cell(case, materialise(case), subject(adapter))


def shapes(call: Call) -> dict[str, tuple[int, ...]]:
    arrays: dict[str, Any] = {"query": call.query, "key": call.key, "value": call.value, **call.arguments}
    return {name: array.shape for name, array in arrays.items() if isinstance(array, Tensor)}


VALID = {"query": (B, H, Q, D), "key": (B, H, K, D), "value": (B, H, K, D)}
MASKED = dict.fromkeys(VALID, (3, 3, 5, D))


@pytest.mark.parametrize(
    ("name", "mistake", "wrong"),
    [
        ("inputs", "value_positions", {"value": (B, H, K - 1, D)}),
        ("inputs", "key_batch", {"key": (B - 1, H, K, D), "value": (B - 1, H, K, D)}),
        ("inputs", "key_width", {"key": (B, H, K, D + 1)}),
        ("mask", "mask_keys", {"attn_mask": (3, 3, 5, 6)}),
        ("mask", "mask_queries", {"attn_mask": (3, 3, 6, 5)}),
        ("mask", "mask_batch", {"attn_mask": (2, 3, 5, 5)}),
        ("padding", "mask_keys", {"attn_mask": (B, 1, 1, K + 1)}),
        ("padding", "mask_batch", {"attn_mask": (B - 1, 1, 1, K)}),
    ],
)
def test_one_size_is_wrong(name: str, mistake: str, wrong: dict[str, tuple[int, ...]]) -> None:
    cell = made(name, "sdpa", mistake, "numpy_sdpa")
    assert isinstance(cell, Cell)
    assert shapes(cell.call) == (MASKED if name == "mask" else VALID) | wrong
    assert cell.call.facts.sizes == materialise(cell.case).sizes()
    assert "mistakes" in cell.call.facts.requirements


def test_masks_in_arguments_of_their_own_are_wrong_there() -> None:
    folded = made("mask", "mha", "mask_batch", "torch_mha")
    padded = made("padding", "mha", "mask_keys", "torch_mha")
    assert isinstance(folded, Cell)
    assert isinstance(padded, Cell)
    assert shapes(folded.call)["attn_mask"] == (3 * 3 - 1, 5, 5)
    assert shapes(padded.call)["key_padding_mask"] == (B, K + 1)


def test_a_number_of_heads_that_does_not_divide_the_width_is_in_the_facts_alone() -> None:
    case = CASES["shapes/mistakes/num_heads[operator=mha]"]
    cell = make_cell(case, materialise(case), subject("torch_mha"))
    assert isinstance(cell, Cell)
    assert cell.call.facts.sizes == materialise(case).sizes() | {"num_heads": 3}  # the width is 16
    assert shapes(cell.call) == dict.fromkeys(VALID, (B, Q, 16))
    assert case.requirements() == ("mistaken_heads",)


def test_what_is_there_stays() -> None:
    cell, valid = made("mask", "sdpa", "mask_keys", "numpy_sdpa"), CASES["shapes/mistakes/valid_mask[operator=sdpa]"]
    twin = make_cell(valid, materialise(valid), subject("numpy_sdpa"))
    assert isinstance(cell, Cell)
    assert isinstance(twin, Cell)
    assert np.array_equal(cell.call.key.bits, twin.call.key.bits)
    wider, mask = (each.call.arguments["attn_mask"].bits for each in (cell, twin))
    assert np.array_equal(wider[..., :5], mask)
    assert np.array_equal(wider[..., 5], mask[..., -1])


def test_where_no_argument_has_the_axis_the_call_is_declined() -> None:
    found = made("mask", "mha", "mask_batch", "published_tf1_manual")
    assert isinstance(found, Refused)  # no argument spans the heads
    jax = subjects_of(read_adapters([PROJECT / "adapters" / "jax_sdpa.py"]))
    lengths = next(each for each in jax if each.variant == "lengths")
    case = CASES["shapes/mistakes/padding[operator=sdpa,mistake=mask_keys]"]
    found = make_cell(case, materialise(case), lengths)
    assert isinstance(found, Refused)
    assert found.reason == "no argument takes a mask over axis k unchanged: the mistake cannot be made"


def test_two_arguments_that_exclude_each_other_are_both_given() -> None:
    name = "shapes/mistakes/masks[operator=sdpa,masks.0.element=float]"
    cell = make_cell(CASES[name], materialise(CASES[name]), subject("torch_sdpa"))
    valid = CASES[name.replace("masks[", "valid_masks[")]
    twin = make_cell(valid, materialise(valid), subject("torch_sdpa"))
    assert isinstance(cell, Cell)
    assert isinstance(twin, Cell)
    assert set(cell.call.arguments) == {"attn_mask", "is_causal"}
    assert set(twin.call.arguments) == {"attn_mask"}  # the causal mask is folded into it
    assert not np.array_equal(cell.call.arguments["attn_mask"].bits, twin.call.arguments["attn_mask"].bits)
    refused = make_cell(CASES[name], materialise(CASES[name]), subject("jax_sdpa"))
    assert isinstance(refused, Refused)
    assert refused.reason == "no two arguments of this call exclude each other: the mistake cannot be made"


def test_a_flag_is_given_without_the_mask_that_it_requires() -> None:
    name = "shapes/mistakes/flag[operator=mha]"
    cell = make_cell(CASES[name], materialise(CASES[name]), subject("torch_mha"))
    assert isinstance(cell, Cell)
    assert cell.call.arguments == {"is_causal": True}
    refused = make_cell(CASES[name], materialise(CASES[name]), subject("keras_mha"))
    assert isinstance(refused, Refused)
    assert refused.reason == "no argument of this call requires another one: the mistake cannot be made"


def test_a_case_without_a_valid_twin_is_named() -> None:
    cases: list[Case] = list(CASES.values())
    assert alone(cases) == ()
    without = [case for case in cases if case.name != "valid_padding"]
    assert {case.name for case in alone(without)} == {"padding"}


@pytest.mark.parametrize(
    ("fields", "adapter", "reason"),
    [
        ({"softcap": 7.0, "scale": 0.5}, "torch_sdpa", "does not support: softcap"),
        ({"softcap": 7.0, "past": 2}, "jax_sdpa", "does not support: past, softcap"),
        ({"dtype": "bfloat16"}, "numpy_sdpa", "does not support bfloat16, only float64, float32"),
        ({"outputs": ("weights",)}, "torch_sdpa", "returns no weights, only output, gradients"),
    ],
)
def test_what_the_facts_of_an_adapter_rule_out_is_refused_without_a_call(
    fields: dict[str, Any], adapter: str, reason: str
) -> None:
    cases = load([PROJECT / "cases" / "shapes" / "lengths.yaml"], PROJECT / "cases")
    case = replace(next(case for case in cases if case.operator == "sdpa" and case.seq_len_k > 2), **fields)
    refused = make_cell(case, materialise(case), subject(adapter))
    assert isinstance(refused, Refused)
    assert refused.reason == reason
