"""Any entry is either a case that can be materialised, or it has faults, each with a place in the entry."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from conformance.spec.document import fields
from conformance.spec.entry import read_entry
from conformance.spec.materialise import materialise, problem_digest

PLAIN: dict[str, Any] = {
    "name": "plain",
    "operator": "mha",
    "batch": 2,
    "num_heads": 2,
    "seq_len_q": 3,
    "seq_len_k": 4,
    "head_dim": 2,
}
MASKS = [
    {"kind": "key_padding", "lengths": [4, 1], "element": "int"},
    {"kind": "attention", "pattern": "holes", "axes": ["b", "q", "k"]},
    {"kind": "additive", "axes": ["k"], "values": [0, -1.5, 2, 3]},
    {"kind": "causal", "offset": "end"},
    {"kind": "window", "left": 1},
]

JUNK = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-3, 9),
        st.sampled_from([10**9, 10**12, 10**60, 2**31, -(2**31) - 1, 1e300, 0.1, 3.0]),
        st.floats(),
        st.sampled_from(
            ["mha", "sdpa", "float16", "q", "k", "kv", "qkv", "bell", "holes", "leading", "end", "../x.npz"]
        ),
        st.text("abq.-~ é", max_size=3),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["kind", "seed", "values", "x"]), inner, max_size=2),
    ),
    max_leaves=6,
)
MASK_FIELDS = ["kind", "axes", "values", "pattern", "lengths", "lengths_q", "seed", "element", "true_means", "verbatim"]
MASK = st.tuples(
    st.sampled_from(MASKS),
    st.dictionaries(st.sampled_from([*MASK_FIELDS, "offset", "left", "right", "distribution"]), JUNK, max_size=2),
).map(lambda pair: pair[0] | pair[1])
INPUTS = st.dictionaries(st.sampled_from([*fields(("inputs",)), "other"]), JUNK, max_size=2)
ENTRY = st.tuples(
    st.dictionaries(st.sampled_from([*fields(()), "other"]), JUNK, max_size=3),
    st.lists(MASK, max_size=2),
    INPUTS,
).map(lambda parts: PLAIN | {"masks": parts[1], "inputs": parts[2]} | parts[0])

TENTH = {"values": [[0.1, 0.1, 0.1, 0.1]] * 3}


@settings(deadline=None)
@given(ENTRY)
@example(PLAIN | {"masks": [{"kind": "causal", "offset": 10**60}]})
@example(PLAIN | {"masks": [{"kind": "attention", "verbatim": True, "element": "float", **TENTH}]})
@example(PLAIN | {"batch": 2**24, "inputs": {"query": [1]}})
def test_an_entry_is_a_case_or_has_faults(entry: dict[str, Any]) -> None:
    case, faults = read_entry(entry, Path("cases/t.yaml"), Path("cases"))
    assert (case is None) <= bool(faults)
    for fault in faults:
        assert fault.path == () or fault.path[0] in (*fields(()), *entry)
        assert fault.message
    if case is not None and not faults:
        assert problem_digest(materialise(case)).startswith("sha256:")


@pytest.mark.parametrize("mask", MASKS, ids=lambda mask: str(mask["kind"]))
def test_every_kind_of_mask_is_a_case(mask: dict[str, Any]) -> None:
    case, faults = read_entry(PLAIN | {"masks": [mask]}, Path("cases/t.yaml"), Path("cases"))
    assert case is not None
    assert not faults
    assert materialise(case).mask_operands[0].kinds == (mask["kind"],)
