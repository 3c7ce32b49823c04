"""
The reply that the oracle expects under one dialect, with bounds, and the comparison of a reply with it.

The oracle itself is compared with published numbers. If they disagree, one of the two is wrong, not a subject. The
allowed difference is half a unit of the last printed digit, or the tolerance published with the numbers. If they were
computed in a narrower dtype, it is at least the bound of that arithmetic (docs/tolerance.md).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from conformance.bounds.bound import Bound
from conformance.bounds.outputs import bound_reply, need_bound
from conformance.bridge.profile import Profile
from conformance.bridge.tensor import Tensor
from conformance.deviations.catalogue import evaluate
from conformance.deviations.deviation import Dialect, Reply
from conformance.spec.case import Case
from conformance.spec.problem import Array, Problem
from conformance.spec.published import Published
from conformance.verdicts.compare import OutputComparison, budgets, compare, differs, has_rms_gate


@dataclass(frozen=True, eq=False)
class Expectation:
    """The expected reply under `dialect`, with the bound of each output."""

    dialect: Dialect
    reply: Reply
    bounds: Mapping[str, Bound]

    def separates(self, other: Reply) -> bool:
        """Whether another expected reply differs: beyond the bounds, or in shape, dtype or non-finite values."""
        return any(differs(self.reply[name], other[name], self.bounds[name]) for name in self.reply)


def expect(problem: Problem, dialect: Dialect, profile: Profile) -> Expectation:
    """
    Evaluate the oracle and derive its bounds.

    Raises:
        UnderivedBound: no bound is derived for this dialect; it can be diagnosed but not declared.
    """
    answer = evaluate(problem, dialect, profile.score)
    return Expectation(dialect, answer.reply, bound_reply(answer, profile))


def expect_reply(problem: Problem, dialect: Dialect, profile: Profile) -> Reply:
    """
    Evaluate the oracle alone: a fraction of the time of `expect`, which also derives the bounds.

    Raises:
        UnderivedBound: as `expect` does.
    """
    answer = evaluate(problem, dialect, profile.score)
    need_bound(answer, profile)
    return answer.reply


def flat(bound: Bound, shape: tuple[int, ...], tolerance: float) -> Bound:
    """A bound with one tolerance for all elements, for a reply of `shape` that has no derived bound of its own."""
    every, nothing = np.full(shape, tolerance), np.zeros(shape)
    judged = bound.judged if bound.judged.shape == shape else np.ones(shape, dtype=bool)
    return Bound(every, nothing, every, judged, np.full(shape, np.max(bound.spread, initial=0.0)), nothing)


def largest_tolerance(bound: Bound) -> float:
    """The largest finite tolerance of a bound."""
    return float(np.max(bound.tolerance, initial=0.0, where=np.isfinite(bound.tolerance)))


def compare_all(
    expectation: Expectation, actual: Mapping[str, Tensor], profile: Profile
) -> tuple[OutputComparison, ...]:
    """
    Compare every requested output with one expectation.

    Raises:
        KeyError: a requested output is missing (the worker refuses such replies earlier).
    """
    gate = has_rms_gate(profile)
    return tuple(
        compare(name, expected, actual[name], expectation.bounds[name], rms_gate=gate)
        for name, expected in expectation.reply.items()
    )


@dataclass(frozen=True)
class PublishedFinding:
    """
    The result of comparing the published numbers of a case with the oracle.

    budget: the largest error / allowed difference; at most 1 agrees. problem: why the run cannot conform; "" if the
    numbers agree, or differ and the case states errata.
    """

    case: str
    budget: float
    problem: str


def published_finding(case: Case, problem: Problem) -> PublishedFinding | None:
    """Compare the published numbers of a case with the canonical oracle; None if it has none."""
    published = case.published
    if published is None:
        return None
    numbers = published.arrays()
    profile = Profile.ordinary(case.dtype) if published.computed_in is None else _stepwise(published.computed_in)
    expected = expect(problem.but(outputs=tuple(numbers)), {}, profile)
    budget, difference = max(
        (_compare(name, array, expected, published) for name, array in numbers.items()), key=lambda pair: pair[0]
    )
    return PublishedFinding(case.id, budget, _problem(case, published, budget, difference))


def _stepwise(dtype: str) -> Profile:
    return Profile.uniform(dtype) if dtype in ("float64", "float32") else Profile.naive(dtype)


def _compare(name: str, numbers: Array, expected: Expectation, published: Published) -> tuple[float, str]:
    values = expected.reply[name].values
    allowed = published.allowed(numbers)
    if published.computed_in is not None:
        allowed = np.maximum(allowed, expected.bounds[name].tolerance)
    differ_in_kind = np.isfinite(numbers) != np.isfinite(values)
    with np.errstate(invalid="ignore"):
        error = np.where(differ_in_kind, np.inf, np.nan_to_num(np.abs(numbers - values), nan=0.0))
    used = budgets(error, allowed)
    at = tuple(int(i) for i in np.unravel_index(int(used.argmax()), used.shape))
    where = f"{name} at {list(at)}: {numbers[at]:.9g} is published, the oracle computes {values[at]:.9g}"
    return float(used[at]), f"{where}, allowed difference {allowed[at]:.3g}"


def _problem(case: Case, published: Published, budget: float, difference: str) -> str:
    if (budget > 1.0) == (published.errata is not None):
        return ""
    if published.errata is not None:
        return f"{case.id}: the published numbers agree with the oracle; remove the errata ({published.errata})"
    return f"{case.id}: the published numbers ({published.source}) disagree with the oracle: {difference}"


def published_findings(cases: Iterable[Case], problem_of: Callable[[Case], Problem]) -> tuple[PublishedFinding, ...]:
    """The findings for all cases that have published numbers."""
    found = (published_finding(case, problem_of(case)) for case in cases if case.published is not None)
    return tuple(finding for finding in found if finding is not None)
