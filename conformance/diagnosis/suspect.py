"""
A failing reply, held against other dialects: one explains it if the reply lies within the bound of its oracle.

Dialects are screened by a cheap residual; only what is left gets a bound.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from conformance.bounds.bound import Bound
from conformance.bounds.outputs import UnderivedBound, bound_reply
from conformance.bridge.profile import UNIT, Profile
from conformance.bridge.tensor import Tensor
from conformance.deviations.deviation import Dialect, Expected, Reply
from conformance.deviations.evaluate import Answer, evaluate
from conformance.spec.problem import Array, Problem
from conformance.verdicts.compare import RMS_LIMIT, averages, compare, has_rms_gate, root_mean_square
from conformance.verdicts.expectation import Expectation, flat, largest_tolerance

# A candidate that is further off than this fraction of its own largest number is not looked at closer,
SCREEN = 0.05

# in half precision than this one: a logit of 30 errs by a part of 1 there.
HALF_SCREEN = 0.5

# A decision that shows by how far the numbers of the scores go, be they declared as coarse as they may be.
OF_RANGE = "softmax_maximum"

# A suspect may be off by so many roundings where what is declared is exact, as in a row of zeros.
ROUNDINGS = 8.0


# The largest error, in tolerances, falls by this factor at least,
MIN_IMPROVEMENT = 1.25
# or the root mean square of all errors by this one.
TOGETHER = 2.0
# Where the declared answer is exact, errors count in this part of what the two answers are apart.
EXACT = 1e-3


@dataclass(frozen=True, eq=False)
class Suspect:
    """A failing reply with what was expected of it, ready to be held against other dialects."""

    problem: Problem
    declared: Expectation
    profile: Profile
    actual: Mapping[str, Tensor]

    def budget(self, dialect: Dialect) -> float | None:
        """
        What the reply uses of the bound under `dialect`: at most 1 where that explains it.

        None where a glance shows that it is far off, or no nearer, or where `dialect` is the declared answer again.
        """
        answer = self._answer(dialect, self.profile.score)
        if answer is None or not separate(self.declared, answer.reply, self.profile):
            return None
        if not is_closer(self.actual, self.declared, answer.reply):
            return None
        return _budget(answer, self.declared, self.profile, self.actual)

    def held_by(self, dialect: Dialect) -> bool:
        """
        Whether the reply lies within the bound under `dialect`, be that hardly another answer here.

        In half precision also within that of arithmetic that rounds every step to it: it is asked of a cause that other
        replies have shown, which may make visible how coarse the arithmetic is.
        """
        return any(self._is_held(dialect, profile) for profile in self._profiles())

    def holds(self, dialect: Dialect) -> bool:
        """Whether the reply lies within the bound under `dialect`, in the arithmetic that is declared."""
        return self._is_held(dialect, self.profile)

    def _is_held(self, dialect: Dialect, profile: Profile) -> bool:
        answer = self._answer(dialect, profile.score)
        return answer is not None and _budget(answer, self.declared, profile, self.actual) <= 1.0

    def expected(self, dialect: Dialect) -> Expectation | None:
        """What is expected under `dialect`, and how far it may be off; None where the reply is far from it."""
        answer = self._answer(dialect, self.profile.score)
        return (
            None if answer is None else Expectation(dialect, answer.reply, _bounds(answer, self.declared, self.profile))
        )

    def _profiles(self) -> Iterator[Profile]:
        yield self.profile
        if UNIT[self.problem.dtype] > UNIT["float32"]:
            yield Profile.uniform(self.problem.dtype)

    def explained_by(self, dialect: Dialect) -> bool:
        """Whether the reply lies within the bound under `dialect`, and not for being what is declared."""
        budget = self.budget(dialect)
        return budget is not None and budget <= 1.0

    def _answer(self, dialect: Dialect, score: str) -> Answer | None:
        """The answer under `dialect`; None where a glance shows that the reply is far off."""
        finer = "float32" if OF_RANGE in dialect and UNIT[score] > UNIT["float32"] else score
        answers = (evaluate(self.problem, dialect, each) for each in dict.fromkeys((score, finer)))
        return next((answer for answer in answers if self._near(answer.reply)), None)

    def _near(self, reply: Reply) -> bool:
        for name, expected in reply.items():
            if not _near(self.actual[name], expected.values, expected.dtype, self.declared.bounds[name]):
                return False
        return True


def _near(actual: Tensor, expected: np.ndarray, dtype: str, bound: Bound) -> bool:
    if actual.shape != expected.shape or actual.dtype != dtype:
        return False
    got = actual.float64()
    if not np.array_equal(np.isfinite(got), np.isfinite(expected)):
        return False
    with np.errstate(invalid="ignore"):
        error = np.nanmax(np.abs(got - expected), initial=0.0)
        screen = HALF_SCREEN if UNIT[dtype] > UNIT["float32"] else SCREEN
        limit = screen * np.nanmax(np.abs(expected), initial=0.0) + np.max(bound.tolerance, initial=0.0)
    return bool(error <= limit)


def separate(declared: Expectation, reply: Reply, profile: Profile) -> bool:
    """
    Whether another reply is another answer here, beyond the bound, by an element or by the root mean square.

    What is not cannot explain anything.
    """
    return declared.separates(reply) or (
        has_rms_gate(profile) and any(_together(declared, reply, name) for name in reply)
    )


def _together(declared: Expectation, reply: Reply, name: str) -> bool:
    """Whether small differences of many elements amount to more than the second gate allows."""
    one, other, bound = declared.reply[name].values, reply[name].values, declared.bounds[name]
    if not averages(name, one.size):
        return False
    with np.errstate(invalid="ignore"):
        return root_mean_square(np.abs(one - other), bound) > RMS_LIMIT


def _budget(answer: Answer, declared: Expectation, profile: Profile, actual: Mapping[str, Tensor]) -> float:
    """What the reply uses of the bound under a candidate."""
    bounds, used, gate = _bounds(answer, declared, profile), [0.0], has_rms_gate(profile)
    for name, expected in answer.reply.items():
        if bounds[name].hard.shape != expected.values.shape:
            return float("inf")
        used.append(compare(name, expected, actual[name], bounds[name], rms_gate=gate).budget)
    return max(used)


def _bounds(answer: Answer, declared: Expectation, profile: Profile) -> Mapping[str, Bound]:
    """
    How far a reply under a candidate may be off.

    Where no bound is derived for it (rows that do not sum to one), the declared one stands in, as much larger as the
    numbers are: good enough to name a suspect, never to declare one.
    """
    try:
        return bound_reply(answer, profile)
    except UnderivedBound:
        attended = np.where(answer.state.allowed, answer.state.scaled, 0.0)
        rounded = UNIT[profile.score] * _largest(attended)
        return {name: _standing_in(declared, name, other, rounded) for name, other in answer.reply.items()}


def _standing_in(declared: Expectation, name: str, other: Expected, rounded: float) -> Bound:
    """
    The largest tolerance for all, times the growth of the largest number, at least some roundings of that.

    rounded: by what part of itself a weight may move since its logit is rounded, which does not show where the weights
    that are declared are saturated, or since it is computed otherwise.
    """
    bound = declared.bounds[name]
    one, most = _largest(declared.reply[name].values), _largest(other.values)
    grown = max(1.0, most / one) if one else 1.0
    least = max(ROUNDINGS * UNIT[other.dtype], rounded) * most
    return flat(bound, other.values.shape, max(grown * largest_tolerance(bound), least))


def _largest(values: Array) -> float:
    return float(np.max(np.abs(values), initial=0.0, where=np.isfinite(values)))


def is_closer(actual: Mapping[str, Tensor], declared: Expectation, reply: Reply) -> bool:
    """
    Whether `reply`, with which the finite numbers of `actual` agree, is nearer to them than what is declared.

    A bound that is wider than the declared one can hold a reply that goes another way.
    """
    return any(_closer(actual[name], declared, name, reply[name].values) for name in reply)


def _closer(actual: Tensor, declared: Expectation, name: str, other: Array) -> bool:
    first, tolerance, got = declared.reply[name], declared.bounds[name].tolerance, actual.float64()
    if first.values.shape != got.shape or first.dtype != actual.dtype:
        return True
    if not np.array_equal(np.isfinite(first.values), np.isfinite(got)):
        return True
    with np.errstate(invalid="ignore", divide="ignore"):
        far, near = (np.nan_to_num(np.abs(got - values), nan=0.0) for values in (first.values, other))
        unit = np.where(tolerance == 0.0, EXACT * np.abs(first.values - other), tolerance)
        most_far, most_near = (float(np.max(np.where(e == 0, 0, e / unit), initial=0.0)) for e in (far, near))
    fallen = most_far > MIN_IMPROVEMENT * most_near
    return fallen or float(np.sum(far**2)) > TOGETHER**2 * float(np.sum(near**2))
