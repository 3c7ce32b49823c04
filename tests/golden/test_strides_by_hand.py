"""Keys and values that are read where they do not lie, on problems small enough to be worked by hand."""

import numpy as np
import pytest

from conformance.bridge.strides import strided
from conformance.bridge.tensor import Tensor
from conformance.oracle.evaluate import evaluate
from conformance.oracle.variations import candidates
from conformance.spec.problem import Array, Group, Problem

LOG3 = float(np.log(3.0))


def output(problem: Problem, **dialect: str) -> Array:
    return evaluate(problem, dialect, "float64").reply["output"].values


def picking(queries: int, values: Array) -> Problem:
    """Each of (batch, num_heads, seq_len_k, 1) values is the mean of its item and head: all logits are zero."""
    batch, heads, _, _ = values.shape
    query, key = np.zeros((batch, heads, queries, 1)), np.zeros(values.shape)
    return Problem("sdpa", "float64", heads, heads, 1, 1, query, key, values)


def test_items_of_the_value_are_read_at_the_stride_of_the_query() -> None:
    """
    Values 0 to 11 lie as two items of two heads of three positions; an item begins 2 * seq_len_q numbers later.

    With one query the second item is 2 3 4 and 5 6 7 instead of 6 7 8 and 9 10 11; with four it begins at 8: 8 9 10
    and 11 and, twice, what lies behind the last.
    """
    values = np.arange(12.0).reshape(2, 2, 3, 1)
    lie = {"arguments": "value_at_stride_of_query"}
    assert output(picking(1, values)).ravel() == pytest.approx([1, 4, 7, 10])
    assert output(picking(1, values), **lie).ravel() == pytest.approx([1, 4, 3, 6])
    assert output(picking(4, values), **lie)[:, :, 0].ravel() == pytest.approx([1, 4, 9, 11])
    assert output(picking(3, values), **lie)[:, :, 0].ravel() == pytest.approx([1, 4, 7, 10])
    assert output(picking(1, values[:1]), **lie).ravel() == pytest.approx([1, 4])


def test_positions_of_a_layer_hold_all_heads() -> None:
    """Projected rows (0 1) (2 3) (4 5), (6 7) (8 9) (10 11): with one query the second item begins with (2 3)."""
    rows = np.arange(12.0).reshape(2, 3, 2)
    params = dict.fromkeys(("wq", "wk", "wv", "wo"), np.eye(2))
    problem = Problem("mha", "float64", 2, 2, 1, 1, np.zeros((2, 1, 2)), rows, rows, params=params)
    assert output(problem).ravel() == pytest.approx([2, 3, 8, 9])
    assert output(problem, arguments="value_at_stride_of_query").ravel() == pytest.approx([2, 3, 4, 5])


def test_items_of_the_key_are_read_at_the_stride_of_the_query() -> None:
    """The second item has the logits ln 3 and 0; read one position earlier they are 0 and ln 3. Values are 0 and 4."""
    key = np.array([[[[0.0], [0.0]]], [[[LOG3], [0.0]]]])
    value = np.array([[[[0.0], [4.0]]], [[[0.0], [4.0]]]])
    problem = Problem("sdpa", "float64", 1, 1, 1, 1, np.ones((2, 1, 1, 1)), key, value, scale=1.0)
    assert output(problem).ravel() == pytest.approx([2, 1])
    assert output(problem, arguments="key_at_stride_of_query").ravel() == pytest.approx([2, 3])
    # both: the value is 4 and 0, too
    assert output(problem, arguments="key_and_value_at_stride_of_query").ravel() == pytest.approx([2, 1])


def test_a_square_key_is_not_transposed() -> None:
    """Rows (0 ln3) and (0 0), query (1 0): logits 0 and 0; of the columns 0 and ln 3. Values 0 and 4."""
    arrays = ([[1.0, 0.0]], [[0.0, LOG3], [0.0, 0.0]], [[0.0], [4.0]])
    query, key, value = (np.array(each)[None, None] for each in arrays)
    problem = Problem("sdpa", "float64", 1, 1, 2, 1, query, key, value, scale=1.0)
    lie = {"arguments": "key_transposed_when_square"}
    assert output(problem).item() == pytest.approx(2)
    assert output(problem, **lie).item() == pytest.approx(3)
    longer = problem.but(key=np.concatenate([key, key], axis=2), value=np.concatenate([value, value], axis=2))
    assert output(longer, **lie).item() == pytest.approx(2)


@pytest.mark.parametrize(("keys", "expected"), [(1, [4.0, 4.0]), (2, [4.0, 0.0])])
def test_the_value_of_a_single_key_is_copied(keys: int, expected: list[float]) -> None:
    padding = Group("padding", ("key_padding",), "bool", np.array([[True] * keys, [False] * keys])[:, None, None])
    problem = picking(1, np.full((2, 1, keys, 1), 4.0)).but(groups=(padding,))
    assert output(problem).ravel().tolist() == [4.0, 0.0]
    assert output(problem, always_attended="single_key").ravel().tolist() == expected


def test_calls_that_strides_cannot_change_are_left_alone() -> None:
    square = picking(3, np.zeros((2, 1, 3, 1)))
    names = {each.name for each in candidates(square)}
    assert names.isdisjoint({"value_at_stride_of_query", "key_transposed_when_square"})
    assert "value_at_stride_of_query" in {each.name for each in candidates(picking(1, np.zeros((2, 1, 3, 1))))}


@pytest.mark.parametrize(
    ("layout", "read"),
    [
        ("contiguous", [[[0, 1], [2, 3], [4, 5]], [[6, 7], [8, 9], [10, 11]]]),
        ("offset", [[[0, 1], [2, 3], [4, 5]], [[6, 7], [8, 9], [10, 11]]]),
        ("transposed", [[[0, 1], [6, 7], [2, 3]], [[8, 9], [4, 5], [10, 11]]]),
        ("column_major", [[[0, 2], [4, 1], [3, 5]], [[6, 8], [10, 7], [9, 11]]]),
    ],
)
def test_arrays_are_read_in_the_order_of_their_memory(layout: str, read: list[list[list[int]]]) -> None:
    """Two heads of three positions of two numbers, 0 to 11; each query sees the value of its own position alone."""
    value = np.arange(12.0).reshape(1, 2, 3, 2)
    zeros, own = np.zeros((1, 2, 3, 1)), Group("mask", ("attention",), "bool", np.eye(3, dtype=bool)[None, None])
    problem = Problem("sdpa", "float64", 2, 2, 1, 2, zeros, zeros, value, groups=(own,), layout=layout)
    assert output(problem).tolist() == value.tolist()
    assert output(problem, arguments="in_memory_order")[0].tolist() == read
    assert output(problem, arguments="values_in_memory_order")[0].tolist() == read
    assert output(problem, arguments="queries_in_memory_order")[0].tolist() == value[0].tolist()  # which are all zero
    memory = strided(Tensor.of(value), layout).view()
    assert memory.ravel(order="K").tolist() == np.ravel(read).tolist()
    named = "in_memory_order" in {row.name for row in candidates(problem)}
    assert named == (layout in ("transposed", "column_major"))
