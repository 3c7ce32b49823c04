"""A cause that explains one or two of many failing calls is chance, unless it explains all that would show it."""

from dataclasses import replace

import numpy as np
import pytest

from conformance.deviations.catalogue import evaluate
from conformance.diagnosis.candidates import Candidate, Cause
from conformance.diagnosis.conditions import Condition
from conformance.diagnosis.diagnosis import causes_that_stand, diagnose
from conformance.diagnosis.evidence import Evidence
from conformance.spec.rounding import round_to

from .judged_cells import IGNORED, REVERSED, SIZES, cell, padded, plain, reply


def unheard(batch: int, queries: int, keys: int) -> Evidence:
    """A cell with an error that has no name: a sine of the output is added to it."""
    made = cell(plain(batch, queries, keys), REVERSED)
    assert made.actual is not None
    output = made.actual["output"]
    return replace(made, actual={"output": replace(output, bits=output.bits + np.sin(7 * output.bits))}, found=())


def test_a_cause_of_one_cell_among_many_that_nothing_explains_is_not_told() -> None:
    """With a condition it would fit: its one batch element is the only one of that size."""
    by_chance = cell(plain(1, 5, 61), REVERSED)
    found = diagnose([by_chance, *(unheard(*size) for size in SIZES)])
    assert found.causes == ()
    assert len(found.unexplained) == len(SIZES) + 1
    assert [each.simplicity for each in found.unexplained] == sorted(each.simplicity for each in found.unexplained)


@pytest.mark.parametrize(("others", "told"), [(2, 1), (3, 0)])
def test_a_cause_explains_three_fifths_of_what_it_would_show_in(others: int, told: int) -> None:
    by_chance = [cell(plain(1, queries, 61), REVERSED) for queries in (5, 7, 11)]
    found = diagnose([*by_chance, *(unheard(*size) for size in SIZES[:others])])
    assert len(found.causes) == told


def test_calls_that_could_not_show_it_do_not_speak_against_a_cause() -> None:
    """An ignored mask shows only in the one call that has a mask."""
    ignored = cell(padded(2, 5, 7), IGNORED)
    found = diagnose([ignored, *(unheard(*size) for size in SIZES)])
    assert [dict(cause.candidate.change) for cause in found.causes] == [IGNORED]
    assert len(found.unexplained) == len(SIZES)


@pytest.mark.parametrize(("others", "told"), [(20, 1), (21, 0)])
def test_a_cause_of_a_twentieth_of_all_that_fails_is_chance_wherever_it_would_show(others: int, told: int) -> None:
    ignored = Cause(Candidate((("use[padding]", "ignored"),)), (Condition(),), (cell(padded(2, 5, 7), IGNORED),))
    kept, unexplained = causes_that_stand([ignored], [unheard(*SIZES[0])] * others)
    assert len(kept) == told
    assert len(unexplained) == others + 1 - told


def test_unsteady_replies_make_chance_of_a_cause_and_are_not_told_again() -> None:
    by_chance = cell(plain(1, 5, 61), REVERSED)
    conforming = [cell(plain(*size), {}) for size in SIZES]
    assert len(diagnose([by_chance]).causes) == 1
    found = diagnose([by_chance], non_reproducible=conforming)
    assert found.causes == ()
    assert found.unexplained == (by_chance,)


def test_coarse_arithmetic_of_two_calls_is_chance_where_more_fail_in_another_dtype() -> None:
    """The bound of coarse arithmetic contains any error this small; in float32 the arithmetic would show as well."""
    half = [plain(*size, "float16") for size in SIZES[:1]]
    coarse = [reply(each, round_to(evaluate(each).reply["output"].values, "bfloat16")) for each in half]
    assert len(diagnose(coarse).causes) == 1
    assert diagnose([*coarse, *(unheard(*size) for size in SIZES)]).causes == ()


@pytest.mark.parametrize(("others", "told"), [(2, 1), (3, 0)])
def test_a_cause_with_a_condition_explains_three_fifths_of_all_that_is_left(others: int, told: int) -> None:
    """None of the remaining calls has a mask, so an ignored mask would not show there."""
    ignored = Candidate((("use[padding]", "ignored"),))
    cells = tuple(cell(padded(2, queries, 7), IGNORED) for queries in (5, 11, 13))
    left = [unheard(*SIZES[0])] * others
    kept, unexplained = causes_that_stand([Cause(ignored, (Condition(fully_masked_row=False),), cells)], left)
    assert len(kept) == told
    assert len(unexplained) == others + 3 * (1 - told)
    assert len(causes_that_stand([Cause(ignored, (Condition(),), cells)], left)[0]) == 1
