"""Problems compared with masks and arrays worked out by hand, and properties of every case."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.spec import streams
from conformance.spec.case import Case
from conformance.spec.materialise import HIDDEN_SCALE, materialise
from conformance.spec.problem import Problem
from conformance.spec.rounding import round_to, to_tensor

Make = Callable[..., Case]
Array = np.ndarray[Any, Any]

INF = np.inf
DTYPES = ("float64", "float32", "float16", "bfloat16")


def drawn(*rows: str) -> Array:
    """Return the mask of a drawing: `#` is attended, `.` is not."""
    return np.array([[mark == "#" for mark in row] for row in rows])


def values(make: Make, mask: dict[str, Any], **fields: Any) -> Array:
    """Return the values of the only mask of a case."""
    (group,) = materialise(make(masks=[mask], **fields)).mask_operands
    return group.values


SMALL = {"batch": 2, "num_heads": 1, "seq_len_q": 3, "seq_len_k": 4}

TOP_LEFT = drawn("#...", "##..", "###.")
SQUARE_LAST = drawn("##..", "###.", "####")


def test_true_means_attend_in_a_padding_mask(make: Make) -> None:
    found = values(make, {"kind": "key_padding", "lengths": [4, 1]}, **SMALL)
    assert found.shape == (2, 1, 1, 4)
    np.testing.assert_array_equal(found[:, 0, 0], drawn("####", "#..."))


def test_leading_padding(make: Make) -> None:
    mask = {"kind": "key_padding", "pattern": "leading", "lengths": [4, 1]}
    np.testing.assert_array_equal(values(make, mask, **SMALL)[:, 0, 0], drawn("####", "...#"))


def test_padding_moves_what_is_anchored_to_it_item_by_item(make: Make) -> None:
    masks = [
        {"kind": "key_padding", "lengths": [5, 3, 1]},
        {"kind": "causal", "offset": "lengths"},
        {"kind": "window", "left": 1, "right": 0, "offset": "lengths"},
    ]
    problem = materialise(make(masks=masks, batch=3, seq_len_q=2, seq_len_k=5, operator="sdpa"))
    assert [group.moved for group in problem.mask_operands] == [None, (None, 0), (1, 0)]
    assert [group.offset for group in problem.mask_operands] == [None, None, None]
    shown = problem.mask_operands[1].values[:, 0].astype(int).tolist()
    assert shown == [
        [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]],
        [[1, 1, 0, 0, 0], [1, 1, 1, 0, 0]],
        [[0, 0, 0, 0, 0], [1, 0, 0, 0, 0]],
    ]
    assert problem.mask_operands[2].values[1, 0].astype(int).tolist() == [[1, 1, 0, 0, 0], [0, 1, 1, 0, 0]]


def test_a_past_shifts_what_is_anchored_to_it(make: Make) -> None:
    masks = [{"kind": "causal", "offset": "past"}, {"kind": "window", "left": 1, "right": 0, "offset": "past"}]
    sizes = {"seq_len_q": 2, "seq_len_k": 5, "past": 3, "operator": "sdpa"}
    problem = materialise(make(masks=masks, **{**SMALL, **sizes}))
    assert (problem.past, problem.sizes()["past"], problem.requirements) == (3, 3, ("past",))
    assert [(group.offset, group.window) for group in problem.mask_operands] == [(3, None), (None, (-2, 3))]
    assert problem.allowed()[0, 0].astype(int).tolist() == [[0, 0, 1, 1, 0], [0, 0, 0, 1, 1]]


@pytest.mark.parametrize(("offset", "number"), [("start", 0), ("end", 1), (1, 1), (-1, -1), (5, 5)])
def test_a_causal_mask_and_its_offset(make: Make, offset: str | int, number: int) -> None:
    (group,) = materialise(make(masks=[{"kind": "causal", "offset": offset}], **SMALL)).mask_operands
    assert group.offset == number
    expected = {0: TOP_LEFT, 1: SQUARE_LAST, -1: drawn("....", "#...", "##.."), 5: drawn(*["####"] * 3)}
    np.testing.assert_array_equal(group.values[0, 0], expected[number])


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (0, 0, ["#...", ".#..", "..#."]),
        (1, 0, ["#...", "##..", ".##."]),
        (0, 1, ["##..", ".##.", "..##"]),
        (None, 0, ["#...", "##..", "###."]),
        (1, None, ["####", "####", ".###"]),
    ],
)
def test_a_window_is_inclusive(make: Make, left: int | None, right: int | None, expected: list[str]) -> None:
    (group,) = materialise(make(masks=[{"kind": "window", "left": left, "right": right}], **SMALL)).mask_operands
    assert group.window == (left, right)
    np.testing.assert_array_equal(group.values[0, 0], drawn(*expected))


@pytest.mark.parametrize(
    ("axes", "shape"),
    [
        (["q", "k"], (1, 1, 3, 4)),
        (["b", "q", "k"], (2, 1, 3, 4)),
        (["h", "q", "k"], (1, 5, 3, 4)),
        (["b", "h", "q", "k"], (2, 5, 3, 4)),
        (["b", "k"], (2, 1, 1, 4)),
        (["h", "k"], (1, 5, 1, 4)),
        (["k"], (1, 1, 1, 4)),
    ],
)
@pytest.mark.parametrize("kind", ["attention", "additive"])
def test_axes_that_a_mask_does_not_span_have_size_one(
    make: Make, kind: str, axes: list[str], shape: tuple[int, ...]
) -> None:
    mask = {"kind": kind, "axes": axes, "pattern": "holes"}
    assert values(make, mask, **(SMALL | {"num_heads": 5})).shape == shape


def test_a_mask_without_keys_hides_whole_queries(make: Make) -> None:
    mask = {"kind": "attention", "axes": ["b", "q"], "values": [[1, 0, 1], [0, 1, 1]]}
    problem = materialise(make(masks=[mask], **SMALL))
    assert problem.mask_operands[0].values.shape == (2, 1, 3, 1)
    assert problem.attended()[:, 0].tolist() == [[[row] * 4 for row in item] for item in ([1, 0, 1], [0, 1, 1])]


@pytest.mark.parametrize("element", ["bool", "int", "float"])
@pytest.mark.parametrize(
    "mask",
    [
        {"kind": "key_padding", "lengths": [4, 2]},
        {"kind": "attention", "pattern": "checkerboard"},
        {"kind": "causal"},
        {"kind": "window", "left": 1},
    ],
)
def test_elements_say_the_same(make: Make, mask: dict[str, Any], element: str) -> None:
    plain = materialise(make(masks=[mask], **SMALL))
    problem = materialise(make(masks=[mask | {"element": element}], **SMALL))
    (group,) = problem.mask_operands
    assert (group.element, group.slot, group.kinds) == (element, "", (mask["kind"],))
    assert group.values.dtype == (np.float64 if element == "float" else bool)
    np.testing.assert_array_equal(problem.attended(), plain.attended())


def test_literal_values_are_read_as_they_say(make: Make) -> None:
    rows = [[1, 0, 0, 1], [True, True, False, False], [0, 0, 0, 0]]
    mask = {"kind": "attention", "values": rows}
    expected = drawn("#..#", "##..", "....")
    np.testing.assert_array_equal(values(make, mask, **SMALL)[0, 0], expected)
    ignored = values(make, mask | {"true_means": "ignore"}, **SMALL)
    np.testing.assert_array_equal(ignored[0, 0], ~expected)


def test_an_additive_mask_is_rounded_to_the_dtype(make: Make) -> None:
    mask = {"kind": "additive", "axes": ["k"], "values": [0.1, -INF, 0, -1e9]}
    rounded = values(make, mask, dtype="bfloat16", **SMALL)[0, 0, 0]
    np.testing.assert_array_equal(rounded, [0.10009765625, -INF, 0, -998244352])
    # -1e9 is outside the range of float16 and becomes -inf
    np.testing.assert_array_equal(values(make, mask, dtype="float16", **SMALL)[0, 0, 0, 1:], [-INF, 0, -INF])


def test_an_additive_pattern_is_zero_or_minus_infinity(make: Make) -> None:
    found = values(make, {"kind": "additive", "pattern": "diagonal"}, **SMALL)
    np.testing.assert_array_equal(found[0, 0], np.where(drawn("#...", ".#..", "..#."), 0, -INF))


VERBATIM = [
    ("bool", "attend", bool, [True, True, False, False]),
    ("bool", "ignore", bool, [False, False, True, True]),
    ("int", "attend", np.int64, [1, 1, 0, 0]),
    ("int", "ignore", np.int64, [0, 0, 1, 1]),
    ("float", "attend", np.float64, [0, 0, -INF, -INF]),
    ("float", "ignore", np.float64, [-INF, -INF, 0, 0]),
]


@pytest.mark.parametrize(("element", "means", "dtype", "row"), VERBATIM)
def test_a_verbatim_pattern_is_written_in_either_polarity(
    make: Make, element: str, means: str, dtype: type, row: list[Any]
) -> None:
    mask = {"kind": "key_padding", "lengths": [4, 2], "verbatim": True, "element": element, "true_means": means}
    (group,) = materialise(make(masks=[mask], **SMALL)).mask_operands
    assert group.verbatim
    assert group.values.dtype == dtype
    np.testing.assert_array_equal(group.values[1, 0, 0], row)


def test_verbatim_numbers_stay_as_written(make: Make) -> None:
    integers = {"kind": "key_padding", "verbatim": True, "element": "int", "values": [[2, -1, 0, 7]] * 2}
    np.testing.assert_array_equal(values(make, integers, **SMALL)[0, 0, 0], [2, -1, 0, 7])
    floats = {"kind": "attention", "axes": ["k"], "verbatim": True, "element": "float", "values": [1, 0.5, 0, -2]}
    np.testing.assert_array_equal(values(make, floats, **SMALL)[0, 0, 0], [1, 0.5, 0, -2])


def test_masks_are_combined(make: Make) -> None:
    masks = [{"kind": "key_padding", "lengths": [4, 2]}, {"kind": "causal"}]
    problem = materialise(make(masks=masks, **SMALL))
    assert [group.kinds for group in problem.mask_operands] == [("key_padding",), ("causal",)]
    np.testing.assert_array_equal(problem.attended()[0, 0], TOP_LEFT)
    np.testing.assert_array_equal(problem.attended()[1, 0], drawn("#...", "##..", "##.."))


WIDTHS = {"query_dim": 5, "kdim": 7, "vdim": 11, "output_dim": 13, "value_dim": 6, "num_heads": 4, "num_kv_heads": 2}


def test_shapes_of_multi_head_attention(make: Make) -> None:
    problem = materialise(make(operator="mha", **WIDTHS))
    assert (problem.query.shape, problem.key.shape, problem.value.shape) == ((2, 5, 5), (2, 7, 7), (2, 7, 11))
    assert {name: array.shape for name, array in problem.params.items()} == {
        "wq": (5, 16),
        "bq": (16,),
        "wk": (7, 8),
        "bk": (8,),
        "wv": (11, 12),
        "bv": (12,),
        "wo": (24, 13),
        "bo": (13,),
    }


def test_shapes_of_sdpa(make: Make) -> None:
    problem = materialise(make(num_heads=6, num_kv_heads=2, value_dim=9))
    assert problem.query.shape == (2, 6, 5, 4)
    assert problem.key.shape == (2, 2, 7, 4)
    assert problem.value.shape == (2, 2, 7, 9)
    assert not problem.params


def test_some_projections_without_biases(make: Make) -> None:
    """The remaining parameters are the same as with all biases."""
    some = materialise(make(operator="mha", biases=["q", "v", "o"])).params
    assert sorted(some) == ["bo", "bq", "bv", "wk", "wo", "wq", "wv"]
    every = materialise(make(operator="mha")).params
    assert all(np.array_equal(array, every[name]) for name, array in some.items())


def test_projections_without_biases(make: Make) -> None:
    assert sorted(materialise(make(operator="mha", biases=False)).params) == ["wk", "wo", "wq", "wv"]


def test_aliased_inputs_are_one_object(make: Make) -> None:
    masks = [{"kind": "causal"}]
    for dtype in ("float32", "bfloat16"):
        square = {"seq_len_q": 9, "seq_len_k": 9, "dtype": dtype, "masks": masks}
        problem = materialise(make(inputs={"alias": "qkv"}, **square))
        assert problem.query is problem.key is problem.value
        shared = materialise(make(inputs={"alias": "kv"}, **square))
        assert shared.key is shared.value
        assert shared.query is not shared.key


def test_literal_inputs_are_handed_over(make: Make) -> None:
    rows = [[[[0.1, 2.0]]]]
    sizes = {"batch": 1, "num_heads": 1, "seq_len_q": 1, "seq_len_k": 1, "head_dim": 2, "dtype": "float16"}
    problem = materialise(make(inputs={"query": rows, "gain": 2}, **sizes))
    np.testing.assert_array_equal(problem.query, [[[[0.199951171875, 4.0]]]])
    key = materialise(make(inputs={"key": rows, "alias": "kv"}, **sizes)).value
    np.testing.assert_array_equal(key, [[[[0.0999755859375, 2.0]]]])


def test_gain_is_on_the_query_alone(make: Make) -> None:
    plain, loud = (materialise(make(inputs={"gain": gain})) for gain in (1, 8))
    np.testing.assert_array_equal(loud.query, 8 * plain.query)
    np.testing.assert_array_equal(loud.key, plain.key)


def test_equal_and_alternating_inputs(make: Make) -> None:
    equal = materialise(make(inputs={"distribution": "equal"}))
    assert (equal.key == equal.key[:, :, :1]).all()
    assert (np.ptp(equal.query, axis=2) > 0).all()
    alternating = materialise(make(inputs={"distribution": "alternating"}))
    np.testing.assert_array_equal(alternating.key[:, :, 0], alternating.key[:, :, 1])
    assert np.abs(alternating.value[:, :, 0] + alternating.value[:, :, 1]).max() < 1 / 4


def hidden_rows(problem: Problem, array: str, dtype: str) -> Array:
    """Return the positions that have an element far outside the bell distribution."""
    return np.asarray((np.abs(getattr(problem, array)) > HIDDEN_SCALE[dtype] / 10).any(axis=-1))


@pytest.mark.parametrize("dtype", DTYPES)
def test_masked_keys_and_values_are_large(make: Make, dtype: str) -> None:
    case = make(operator="mha", dtype=dtype, masks=[{"kind": "key_padding", "lengths": [7, 4]}])
    problem = materialise(case)
    for name in ("key", "value"):
        np.testing.assert_array_equal(hidden_rows(problem, name, dtype), ~drawn("#######", "####..."))
    assert np.abs(problem.query).max() <= 4
    assert np.abs(problem.key[0]).max() <= 4


def test_a_key_that_one_query_sees_is_ordinary(make: Make) -> None:
    problem = materialise(make(masks=[{"kind": "causal", "offset": 1}], operator="mha"))
    np.testing.assert_array_equal(hidden_rows(problem, "key", "float32"), ~drawn(*["######."] * 2))


def test_key_heads_are_large_where_no_head_that_shares_them_looks(make: Make) -> None:
    heads = [[[1, 1], [1, 1]], [[1, 0], [1, 0]], [[1, 0], [1, 0]], [[1, 0], [1, 0]]]
    mask = {"kind": "attention", "axes": ["h", "q", "k"], "values": heads}
    sizes = {"batch": 1, "num_heads": 4, "num_kv_heads": 2, "seq_len_q": 2, "seq_len_k": 2}
    problem = materialise(make(masks=[mask], **sizes))
    np.testing.assert_array_equal(hidden_rows(problem, "key", "float32")[0], ~drawn("##", "#."))
    everything = materialise(make(operator="mha", masks=[mask], **sizes))
    assert not hidden_rows(everything, "key", "float32").any()


PADDED = {"kind": "key_padding", "lengths": [7, 4]}
DEAD = {"kind": "key_padding", "lengths": [7, 0]}
LOOSE = {"seq_len_q": 7, "operator": "sdpa"}


@pytest.mark.parametrize(
    ("fields", "large"),
    [
        ({"masks": [PADDED]}, True),
        ({"masks": [PADDED], "inputs": {"clean": False}}, True),
        ({"masks": [PADDED], "inputs": {"clean": True}}, False),
        ({"masks": [DEAD]}, False),
        ({"masks": [DEAD], "inputs": {"clean": False}}, True),
        ({"masks": [PADDED | {"verbatim": True}]}, False),
        ({"masks": [PADDED | {"verbatim": True}], "inputs": {"clean": False}}, False),
        ({"masks": [PADDED | {"element": "float"}]}, True),
        ({"masks": [PADDED], "inputs": {"alias": "qkv"}}, True),
        ({"masks": [PADDED], "inputs": {"alias": "qkv"}, "dtype": "bfloat16"}, False),
        ({"masks": [PADDED], "inputs": {"alias": "kv"}, "dtype": "bfloat16"}, True),
        ({"masks": []}, False),
    ],
)
def test_when_masked_keys_are_large(make: Make, fields: dict[str, Any], *, large: bool) -> None:
    case = make(**(LOOSE | fields))
    assert hidden_rows(materialise(case), "key", case.dtype).any() == large


def test_arrays_that_are_spelled_out_stay_as_they_are(make: Make) -> None:
    rows = [[[[1.0], [2.0]]]]
    sizes = {"batch": 1, "num_heads": 1, "seq_len_q": 1, "seq_len_k": 2, "head_dim": 1}
    case = make(inputs={"key": rows}, masks=[{"kind": "key_padding", "lengths": [1]}], **sizes)
    problem = materialise(case)
    np.testing.assert_array_equal(problem.key, rows)
    assert hidden_rows(problem, "value", "float32").any()


@pytest.mark.parametrize("operator", ["sdpa", "mha"])
@pytest.mark.parametrize("poison", ["nan_keys", "nan_values", "inf_keys", "inf_values"])
def test_poison_stands_where_nobody_attends_and_nowhere_else(make: Make, operator: str, poison: str) -> None:
    fields = {"operator": operator, "masks": [PADDED]}
    plain = materialise(make(**fields))
    problem = materialise(make(**fields, inputs={"poison": poison}))
    name, other = ("key", "value") if poison.endswith("keys") else ("value", "key")
    number = float(poison.partition("_")[0])
    poisoned, clean = getattr(problem, name), getattr(plain, name)
    hidden = np.zeros(clean.shape, dtype=bool)
    hidden[1, ..., 4:, :] = True
    np.testing.assert_array_equal(poisoned[hidden], np.full(hidden.sum(), number))
    np.testing.assert_array_equal(poisoned[~hidden], clean[~hidden])
    np.testing.assert_array_equal(getattr(problem, other), getattr(plain, other))


@pytest.mark.parametrize("operator", ["sdpa", "mha"])
@pytest.mark.parametrize("poison", ["nan_attended_key", "nan_attended_value", "inf_attended_value"])
@pytest.mark.parametrize(("mask", "row"), [(None, 1), (PADDED, 1), ({"kind": "causal"}, 0)])
def test_one_number_of_what_every_query_of_the_first_item_attends_is_poisoned(
    make: Make, operator: str, poison: str, mask: dict[str, Any] | None, row: int
) -> None:
    fields = {"operator": operator, "masks": [] if mask is None else [mask]}
    plain = materialise(make(**fields))
    problem = materialise(make(**fields, inputs={"poison": poison}))
    name, other = ("key", "value") if poison.endswith("key") else ("value", "key")
    expected = getattr(plain, name).copy()
    expected[(0, row, 0) if operator == "mha" else (0, 0, row, 0)] = float(poison.partition("_")[0])
    np.testing.assert_array_equal(getattr(problem, name), expected)
    np.testing.assert_array_equal(getattr(problem, other), getattr(plain, other))
    assert problem.attended()[0, 0, :, row].all()


@pytest.mark.parametrize("operator", ["sdpa", "mha"])
@pytest.mark.parametrize(("mask", "row"), [(None, 1), ({"kind": "causal"}, 4)])
def test_one_number_of_the_query_that_attends_most_is_poisoned(
    make: Make, operator: str, mask: dict[str, Any] | None, row: int
) -> None:
    problem = materialise(make(operator=operator, masks=[mask] if mask else [], inputs={"poison": "nan_query"}))
    assert np.argwhere(np.isnan(problem.query)).tolist() == [[0, row, 0] if operator == "mha" else [0, 0, row, 0]]
    assert np.isfinite(problem.key).all()


@pytest.mark.parametrize("operator", ["sdpa", "mha"])
def test_the_key_that_most_queries_attend_is_zero(make: Make, operator: str) -> None:
    causal = {"kind": "causal"}
    plain = materialise(make(operator=operator, masks=[causal]))
    problem = materialise(make(operator=operator, masks=[causal], inputs={"poison": "zero_attended_key"}))
    expected = plain.key.copy()
    expected[(0, 0) if operator == "mha" else (0, 0, 0)] = 0.0
    np.testing.assert_array_equal(problem.key, expected)
    np.testing.assert_array_equal(problem.value, plain.value)


def test_of_heads_that_share_a_key_all_are_asked_which_row_most_queries_attend(make: Make) -> None:
    hidden = [[[1, 1, 0], [1, 1, 1]], [[0, 1, 1], [1, 1, 1]], [[0, 0, 0], [0, 0, 0]], [[0, 0, 0], [1, 1, 1]]]
    sizes = {"batch": 1, "num_heads": 4, "num_kv_heads": 2, "seq_len_q": 2, "seq_len_k": 3}
    mask = {"kind": "attention", "axes": ["h", "q", "k"], "values": hidden}
    problem = materialise(make(operator="sdpa", masks=[mask], inputs={"poison": "nan_attended_value"}, **sizes))
    assert np.argwhere(np.isnan(problem.value)).tolist() == [[0, 0, 1, 0]]


MASKS = st.sampled_from(
    [
        {"kind": "causal"},
        {"kind": "window", "left": 2, "right": 0},
        {"kind": "attention", "pattern": "holes", "element": "float"},
        {"kind": "attention", "axes": ["b", "h", "q", "k"], "pattern": "random"},
        {"kind": "additive", "distribution": "bell", "axes": ["h", "q", "k"]},
        {"kind": "key_padding", "pattern": "one_fully_masked_batch"},
    ]
)
INPUTS = st.fixed_dictionaries(
    {
        "distribution": st.sampled_from(streams.DISTRIBUTIONS),
        "seed": st.integers(0, 9),
        "clean": st.sampled_from([None, True, False]),
        "alias": st.sampled_from(["none", "kv"]),
    }
)
CASES = st.fixed_dictionaries(
    {
        "operator": st.sampled_from(["sdpa", "mha"]),
        "dtype": st.sampled_from(DTYPES),
        "batch": st.integers(1, 3),
        "seq_len_q": st.integers(1, 5),
        "seq_len_k": st.integers(1, 5),
        "masks": st.lists(MASKS, max_size=2),
        "inputs": INPUTS,
    }
)


@settings(deadline=None)
@given(fields=CASES)
def test_a_problem_is_a_function_of_its_case(make: Make, fields: dict[str, Any]) -> None:
    case = make(**fields)
    problem, again = materialise(case), materialise(case)
    assert problem.sizes()["seq_len_k"] == fields["seq_len_k"]
    arrays = [problem.query, problem.key, problem.value, *problem.params.values()]
    arrays_again = [again.query, again.key, again.value, *again.params.values()]
    for array, other in zip(arrays, arrays_again, strict=True):
        assert array.tobytes() == other.tobytes()
        assert np.isfinite(array).all()
        to_tensor(array, case.dtype)
    for group in problem.mask_operands:
        np.broadcast_shapes(group.values.shape, problem.logits_shape)
        assert group.values.ndim == 4


@settings(deadline=None)
@given(fields=CASES)
def test_large_rows_are_exactly_those_that_nobody_attends(make: Make, fields: dict[str, Any]) -> None:
    case = make(**(fields | {"operator": "mha"}))
    clean = materialise(make(**(fields | {"operator": "mha", "inputs": fields["inputs"] | {"clean": True}})))
    problem = materialise(case)
    changed = (problem.key != clean.key).any(axis=-1)
    seen = problem.attended().any(axis=(1, 2))
    assert not (changed & seen).any()
    np.testing.assert_array_equal(problem.query, clean.query)


def test_numbers_are_rounded_once(make: Make) -> None:
    exact = materialise(make(dtype="float64"))
    for dtype in DTYPES:
        np.testing.assert_array_equal(materialise(make(dtype=dtype)).query, round_to(exact.query, dtype))


def test_arrays_of_a_file(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "arrays.npz"
    np.savez(path, query=np.full((2, 3, 5, 4), 0.1), value=np.ones((2, 3, 7, 4), dtype=np.int8))
    case = make()
    inputs = case.inputs.__class__(file=path)
    problem = materialise(replace(case, inputs=inputs))
    np.testing.assert_array_equal(problem.query, np.full((2, 3, 5, 4), np.float32(0.1)))
    np.testing.assert_array_equal(problem.value, np.ones((2, 3, 7, 4)))
    np.testing.assert_array_equal(problem.key, materialise(case).key)


@pytest.mark.parametrize("alias", ["none", "kv", "qkv"])
def test_an_expanded_batch_is_its_first_item(make: Make, alias: str) -> None:
    masks = [{"kind": "key_padding", "lengths": [3, 7]}]
    fields = {"seq_len_q": 7, "batch": 2, "masks": masks}
    plain = materialise(make(**fields, inputs={"alias": alias, "clean": True}))
    found = materialise(make(**fields, inputs={"alias": alias, "layout": "expanded"}))
    for name in ("query", "key", "value"):
        array = getattr(found, name)
        np.testing.assert_array_equal(array, np.repeat(getattr(plain, name)[:1], 2, axis=0))
    assert (found.key is found.query) == (alias == "qkv")
    assert (found.value is found.key) == (alias != "none")
    assert (found.layout, found.requirements) == ("expanded", ("layout",))
