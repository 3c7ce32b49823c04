"""Defaults, and the expansion of a matrix into a product of cases with stable ids."""

from collections.abc import Callable
from itertools import product
from math import inf, prod
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.spec import yaml_syntax
from conformance.spec.case import ArrayMask, Case
from conformance.spec.matrix import expand, label, labels, merge, set_value, without_metadata
from conformance.spec.mistakes import Fault

Load = Callable[[str], tuple[Case, ...]]

HEAD = """\
format: 1
suite: t
summary: One.
defaults: {operator: sdpa, batch: 3, num_heads: 2, head_dim: 8, seq_len_q: 5, seq_len_k: 7}
cases:
"""

VALUES = st.one_of(st.integers(0, 9), st.booleans(), st.sampled_from(["float32", "start"]), st.none())
AXES = st.dictionaries(
    st.sampled_from(["dtype", "inputs.seed", "masks.0.seed", "batch", "inputs"]),
    st.lists(VALUES, min_size=1, max_size=3),
    max_size=3,
).filter(lambda axes: not ("inputs" in axes and "inputs.seed" in axes))


def test_the_documented_example(cases: Load) -> None:
    text = "  - name: trailing\n    matrix: {dtype: [float32, bfloat16], outputs: [[output], [output, weights]]}\n"
    assert [case.id for case in cases(HEAD + text)] == [
        "t/trailing[dtype=float32,outputs=output]",
        "t/trailing[dtype=float32,outputs=output+weights]",
        "t/trailing[dtype=bfloat16,outputs=output]",
        "t/trailing[dtype=bfloat16,outputs=output+weights]",
    ]


def test_a_path_leads_into_a_mask(cases: Load) -> None:
    text = """\
  - name: one
    matrix: {masks.1.true_means: [attend, ignore]}
    masks:
      - {kind: causal}
      - {kind: attention, pattern: holes, verbatim: true}
"""
    expanded = cases(HEAD + text)
    assert [case.id for case in expanded] == [
        "t/one[masks.1.true_means=attend]",
        "t/one[masks.1.true_means=ignore]",
    ]
    masks = [case.masks[1] for case in expanded]
    assert [mask.true_means for mask in masks if isinstance(mask, ArrayMask)] == ["attend", "ignore"]


def test_a_default_mapping_is_merged_and_a_list_replaced(cases: Load) -> None:
    text = HEAD.replace("seq_len_k: 7", "seq_len_k: 7, masks: [{kind: causal}], inputs: {seed: 3, gain: 2}")
    (case,) = cases(text + "  - {name: one, masks: [], inputs: {gain: 4}}\n")
    assert case.masks == ()
    assert (case.inputs.seed, case.inputs.gain) == (3, 4)


def test_defaults_may_have_a_matrix(cases: Load) -> None:
    text = HEAD.replace("defaults: {", "defaults: {matrix: {dtype: [float32, float64]}, ")
    ids = [case.id for case in cases(text + "  - {name: one, matrix: {batch: [1, 2]}}\n  - {name: two}\n")]
    assert ids[:2] == ["t/one[dtype=float32,batch=1]", "t/one[dtype=float32,batch=2]"]
    assert ids[4:] == ["t/two[dtype=float32]", "t/two[dtype=float64]"]


def test_metadata_is_for_nobody_and_shown(cases: Load) -> None:
    (case,) = cases(HEAD + "  - {name: one, x-source: a paper, inputs: {x-note: [1, {a: 2}]}}\n")
    assert "x-source: a paper" in case.yaml


def test_the_yaml_of_a_case_is_its_expanded_entry(cases: Load) -> None:
    mask = "{kind: additive, axes: [k], values: [.inf, -.inf, 0, 1e-5, 0, 0, 0]}"
    (case,) = cases(HEAD + f"  - {{matrix: {{masks.0.values.0: [-0.5]}}, masks: [{mask}], name: one}}\n")
    read = yaml_syntax.read(case.yaml, "case.yaml")
    assert not read.mistakes
    assert next(iter(read.data)) == "name"
    assert read.data["masks"] == [{"kind": "additive", "axes": ["k"], "values": [-0.5, -inf, 0, 1e-5, 0, 0, 0]}]
    assert read.data["head_dim"] == 8
    assert "matrix" not in read.data


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ("float32", "float32"),
        (5, "5"),
        (0.5, "0.5"),
        (True, "true"),
        (None, "null"),
        (["output", "weights"], "output+weights"),
        ([], "none"),
        ({"kind": "causal", "offset": 3}, "causal"),
        ([{"kind": "causal"}, {"kind": "key_padding"}], "causal+key_padding"),
        ([[1, 0] * 50], "long"),
    ],
)
def test_a_value_in_an_id(value: Any, word: str) -> None:
    assert label(value) == word


def test_values_that_read_alike_are_numbered() -> None:
    values = [[{"kind": "causal", "offset": offset}] for offset in ("start", "end")]
    assert labels([*values, []]) == ["causal~1", "causal~2", "none"]


@settings(deadline=None)
@given(AXES)
def test_an_expansion_is_the_product_in_order(axes: dict[str, list[Any]]) -> None:
    faults: list[Fault] = []
    entry = {"name": "x", "masks": [{"kind": "attention"}], "matrix": axes}
    expansions = expand(entry, faults)
    assert not faults
    assert len(expansions) == prod(map(len, axes.values()))
    for expansion, values in zip(expansions, product(*axes.values()), strict=True):
        assert "matrix" not in expansion.entry
        for key, value in zip(axes, values, strict=True):
            assert reach(expansion.entry, key) == value
    assert len({expansion.suffix for expansion in expansions}) == len(expansions)
    assert entry == {"name": "x", "masks": [{"kind": "attention"}], "matrix": axes}


@settings(deadline=None)
@given(AXES, st.integers(0, 3))
def test_ids_do_not_move_when_a_value_is_added_behind(axes: dict[str, list[Any]], which: int) -> None:
    entry = {"name": "x", "masks": [{"kind": "attention"}]}
    before = [one.suffix for one in expand(entry | {"matrix": axes}, [])]
    if not axes:
        return
    key = list(axes)[which % len(axes)]
    grown = axes | {key: [*axes[key], "a_new_one"]}
    assert set(before) <= {one.suffix for one in expand(entry | {"matrix": grown}, [])}


def reach(entry: Any, key: str) -> Any:
    for part in key.split("."):
        entry = entry[int(part)] if isinstance(entry, list) else entry[part]
    return entry


NESTED = st.recursive(
    st.integers(), lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3), max_leaves=8
)
MAPPINGS = st.dictionaries(st.sampled_from("abc"), NESTED, max_size=3)


@settings(deadline=None)
@given(MAPPINGS, MAPPINGS, MAPPINGS)
def test_merging_keeps_what_is_written_last(under: Any, over: Any, top: Any) -> None:
    assert merge(under, {}) == under
    assert merge({}, over) == over
    assert merge(over, over) == over
    merged = merge(merge(under, over), top)
    assert set(merged) == {*under, *over, *top}
    for key, value in top.items():
        assert isinstance(value, dict) or merged[key] == value


def test_putting_shares_what_is_not_on_the_way() -> None:
    data: dict[str, Any] = {"masks": [{"a": 1}, {"a": 2}], "inputs": {"seed": 3}}
    changed = set_value(data, ("masks", 1, "a"), 9)
    assert changed == {"masks": [{"a": 1}, {"a": 9}], "inputs": {"seed": 3}}
    assert data["masks"][1] == {"a": 2}
    assert changed["inputs"] is data["inputs"]


def test_metadata_is_dropped_at_any_depth() -> None:
    data = {"a": [{"x-b": 1, "c": [1, 2]}], "x-d": {"e": 1}}
    assert without_metadata(data) == {"a": [{"c": [1, 2]}]}
