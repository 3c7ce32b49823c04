"""What deviations make of sixty calls is what it was: a sample of them."""

from dataclasses import replace

import pytest

from conformance.deviations.catalogue import find
from conformance.deviations.logits import scaled_by
from conformance.spec.problem import Problem

from .frozen import deviations, digest, frozen, problems

# One deviation of so many is looked at; `python -m tests.bounds.frozen` writes all anew.
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
