"""A mistake in coarser arithmetic than declared: both are named, though neither explains a reply alone."""

from itertools import chain

import numpy as np
import pytest

from conformance.deviations.catalogue import evaluate
from conformance.deviations.deviation import Dialect
from conformance.diagnosis.coarser_arithmetic import ARITHMETIC
from conformance.diagnosis.diagnosis import Diagnosis, diagnose
from conformance.diagnosis.evidence import Evidence
from conformance.diagnosis.rounded_evidence import rounded, rounding
from conformance.spec.problem import Array, Problem
from conformance.spec.rounding import round_to, to_tensor

from .judged_cells import IGNORED, SIZES, judged, padded, plain

OPERANDS = next(each for each in ARITHMETIC if each.name == "bfloat16_operands")
LOGITS = next(each for each in ARITHMETIC if each.name == "scores_and_softmax_in_float16")


def rounding_operands(asked: Problem, behaviour: Dialect) -> Array:
    """The output under a behaviour, if query, key and value are rounded to bfloat16."""
    operands = {name: round_to(getattr(asked, name), "bfloat16") for name in ("query", "key", "value")}
    return evaluate(asked.but(**operands), behaviour).reply["output"].values


def replied(asked: Problem, output: Array) -> Evidence:
    return judged(asked, {"output": to_tensor(round_to(output, asked.dtype), asked.dtype)})


def calls() -> list[Problem]:
    return [each for size in SIZES for each in (plain(*size), padded(*size))]


def names(found: Diagnosis) -> set[str]:
    of_change = ("=".join(way) for cause in found.separated for way in cause.candidate.change)
    return {*of_change, *(each.candidate.arithmetic.name for each in found.separated if each.candidate.arithmetic)}


@pytest.mark.parametrize(
    ("behaviour", "name"),
    [
        (IGNORED, "use[padding]=ignored"),  # plain calls show the arithmetic alone
        ({"scale": "none"}, "scale=none"),  # it is in every call, and plain calls show both
        ({"scale": "times_0.8"}, "scale=times_0.8"),  # the number is fitted before the arithmetic is known
    ],
)
def test_a_mistake_is_named_beside_the_arithmetic(behaviour: Dialect, name: str) -> None:
    cells = [
        replied(each, rounding_operands(each, behaviour if each.mask_operands or "scale" in behaviour else {}))
        for each in calls()
    ]
    assert all(cell.actual is not None for cell in cells)
    found = diagnose(cells)
    assert names(found) == {name, "bfloat16_operands"}
    assert found.unexplained == ()
    (coarse,) = (cause for cause in found.separated if cause.candidate.arithmetic is not None)
    assert {cell.case for cell in coarse.cells} == {cell.case for cell in cells}


def test_the_arithmetic_has_only_the_calls_that_the_mistake_alone_does_not_explain() -> None:
    """In float64 nothing is rounded."""
    exact = [plain(*size, "float64").but(scale=None) for size in SIZES]
    finer = [replied(each, evaluate(each, {"scale": "none"}).reply["output"].values) for each in exact]
    coarse = [replied(each, rounding_operands(each, {"scale": "none"})) for each in (plain(*size) for size in SIZES)]
    found = diagnose([*finer, *coarse])
    assert names(found) == {"scale=none", "bfloat16_operands"}
    cells = {cause.candidate.arithmetic: {cell.case for cell in cause.cells} for cause in found.separated}
    assert cells == {None: {cell.case for cell in chain(finer, coarse)}, OPERANDS: {cell.case for cell in coarse}}


def test_an_error_without_a_name_stays_without_a_cause() -> None:
    outputs = ((each, rounding_operands(each, {})) for each in calls())
    cells = [replied(each, output + 0.1 * np.sin(7 * output)) for each, output in outputs]
    found = diagnose(cells)
    assert (found.causes, found.separated, len(found.unexplained)) == ((), (), len(cells))


def test_a_call_whose_logits_overflow_shows_nothing_but_that() -> None:
    """The masked keys are large. A function that attends to them in float16 returns NaN."""
    asked = padded(2, 5, 7)
    large = np.where(asked.mask_operands[0].values[0, 0, 0, :, None] != 0, asked.key, 1e6)
    overflowing = replied(asked.but(key=large), np.full((2, 3, 5, asked.value_dim), np.nan))
    finite = replied(asked, rounding_operands(asked, IGNORED))
    changed = dict(rounded([overflowing, finite], {"float32": LOGITS}))
    assert changed[overflowing] is None
    assert changed[finite] is not None


def test_arithmetic_that_earlier_causes_name_is_not_measured_again() -> None:
    cells = [replied(each, rounding_operands(each, {})) for each in calls()]
    found = diagnose(cells)
    assert [cause.candidate.arithmetic for cause in found.causes] == [OPERANDS]
    masked = [cell for cell in cells if cell.facts.masks]
    assert rounding(masked, masked, ()) == {}  # no call without a mask shows it
    assert rounding(masked, masked, found.causes) == {"float32": OPERANDS}


def test_arithmetic_counts_in_every_dtype_in_which_it_is_a_cause() -> None:
    """In float16 nothing is unexplained, but the calls are searched again under the bounds of the arithmetic too."""
    half = [plain(*size, "float16") for size in SIZES]
    cells = [replied(each, rounding_operands(each, {})) for each in (*calls(), *half)]
    found = diagnose(cells)
    assert {cell.facts.dtype for cause in found.causes for cell in cause.cells} == {"float32", "float16"}
    single = [cell for cell in cells if cell.facts.dtype == "float32"]
    assert rounding(cells, single, found.causes).keys() == {"float32", "float16"}
    assert rounding(cells, [], found.causes) == {}
