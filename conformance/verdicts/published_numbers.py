"""
Compares the oracle with published numbers; if they disagree, one of the two is wrong, not a subject.

The allowed difference is half a unit of the last printed digit, or the tolerance published with the numbers. If they
were computed in a narrower dtype, it is at least the bound of that arithmetic (docs/tolerance.md).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from conformance.bridge.profile import Profile
from conformance.spec.case import Case
from conformance.spec.problem import Array, Problem
from conformance.spec.published import Published
from conformance.verdicts.compare import budgets
from conformance.verdicts.expectation import Expectation, expect


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
