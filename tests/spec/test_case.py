"""Cases: their default sizes, what they require of an adapter, and what is shown of them."""

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from conformance.spec.case import ArrayMask, Case, CausalMask, Inputs, WindowMask

Make = Callable[..., Case]
Load = Callable[[str], tuple[Case, ...]]


def test_absent_sizes_are_resolved(make: Make) -> None:
    case = make(operator="mha")
    assert (case.num_kv_heads, case.value_dim) == (3, 4)
    assert (case.query_dim, case.kdim, case.vdim, case.output_dim) == (12, 12, 12, 12)
    wide = make(operator="mha", query_dim=5, vdim=7)
    assert (wide.query_dim, wide.kdim, wide.vdim, wide.output_dim) == (5, 5, 7, 5)


@pytest.mark.parametrize(
    ("fields", "requirements"),
    [
        ({}, ()),
        ({"scale": 0.5}, ("scale",)),
        ({"softcap": 2}, ("softcap",)),
        ({"inputs": {"layout": "offset"}}, ("layout",)),
        ({"operator": "mha", "dropout_p": 0.25}, ("dropout",)),
        ({"num_kv_heads": 1}, ("grouped_heads",)),
        ({"value_dim": 3}, ("value_dim",)),
        ({"operator": "mha"}, ()),
        ({"operator": "mha", "kdim": 3}, ("kdim",)),
        ({"operator": "mha", "vdim": 3}, ("kdim",)),
        ({"operator": "mha", "query_dim": 5}, ("query_dim",)),
        ({"operator": "mha", "output_dim": 5}, ("output_dim",)),
        ({"operator": "mha", "biases": False}, ("no_bias",)),
        ({"operator": "mha", "biases": ["q", "v", "o"]}, ("some_biases",)),
        ({"operator": "mha", "biases": ["o", "v", "k", "q"]}, ()),
        (
            {"operator": "mha", "num_heads": 1, "output_projection": False, "biases": ["q", "k", "v"]},
            ("no_output_projection",),
        ),
        ({"operator": "mha", "num_kv_heads": 1, "value_dim": 3}, ("grouped_heads", "value_dim")),
    ],
)
def test_requirements(make: Make, fields: dict[str, Any], requirements: tuple[str, ...]) -> None:
    assert make(**fields).requirements() == requirements


def test_masks_and_inputs_are_values(make: Make) -> None:
    masks = [
        {"kind": "attention", "lengths": [1, 2]},
        {"kind": "additive", "distribution": "bell", "seed": 4},
        {"kind": "causal", "offset": "end", "element": "float"},
        {"kind": "window", "right": 2},
    ]
    case = make(masks=masks, inputs={"alias": "kv", "gain": 2})
    assert case.masks == (
        ArrayMask("attention", ("b", "q", "k"), lengths=(1, 2)),
        ArrayMask("additive", ("q", "k"), element="float", distribution="bell", seed=4),
        CausalMask("end", "float"),
        WindowMask(None, 2),
    )
    assert case.inputs == Inputs(alias="kv", gain=2.0)
    assert hash(case) == hash(make(masks=masks, inputs={"alias": "kv", "gain": 2}))


def test_what_is_shown_of_a_case(cases: Load) -> None:
    text = """\
format: 1
suite: t
summary: The suite's.
defaults: {operator: sdpa, batch: 1, num_heads: 1, head_dim: 2, seq_len_q: 2, seq_len_k: 3}
cases:
  - name: one
    tags: [smoke]
    matrix: {dtype: [float64]}
    masks: [{kind: attention, values: [[1, 0, 1], [1, 1, 1]]}]
  - {name: two, summary: Its own.}
"""
    one, two = cases(text)
    assert (one.summary, two.summary) == ("The suite's.", "Its own.")
    assert (one.source, two.source) == ("cases/t.yaml:6", "cases/t.yaml:10")
    assert (one.suite, one.name, one.tags) == ("t", "one", ("smoke",))
    shown = yaml.safe_load(one.yaml)
    assert one.yaml.startswith("name: one\n")
    assert "matrix" not in shown
    assert (shown["dtype"], shown["batch"]) == ("float64", 1)
    assert shown["masks"] == [{"kind": "attention", "values": [[1, 0, 1], [1, 1, 1]]}]
