"""
The oracle beside numbers that somebody else printed: where they disagree, one of the two is wrong, and no subject.

What is allowed is what the printing says: half a unit of the last digit, or the tolerance that comes with the numbers;
where they were computed in a narrower dtype, the bound of that arithmetic as well (docs/tolerance.md).
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
class Finding:
    """
    How the published numbers of a case stand.

    budget: the largest part of what is allowed that an element uses; at most 1 agrees. problem: why the run cannot
    conform, or "" where they agree, or differ as the case says.
    """

    case: str
    budget: float
    problem: str


def published_finding(case: Case, problem: Problem) -> Finding | None:
    """Hold the published numbers of a case against the canonical oracle; None where it has none."""
    said = case.published
    if said is None:
        return None
    numbers = said.arrays()
    profile = Profile.ordinary(case.dtype) if said.computed_in is None else _stepwise(said.computed_in)
    expected = expect(problem.but(outputs=tuple(numbers)), {}, profile)
    budget, words = max(
        (_compare(name, array, expected, said) for name, array in numbers.items()), key=lambda found: found[0]
    )
    return Finding(case.id, budget, _problem(case, said, budget, words))


def _stepwise(dtype: str) -> Profile:
    return Profile.uniform(dtype) if dtype in ("float64", "float32") else Profile.naive(dtype)


def _compare(name: str, numbers: Array, expected: Expectation, said: Published) -> tuple[float, str]:
    values = expected.reply[name].values
    allowed = said.allowed(numbers)
    if said.computed_in is not None:
        allowed = np.maximum(allowed, expected.bounds[name].tolerance)
    unlike = np.isfinite(numbers) != np.isfinite(values)
    with np.errstate(invalid="ignore"):
        error = np.where(unlike, np.inf, np.nan_to_num(np.abs(numbers - values), nan=0.0))
    used = budgets(error, allowed)
    at = tuple(int(i) for i in np.unravel_index(int(used.argmax()), used.shape))
    where = f"{name} at {list(at)}: {numbers[at]:.9g} is published, the oracle computes {values[at]:.9g}"
    return float(used[at]), f"{where}, allowed difference {allowed[at]:.3g}"


def _problem(case: Case, said: Published, budget: float, words: str) -> str:
    if (budget > 1.0) == (said.errata is not None):
        return ""
    if said.errata is not None:
        return f"{case.id}: the published numbers agree with the oracle; remove the errata ({said.errata})"
    return f"{case.id}: the published numbers ({said.source}) disagree with the oracle: {words}"


def published_findings(cases: Iterable[Case], problem_of: Callable[[Case], Problem]) -> tuple[Finding, ...]:
    """The findings of all cases that have published numbers."""
    found = (published_finding(case, problem_of(case)) for case in cases if case.published is not None)
    return tuple(finding for finding in found if finding is not None)
