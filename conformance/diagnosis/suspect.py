"""
Compares a failing reply with other dialects; a dialect explains it if the reply is within the bound of its oracle.

Dialects are first screened by a cheap residual; a bound is derived only for the remaining ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from conformance.bounds.bound import Bound
from conformance.bounds.derivation import derive
from conformance.bounds.outputs import UnderivedBound, bound_reply, score_bound
from conformance.bridge.profile import UNIT, Profile
from conformance.bridge.tensor import Tensor
from conformance.deviations.catalogue import OracleAnswer, evaluate
from conformance.deviations.deviation import Dialect, Expected, Reply
from conformance.spec.problem import Array, Problem
from conformance.verdicts.compare import compare, has_rms_gate, kinds, rms_limit, root_mean_square
from conformance.verdicts.expectation import Expectation, flat, largest_tolerance

# Maximum error of a reply, as a fraction of the candidate's largest number, that passes the screening.
SCREEN = 0.05

# The same in half precision, where the rounding error of a logit of 30 is a fraction of 1.
HALF_SCREEN = 0.5

# A decision that depends on the range of the dtype of the scores, however coarse the declared dtype is.
OF_RANGE = "softmax_maximum"

# The decision about the dtype of results. A finer one shows that scores have that dtype, a coarser one that every step
# may be rounded to it.
OF_RESULTS = "result_dtype"

# Decisions that change the bound that a suspect is compared with, so the bound of an expectation is not the right one.
OF_OTHER_BOUND = frozenset({OF_RANGE, OF_RESULTS})

# Tolerance of a suspect, in roundings, where the declared answer is exact, as in a row of zeros.
ROUNDINGS = 8.0

# A closer dialect reduces the largest error, in tolerances, by at least this factor,
MIN_IMPROVEMENT = 1.25
# or the root mean square of all errors by at least this one.
TOGETHER = 2.0
# Unit of errors where the declared answer is exact, as a fraction of the difference of the two answers.
EXACT = 1e-3


@dataclass(frozen=True, eq=False)
class Suspect:
    """A failing reply with its expectation, to be compared with other dialects."""

    problem: Problem
    declared: Expectation
    profile: Profile
    actual: Mapping[str, Tensor]

    def budget(self, dialect: Dialect) -> float | None:
        """
        The share of the bound under `dialect` that the reply uses; at most 1 if the dialect explains it.

        None if the screening rejects the dialect, if it is no closer than the declared one, or if it gives the same
        answer.
        """
        answer = self._answer(dialect, self.profile.score)
        if answer is None or not self._could_explain(answer.reply):
            return None
        return _budget(answer, self.declared, _rounding_results(self.profile, dialect), self.actual)

    def budget_of(self, expected: Expectation) -> float | None:
        """
        As `budget`, for a dialect whose expectation is known already.

        The dialect must not make a decision of OF_OTHER_BOUND.
        """
        if not self._near(expected.reply) or not self._could_explain(expected.reply):
            return None
        return _used(expected.reply, expected.bounds, self.profile, self.actual)

    def _could_explain(self, reply: Reply) -> bool:
        return separate(self.declared, reply, self.profile) and is_closer(self.actual, self.declared, reply)

    def loosely_conforms_under(self, dialect: Dialect) -> bool:
        """
        Whether the reply is within the bound under `dialect`, even if that hardly differs from the declared answer.

        In half precision, the bound of arithmetic that rounds every step is accepted too, and in any precision the
        worst case of summation. This is used for causes that other replies have shown, and such a cause may make the
        coarse arithmetic visible.
        """
        answer = self._answer(dialect, self.profile.score)
        return (
            self._is_within(answer, dialect, self.profile)
            or self._conforms_if_every_step_rounds(dialect)
            or self._is_possible(answer)
        )

    def _conforms_if_every_step_rounds(self, dialect: Dialect) -> bool:
        """Whether a reply in half precision is within the bound of arithmetic that rounds every step."""
        if UNIT[self.problem.dtype] <= UNIT["float32"]:
            return False
        profile = Profile.uniform(self.problem.dtype)
        return self._is_within(self._answer(dialect, profile.score), dialect, profile)

    def _is_possible(self, answer: OracleAnswer | None) -> bool:
        """
        Whether some order of summation gives the reply, and the answer differs more from the declared one.

        The bound assumes that roundings average out. A finite fill makes many weights equal, and if a sum adds them one
        by one, each is rounded in the same direction.
        """
        if answer is None:
            return False
        bounds = _bounds(answer, self.declared, self.profile)
        possible = not any(
            compare(name, expected, self.actual[name], bounds[name], rms_gate=False).impossible
            for name, expected in answer.reply.items()
        )
        return possible and any(_is_beyond_worst(self.declared, answer.reply, name, bounds[name]) for name in bounds)

    def conforms_under(self, dialect: Dialect) -> bool:
        """Whether the reply is within the bound under `dialect` with the declared arithmetic."""
        return self._is_within(self._answer(dialect, self.profile.score), dialect, self.profile)

    def _is_within(self, answer: OracleAnswer | None, dialect: Dialect, profile: Profile) -> bool:
        if answer is None:
            return False
        return _budget(answer, self.declared, _rounding_results(profile, dialect), self.actual) <= 1.0

    def expected(self, dialect: Dialect) -> Expectation | None:
        """The expectation under `dialect`; None if the reply is far from it."""
        answer = self._answer(dialect, self.profile.score)
        return (
            None if answer is None else Expectation(dialect, answer.reply, _bounds(answer, self.declared, self.profile))
        )

    def bounds(self, dialect: Dialect) -> Mapping[str, Bound]:
        """The bounds under `dialect`, however far the reply is from it."""
        answer = _evaluated(self.problem, tuple(dialect.items()), self.profile.score)
        return _bounds(answer, self.declared, self.profile)

    def reply(self, dialect: Dialect) -> Reply:
        """The expected reply under `dialect`."""
        return _evaluated(self.problem, tuple(dialect.items()), self.profile.score).reply

    def explained_by(self, dialect: Dialect) -> bool:
        """Whether the reply is within the bound under `dialect`, and that differs from the declared answer."""
        budget = self.budget(dialect)
        return budget is not None and budget <= 1.0

    def _answer(self, dialect: Dialect, score: str) -> OracleAnswer | None:
        """The oracle's answer under `dialect`; None if the screening shows that the reply is far from it."""
        finer = ("float32",) if OF_RANGE in dialect else ()
        finer = (*finer, dialect[OF_RESULTS]) if OF_RESULTS in dialect else finer
        scores = dict.fromkeys((score, *(each for each in finer if UNIT[each] < UNIT[score])))
        answers = (_evaluated(self.problem, tuple(dialect.items()), each) for each in scores)
        return next((answer for answer in answers if self._near(answer.reply)), None)

    def _near(self, reply: Reply) -> bool:
        return all(_near(self.actual[name], each, self.declared.bounds[name]) for name, each in reply.items())


# Cached, because a reply is compared with an answer in several ways, one after the other; `_bounds` is for its bounds.
@lru_cache(maxsize=4)
def _evaluated(problem: Problem, dialect: tuple[tuple[str, str], ...], score: str) -> OracleAnswer:
    return evaluate(problem, dict(dialect), score)


def _is_beyond_worst(declared: Expectation, reply: Reply, name: str, bound: Bound) -> bool:
    """Whether two expected replies differ by more than twice the worst case in some element."""
    one, other = declared.reply[name].values, reply[name].values
    if one.shape != other.shape:
        return True
    with np.errstate(invalid="ignore"):
        return bool(np.any(np.abs(one - other) > 2.0 * bound.worst))


def _rounding_results(profile: Profile, dialect: Dialect) -> Profile:
    """The profile of a reply: if results have a coarser dtype than declared, every step may be rounded to it."""
    dtype = dialect.get(OF_RESULTS, profile.store)
    return Profile.uniform(dtype) if UNIT[dtype] > UNIT[profile.store] else profile


def _near(actual: Tensor, expected: Expected, bound: Bound) -> bool:
    got, values = actual.float64(), expected.values
    if actual.dtype != expected.dtype or not np.array_equal(np.isfinite(got), np.isfinite(values)):
        return False
    with np.errstate(invalid="ignore"):
        error = np.nanmax(np.abs(got - values), initial=0.0)
        screen = HALF_SCREEN if UNIT[expected.dtype] > UNIT["float32"] else SCREEN
        limit = screen * np.nanmax(np.abs(values), initial=0.0) + np.max(bound.tolerance, initial=0.0)
    return bool(error <= limit)


def separate(declared: Expectation, reply: Reply, profile: Profile) -> bool:
    """
    Whether another expected reply differs beyond the bound, in an element or in the root mean square.

    A reply that does not differ cannot explain anything.
    """
    return declared.separates(reply) or (
        has_rms_gate(profile) and any(_differs_in_rms(declared, reply, name) for name in reply)
    )


def _differs_in_rms(declared: Expectation, reply: Reply, name: str) -> bool:
    """Whether small differences of many elements together exceed the RMS limit."""
    one, other, bound = declared.reply[name].values, reply[name].values, declared.bounds[name]
    if (limit := rms_limit(name, one)) is None:
        return False
    with np.errstate(invalid="ignore"):
        return root_mean_square(np.abs(one - other), bound) > limit


def _budget(answer: OracleAnswer, declared: Expectation, profile: Profile, actual: Mapping[str, Tensor]) -> float:
    """The share of the bound under a candidate that the reply uses."""
    return _used(answer.reply, _bounds(answer, declared, profile), profile, actual)


def _used(reply: Reply, bounds: Mapping[str, Bound], profile: Profile, actual: Mapping[str, Tensor]) -> float:
    used, gate = [0.0], has_rms_gate(profile)
    for name, expected in reply.items():
        if bounds[name].hard.shape != expected.values.shape:
            return float("inf")
        used.append(compare(name, expected, actual[name], bounds[name], rms_gate=gate).budget)
    return max(used)


@lru_cache(maxsize=4)
def _bounds(answer: OracleAnswer, declared: Expectation, profile: Profile) -> Mapping[str, Bound]:
    """
    The bounds under a candidate.

    If no bound can be derived (rows that do not sum to one), the declared bound is scaled with the numbers. This is
    good enough to name a suspect, but not to declare a dialect.
    """
    try:
        return bound_reply(answer, profile)
    except UnderivedBound:
        rounded = _logit_tolerance(answer.state.problem, profile)
        return {name: _substitute_bound(declared, name, other, rounded) for name, other in answer.reply.items()}


@lru_cache(maxsize=16)
def _logit_tolerance(problem: Problem, profile: Profile) -> float:
    """The largest tolerance of an attended logit of canonical attention: the relative change of a weight through it."""
    answer = evaluate(problem, {}, profile.score)
    with np.errstate(over="ignore", invalid="ignore"):
        tolerance = score_bound("logits", derive(answer, profile), profile.score).tolerance
    attended = answer.state.allowed & np.isfinite(answer.state.logits) & np.isfinite(tolerance)
    return float(np.max(tolerance, initial=0.0, where=attended))


def _substitute_bound(declared: Expectation, name: str, other: Expected, rounded: float) -> Bound:
    """
    A substitute bound: the largest declared tolerance, times the growth of the largest number, for all elements.

    It is at least some roundings of the largest number. rounded: the relative change of a weight through the error of
    its logit; the declared bound does not contain it where declared weights are saturated or computed in another way.
    """
    bound = declared.bounds[name]
    before, after = _largest(declared.reply[name].values), _largest(other.values)
    growth = max(1.0, after / before) if before else 1.0
    least = max(ROUNDINGS * UNIT[other.dtype], rounded) * after
    return flat(bound, other.values.shape, max(growth * largest_tolerance(bound), least))


def _largest(values: Array) -> float:
    return float(np.max(np.abs(values), initial=0.0, where=np.isfinite(values)))


def is_closer(actual: Mapping[str, Tensor], declared: Expectation, reply: Reply) -> bool:
    """
    Whether `reply` is closer to `actual` than the declared reply is; their finite positions agree.

    A reply that deviates in another direction can be within the bound of a candidate if that is wider than the declared
    one.
    """
    return any(_closer(actual[name], declared, name, reply[name].values) for name in reply)


def _closer(actual: Tensor, declared: Expectation, name: str, other: Array) -> bool:
    first, tolerance, got = declared.reply[name], declared.bounds[name].tolerance, actual.float64()
    if first.values.shape != got.shape or first.dtype != actual.dtype:
        return True
    if not np.array_equal(kinds(first.values), kinds(got)):
        return True
    with np.errstate(invalid="ignore", divide="ignore"):
        far, near = (np.nan_to_num(np.abs(got - values), nan=0.0) for values in (first.values, other))
        unit = np.where(tolerance == 0.0, EXACT * np.abs(first.values - other), tolerance)
        most_far, most_near = (float(np.max(np.where(e == 0, 0, e / unit), initial=0.0)) for e in (far, near))
    is_reduced = most_far > MIN_IMPROVEMENT * most_near
    return is_reduced or float(np.sum(far**2)) > TOGETHER**2 * float(np.sum(near**2))
