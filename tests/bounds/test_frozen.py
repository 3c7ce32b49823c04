"""A sample of the deviations gives the same outputs as before on sixty calls."""

from dataclasses import replace

import numpy as np
import pytest

from conformance.deviations.catalogue import TABLE, evaluate_deviations, find, in_order
from conformance.deviations.deviation import Deviation
from conformance.deviations.logits import scaled_by
from conformance.deviations.mask_arguments import slot_deviations
from conformance.deviations.nonfinite import OF_MASKED_NAN, ROWS
from conformance.spec.problem import Array, Problem

from .frozen import SLOTS, deviations, digest, frozen, problems

# The test checks one deviation in this many; `python -m tests.bounds.frozen` writes all of them again.
EVERY = 29
CLOSE = 1e-9


@pytest.fixture(scope="module")
def asked() -> dict[str, Problem]:
    return problems()


def test_every_deviation_has_its_number() -> None:
    assert set(frozen()) == {deviation.key for deviation in deviations()}


def test_a_sample_makes_of_the_calls_what_it_made(asked: dict[str, Problem]) -> None:
    known = frozen()
    chosen = list(deviations())[::EVERY]
    other = {each.key: (digest(each, asked), known[each.key]) for each in chosen}
    assert {key: pair for key, pair in other.items() if pair[0] != pytest.approx(pair[1], rel=CLOSE)} == {}


def test_a_deviation_that_is_changed_a_little_has_another_number(asked: dict[str, Problem]) -> None:
    missing = find("scale", "none")
    changed = replace(missing, problem=scaled_by(lambda _: 1.000001))
    assert digest(missing, asked) == pytest.approx(frozen()[missing.key], rel=CLOSE)
    assert digest(changed, asked) != pytest.approx(frozen()[missing.key], rel=CLOSE)


LEAKS = [find(each.decision, each.name) for each in ROWS if each.decision in OF_MASKED_NAN]


def test_what_becomes_of_masked_nan_changes_nothing_where_all_numbers_are_finite(asked: dict[str, Problem]) -> None:
    """`check` declares how a function treats masked NaN, and every other deviation must still show under that."""
    finite = [each for each in asked.values() if each.mask_operands and np.isfinite(each.key).all()][:9]
    hidden = [
        (deviation.key, leak.key)
        for deviation in (*TABLE, *(row for slot in SLOTS for row in slot_deviations(slot)))
        if deviation.decision not in OF_MASKED_NAN
        for problem in finite
        if deviation.concerns(problem) and is_finite(alone := output(problem, deviation))
        for leak in LEAKS
        if not np.allclose(output(problem, deviation, leak), alone, rtol=1e-12, atol=0.0)
    ]
    assert hidden == []


def output(problem: Problem, *some: Deviation) -> Array:
    return evaluate_deviations(problem, in_order(some), "float32").reply["output"].values


def is_finite(values: Array) -> bool:
    return bool(np.isfinite(values).all())
