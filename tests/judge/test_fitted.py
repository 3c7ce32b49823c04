"""Causes that have no row in the table: of loops over tiles of keys the one is found that explains every call."""

from dataclasses import replace

import numpy as np
import pytest

from conformance.judge.conditions import Condition
from conformance.judge.fitted import fitted
from conformance.judge.joint import diagnose
from conformance.oracle.other_masks import causal
from conformance.spec.problem import Group, Problem
from conformance.spec.rounding import to_tensor

from .test_joint import cell, plain, told

SIZES = ((2, 5, 7), (2, 7, 5), (1, 23, 29), (1, 67, 131))


def flagged(batch: int, queries: int, keys: int) -> Problem:
    return plain(batch, queries, keys).but(
        groups=(Group("is_causal", ("causal",), "flag", causal(queries, keys, 0), offset=0),)
    )


def of_heads(heads: int) -> Problem:
    """Two items of as many heads, of the numbers of three or fewer."""
    whole = plain(2, 5, 7)
    query, key, value = (np.resize(each, (2, heads, *each.shape[2:])) for each in (whole.query, whole.key, whole.value))
    return whole.but(num_heads=heads, num_kv_heads=heads, query=query, key=key, value=value)


@pytest.mark.parametrize("loop", ["4x8_whole_down_masked", "16x4_last_up_last_masked"])
def test_the_loop_is_named(loop: str) -> None:
    cells = [cell(flagged(*size), {"causal_loop": loop}) for size in SIZES]
    cells += [cell(plain(*size), {}) for size in SIZES]
    found = diagnose(cells)
    failing = sum(each.actual is not None for each in cells)
    assert failing >= 3
    assert found.unexplained == ()
    (cause,) = found.causes
    assert len(cause.cells) == failing
    named = [dict(each.candidate.change)["causal_loop"] for each in (cause, *cause.ties)]
    assert loop in named
    assert len(named) <= 2  # tiles of other lengths show something else in such calls


def test_one_loop_stands_for_two_causes_that_need_conditions() -> None:
    """With one query it hides the diagonal, with 17 it drops the last key: either has a row in the table."""
    loop = {"causal_loop": "8x8_short_up_masked"}
    sizes = ((2, 1, 7), (3, 1, 7), (2, 17, 17), (1, 17, 17), (2, 5, 7), (2, 7, 5), (1, 23, 29))
    cells = [cell(flagged(*size), loop) for size in sizes]
    assert sum(each.actual is not None for each in cells) == 4
    (cause,) = diagnose(cells).causes
    assert loop in [dict(each.candidate.change) for each in (cause, *cause.ties)]
    assert cause.guards == (Condition(),)
    assert len(cause.cells) == 4


def test_of_loops_that_show_the_same_the_plainest_is_tried() -> None:
    cells = [cell(flagged(2, 5, 7), {"causal_loop": "4x8_last_down_masked"})]
    changes = [dict(each.change) for each in fitted(cells)]
    names = [change["causal_loop"] for change in changes if "causal_loop" in change]
    assert names[0] == "8x8_last_down_masked"  # whole tiles of eight: none, as there
    assert len(names) == len(set(names)) == 6


def test_without_a_flag_no_loop_is_looked_for() -> None:
    cells = [cell(plain(*size), {"value_path": "reversed"}) for size in SIZES[:2]]
    changes = [each.change for each in fitted(cells)]
    assert changes[0] == (("exchange", "key_keys_reversed"),)  # the same without a mask
    assert {decision for ((decision, _),) in changes} == {"exchange"}


@pytest.mark.parametrize(
    "name", ["key_heads_next_if_any", "key_value_items_before", "query_queries_again_4", "result_queries_neighbour"]
)
def test_the_exchange_is_named(name: str) -> None:
    """Of three heads, five or seven queries, and two or three items."""
    cells = [cell(plain(*size), {"exchange": name}) for size in ((3, 5, 7), (3, 6, 7), (2, 7, 7), (3, 4, 11))]
    found = diagnose(cells)
    assert found.unexplained == ()
    (cause,) = found.causes
    assert {"exchange": name} in [dict(each.candidate.change) for each in (cause, *cause.ties)]


@pytest.mark.parametrize(
    "name", ["zero_of_heads_behind_the_last_whole_2", "nan_of_the_last_query", "mean_of_queries_behind_the_first_4"]
)
def test_the_rows_are_named(name: str) -> None:
    sizes = ((2, 3, 5), (3, 7, 5), (2, 6, 11), (3, 4, 13))
    cells = [cell(plain(*size), {"row_answer": name}) for size in sizes]
    cells += [cell(of_heads(heads), {"row_answer": name}) for heads in (2, 4)]
    found = diagnose(cells)
    assert found.unexplained == ()
    assert [dict(cause.candidate.change) for cause in found.causes] == [{"row_answer": name}]
    assert found.causes[0].guards == (Condition(),)


def test_what_other_rows_are_wrong_than_may_be_is_not_tried() -> None:
    """Zeros for the first query as well as for the last one: each of the two alone is no cause."""
    both = cell(plain(2, 5, 7), {"row_answer": "zero_of_the_first_query"})
    assert both.actual is not None
    changed = {"output": both.actual["output"].float64()}
    changed["output"][:, :, -1] = 0.0
    worse = replace(both, actual={"output": to_tensor(changed["output"], "float64")}, found=())
    assert not [each for each in fitted([worse]) if each.change[0][0] == "row_answer"]


@pytest.mark.parametrize(
    ("name", "masked"), [("hidden_keys_behind_the_querys_own_block_of_4", False), ("shown_the_last_4_keys", True)]
)
def test_the_places_are_named(name: str, *, masked: bool) -> None:
    asked = [flagged(*size) if masked else plain(*size) for size in SIZES]
    found = diagnose([cell(problem, {"place_mask": name}) for problem in asked])
    assert found.unexplained == ()
    (cause,) = found.causes
    assert {"place_mask": name} in [dict(each.candidate.change) for each in (cause, *cause.ties)]


@pytest.mark.parametrize("name", ["first_queries_up_2", "behind_half", "first_16"])
def test_the_range_is_named(name: str) -> None:
    cells = [cell(plain(*size), {"key_range": name}) for size in SIZES]
    found = diagnose(cells)
    assert sum(each.actual is not None for each in cells) >= 2
    assert [dict(cause.candidate.change) for cause in found.causes] == [{"key_range": name}]
    assert found.unexplained == ()


def test_a_wider_cause_takes_the_calls_of_one_that_was_found_before() -> None:
    """Of a loop for every 16 queries some calls look like one for every 8, which the table has a row for."""
    cells = [cell(flagged(*size), {"causal_loop": "16x4_last_up_last_masked"}) for size in SIZES]
    row = (("causal_query_tile", "last_alone_8x4"),)
    assert any(each.actual is not None and each.explained_by(row) for each in cells)
    assert [change for change, *_ in told(diagnose(cells))] == [{"causal_loop": "16x4_last_up_last_masked"}]


def test_what_it_shows_is_another_answer() -> None:
    judged = cell(flagged(2, 5, 7), {"causal_loop": "4x4_own_up_masked"})
    assert judged.actual is not None
    assert np.all(judged.actual["output"].float64()[:, :, :4] == 0.0)
