"""Causes without a row in the table: the search finds the loop over key tiles that explains every call."""

import numpy as np
import pytest

from conformance.diagnosis.diagnosis import diagnose
from conformance.diagnosis.search import fitted

from .judged_cells import bent, cell, flagged, plain

SIZES = ((2, 5, 7), (2, 7, 5), (1, 23, 29), (1, 67, 131))


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
    assert len(named) <= 2  # loops with other tile lengths attend other keys in these calls


def test_of_loops_that_show_the_same_the_plainest_is_tried() -> None:
    cells = [cell(flagged(2, 5, 7), {"causal_loop": "4x8_last_down_masked"})]
    changes = [dict(each.change) for each in fitted(cells)]
    names = [change["causal_loop"] for change in changes if "causal_loop" in change]
    assert names[0] == "8x8_last_down_masked"  # rounded down to whole tiles of eight keys: none in either loop
    assert len(names) == len(set(names)) == 6


def test_without_a_flag_no_loop_is_looked_for() -> None:
    cells = [cell(plain(*size), {"value_path": "reversed"}) for size in SIZES[:2]]
    assert list(fitted(cells)) == []


def test_what_it_shows_is_another_answer() -> None:
    judged = cell(flagged(2, 5, 7), {"causal_loop": "4x4_own_up_masked"})
    assert judged.actual is not None
    assert np.all(judged.actual["output"].float64()[:, :, :4] == 0.0)


@pytest.mark.parametrize(("dtype", "tried"), [("float32", False), ("float16", True)])
def test_no_loop_is_tried_where_plain_calls_in_this_dtype_fail_too(dtype: str, *, tried: bool) -> None:
    loops = cell(flagged(2, 5, 7), {"causal_loop": "4x8_last_down_masked"})
    assert bool(list(fitted([loops, bent(plain(2, 5, 7, dtype), 0.1)]))) == tried


def test_no_loop_is_tried_on_large_calls_if_none_explains_a_simple_one() -> None:
    loop = {"causal_loop": "4x8_last_down_masked"}
    simple, large = [flagged(*size) for size in ((2, 5, 7), (2, 7, 5), (1, 7, 7))], cell(flagged(1, 67, 131), loop)
    assert list(fitted([*(cell(each, loop) for each in simple), large]))
    assert list(fitted([*(bent(each, 0.1) for each in simple), large])) == []
