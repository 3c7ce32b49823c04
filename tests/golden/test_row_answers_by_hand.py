"""Rows that get an answer that is none of theirs: which rows these are, and weights of two keys worked out."""

from typing import Any

import numpy as np
import pytest

from conformance.oracle.named_rows import named_rows
from conformance.oracle.row_answers import ANSWERS, row_answers
from conformance.oracle.variations import find
from conformance.spec.problem import Problem

from .test_exchanges_by_hand import two_keys
from .test_tiles_by_hand import mask, output

RIGHT = [[3 / 4, 1 / 4], [1 / 3, 2 / 3], [1 / 2, 1 / 2]]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("zero_of_the_first_query", [[0, 0], RIGHT[1], RIGHT[2]]),
        ("zero_of_every_other_of_the_queries", [RIGHT[0], [0, 0], RIGHT[2]]),
        ("nan_of_queries_behind_the_first", [RIGHT[0], [np.nan] * 2, [np.nan] * 2]),
        ("mean_of_the_last_head", [[1 / 2, 1 / 2]] * 3),
        ("zero_of_heads_behind_the_last_whole_2", [[0, 0]] * 3),
        ("mean_of_the_last_query", RIGHT),
    ],
)
def test_rows_get_it(name: str, expected: list[list[float]]) -> None:
    assert np.allclose(output(two_keys(), f"row_answer={name}"), expected, rtol=1e-15, atol=0.0, equal_nan=True)


def masked() -> Problem:
    """The first query attends the second key alone, the second one both, the third one none."""
    return two_keys().but(groups=(mask([[0, 1], [1, 1], [0, 0]]),))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("unmasked_from_which_the_first_key_is_hidden", [RIGHT[0], RIGHT[1], RIGHT[2]]),
        ("unmasked_that_attend_one_key", [RIGHT[0], RIGHT[1], [0, 0]]),
        ("mean_that_attend_one_key", [[1 / 2, 1 / 2], RIGHT[1], [0, 0]]),
        ("mean_of_attended_from_which_some_key_is_hidden", [[0, 1], RIGHT[1], [0, 0]]),
        ("mean_of_attended_that_attend_every_key", [[0, 1], [1 / 2, 1 / 2], [0, 0]]),
        ("nan_that_attend_nothing", [[0, 1], RIGHT[1], [np.nan] * 2]),
    ],
)
def test_rows_are_told_by_what_they_attend(name: str, expected: list[list[float]]) -> None:
    assert np.allclose(output(masked(), f"row_answer={name}"), expected, rtol=1e-15, atol=0.0, equal_nan=True)


def test_rows_are_told_by_what_others_attend() -> None:
    """Two items of two heads of two queries: the first query of the first head of the second item attends nothing."""
    attended = np.ones((2, 2, 2, 3), dtype=bool)
    attended[1, 0, 0] = False
    rows = {where: which(attended).astype(int).tolist() for where, which in named_rows()}
    nothing = [[0, 0], [0, 0]]
    assert rows["that attend nothing"] == [nothing, [[1, 0], [0, 0]]]
    assert rows["of queries that attend nothing in some head"] == [nothing, [[1, 0], [1, 0]]]
    assert rows["of heads in which some query attends nothing"] == [nothing, [[1, 1], [0, 0]]]
    assert rows["of items in which some query attends nothing"] == [nothing, [[1, 1], [1, 1]]]


def test_a_row_that_is_left_out_is_zero_whatever_the_values_are() -> None:
    problem = two_keys().but(value=np.array([[[[1.0, np.nan], [0.0, 1.0]]]]))
    left_out: Any = output(problem, "row_answer=zero_of_queries_behind_the_first")
    assert np.array_equal(left_out, np.array([[3 / 4, np.nan], [0, 0], [0, 0]]), equal_nan=True)


def test_it_says_what_it_does() -> None:
    found = find("row_answer", "zero_of_heads_behind_the_last_whole_2")
    assert found.sentence == "returns zeros in rows of heads behind the last whole 2"
    assert found.concerns(two_keys())
    assert not find("row_answer", "zero_from_which_some_key_is_hidden").concerns(two_keys())


def test_every_answer_has_a_name_of_its_own() -> None:
    every = list(row_answers())
    assert len({each.name for each in every}) == len(every) > 50 * len(ANSWERS)
    with pytest.raises(KeyError, match="no variation row_answer=zero: one has a name such as zero_of_the_last_query"):
        find("row_answer", "zero")
