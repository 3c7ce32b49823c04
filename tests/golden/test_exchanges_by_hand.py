"""What belongs to another item, head, query or key: places by hand, and weights of two keys worked out."""

import numpy as np
import pytest

from conformance.oracle.evaluate import evaluate
from conformance.oracle.exchanges import Exchange, exchanges
from conformance.oracle.orders import ORDERS
from conformance.oracle.variations import find
from conformance.spec.problem import Problem

from .test_tiles_by_hand import LOG2, LOG3, even, flag, mask, output, seen

LOGITS = [[LOG3, 0.0], [0.0, LOG2], [0.0, 0.0]]
"""Weights of 3/4 and 1/4, of 1/3 and 2/3, of halves."""


def two_keys() -> Problem:
    """Three queries that pick their row of the logits; the values are such that the output is the weights."""
    query, key = np.eye(3)[None, None], np.asarray(LOGITS).T[None, None]
    return Problem("sdpa", "float64", 1, 1, 3, 2, query, key, np.eye(2)[None, None], scale=1.0)


@pytest.mark.parametrize(
    ("order", "count", "expected"),
    [
        ("next", 5, [1, 2, 3, 4, 0]),
        ("next_if_any", 5, [1, 2, 3, 4, 4]),
        ("before", 5, [4, 0, 1, 2, 3]),
        ("before_if_any", 5, [0, 0, 1, 2, 3]),
        ("first", 3, [0, 0, 0]),
        ("last", 3, [2, 2, 2]),
        ("reversed", 3, [2, 1, 0]),
        ("first_half_again", 6, [0, 1, 2, 0, 1, 2]),
        ("first_half_again", 5, [0, 1, 2, 3, 4]),
        ("other_half", 6, [3, 4, 5, 0, 1, 2]),
        ("neighbour", 6, [1, 0, 3, 2, 5, 4]),
        ("first_of_two", 5, [0, 0, 2, 2, 4]),
        ("every_other", 5, [0, 2, 4, 1, 3]),
        ("in_turn", 5, [0, 3, 1, 4, 2]),
        ("again_4", 7, [0, 1, 2, 3, 0, 1, 2]),
    ],
)
def test_places_are_those_of_others(order: str, count: int, expected: list[int]) -> None:
    shares = ORDERS[order].shares(count)
    assert shares.argmax(axis=1).tolist() == expected
    assert shares.sum(axis=1).tolist() == [1.0] * count


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("summed_so_far", [[1, 0, 0], [1, 1, 0], [1, 1, 1]]),
        ("with_the_one_before", [[1, 0, 0], [1, 1, 0], [0, 1, 1]]),
        ("mean", [[1 / 3] * 3] * 3),
        ("sum", [[1, 1, 1]] * 3),
    ],
)
def test_sums_are_of_what_others_have(order: str, expected: list[list[float]]) -> None:
    assert ORDERS[order].shares(3).tolist() == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("result_queries_summed_so_far", [[3 / 4, 1 / 4], [13 / 12, 11 / 12], [19 / 12, 17 / 12]]),
        ("value_keys_mean", [[1 / 2, 1 / 2]] * 3),
        ("query_queries_next", [[1 / 3, 2 / 3], [1 / 2, 1 / 2], [3 / 4, 1 / 4]]),
        ("result_queries_before_if_any", [[3 / 4, 1 / 4], [3 / 4, 1 / 4], [1 / 3, 2 / 3]]),
        ("key_keys_reversed", [[1 / 4, 3 / 4], [2 / 3, 1 / 3], [1 / 2, 1 / 2]]),
        ("value_keys_reversed", [[1 / 4, 3 / 4], [2 / 3, 1 / 3], [1 / 2, 1 / 2]]),
        ("key_value_keys_reversed", [[3 / 4, 1 / 4], [1 / 3, 2 / 3], [1 / 2, 1 / 2]]),
    ],
)
def test_it_is_another_s(name: str, expected: list[list[float]]) -> None:
    assert np.allclose(output(two_keys(), f"exchange={name}"), expected, rtol=1e-15, atol=0.0)


def test_masks_of_queries_and_of_keys_are_exchanged_and_flags_are_not() -> None:
    rows = mask([[1, 0, 0], [1, 1, 0], [0, 0, 1]])
    assert seen(even(3, 3, rows), "exchange=mask_queries_next") == ["xx-", "--x", "x--"]
    assert seen(even(3, 3, rows), "exchange=mask_keys_reversed") == ["--x", "-xx", "x--"]
    assert seen(even(3, 3, flag(3, 3)), "exchange=mask_keys_reversed") == ["x--", "xx-", "xxx"]


def test_items_and_heads_have_axes_of_their_own() -> None:
    """The value of item b and head h is 10 b + h, for three items and two heads."""
    value = (10.0 * np.arange(3)[:, None] + np.arange(2)).reshape(3, 2, 1, 1)
    shared = np.ones((3, 2, 1, 1))
    problem = Problem("sdpa", "float64", 2, 2, 1, 1, shared, shared, value)

    def answer(name: str) -> list[list[float]]:
        values = evaluate(problem, {"exchange": name}).reply["output"].values
        return [[float(head) for head in item] for item in values[..., 0, 0]]

    assert answer("value_items_next") == [[10, 11], [20, 21], [0, 1]]
    assert answer("value_heads_neighbour") == [[1, 0], [11, 10], [21, 20]]
    assert answer("result_heads_first") == [[0, 0], [10, 10], [20, 20]]


def test_returned_weights_are_exchanged_and_the_output_stays() -> None:
    problem = two_keys().but(outputs=("output", "weights"))
    reply = evaluate(problem, {"exchange": "weights_keys_reversed"}).reply
    assert np.allclose(reply["weights"].values[0, 0], [[1 / 4, 3 / 4], [2 / 3, 1 / 3], [1 / 2, 1 / 2]], rtol=1e-15)
    assert np.allclose(reply["output"].values[0, 0], [[3 / 4, 1 / 4], [1 / 3, 2 / 3], [1 / 2, 1 / 2]], rtol=1e-15)
    assert Exchange("weights", "keys", "reversed").shown(two_keys()) == b""


def test_masks_are_not_added_up() -> None:
    assert not any(each.tensor == "mask" and each.how.sums for each in exchanges())


def test_other_rows_than_those_of_another_are_as_they_were() -> None:
    problem = Problem(
        "sdpa", "float64", 3, 3, 7, 1, np.ones((2, 3, 5, 1)), np.ones((2, 3, 7, 1)), np.ones((2, 3, 7, 1))
    )
    assert Exchange("result", "queries", "again_4").rows(problem).tolist() == [[[False] * 4 + [True]]]
    assert Exchange("key", "heads", "next_if_any").rows(problem).tolist() == [[[True], [True], [False]]]
    assert Exchange("value", "items", "first").rows(problem).tolist() == [[[False]], [[True]]]
    assert Exchange("key", "keys", "next").rows(problem).tolist() == [[[True]]]
    shared = Problem("sdpa", "float64", 6, 3, 7, 1, np.ones((2, 6, 5, 1)), np.ones((2, 3, 7, 1)), np.ones((2, 3, 7, 1)))
    assert Exchange("key", "heads", "next_if_any").rows(shared).tolist() == [[[True]]]  # which share them is not said


def test_where_nothing_is_exchanged_nothing_shows() -> None:
    assert Exchange("key", "heads", "next").shown(two_keys()) == b""
    assert Exchange("mask", "queries", "next").shown(two_keys()) == b""
    assert Exchange("query", "queries", "next").shown(two_keys()) != b""


def test_it_says_what_it_does() -> None:
    assert find("exchange", "mask_heads_first_half_again").sentence == (
        "takes the mask of every head from the head at its place in the first half, if there is an even number of them"
    )
    assert find("exchange", "key_value_items_before").sentence == (
        "takes key and value of every item from the item before, the first from the last"
    )


def test_every_exchange_has_a_name_of_its_own_by_which_it_is_found() -> None:
    every = list(exchanges())
    assert len({each.name for each in every}) == len(every)
    assert len({find("exchange", each.name).sentence for each in every}) == len(every)


def test_what_is_no_exchange_is_refused() -> None:
    with pytest.raises(KeyError, match="no variation exchange=key_heads: one has a name such as key_heads_next"):
        find("exchange", "key_heads")
