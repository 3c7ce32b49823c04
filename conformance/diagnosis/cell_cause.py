"""Finds the single deviations that explain one failing reply, and few deviations that explain many cells."""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from conformance.bridge.profile import Profile
from conformance.bridge.tensor import Tensor
from conformance.diagnosis.cost import of_change
from conformance.diagnosis.explanation import Explanation, Way, alternatives, plain_ways
from conformance.diagnosis.suspect import Suspect
from conformance.spec.problem import Problem
from conformance.verdicts.expectation import Expectation

# Number of consecutive searches without a result after which a subject's replies are left to the diagnosis.
FRUITLESS = 16

# Decisions about fully masked rows and about non-finite inputs.
OF_NONFINITE = ("fully_masked_row", "nonfinite_value", "nonfinite_key")


def explain(
    problem: Problem,
    declared: Expectation,
    profile: Profile,
    actual: Mapping[str, Tensor],
    among: Collection[Way] | None = None,
) -> tuple[Explanation, ...]:
    """
    Every single deviation that explains `actual`, the cheapest in bits first; undoing a declared way costs nothing.

    If the reply is not finite and should be, decisions about non-finite values come first, because any deviation that
    gives NaN explains a NaN.

    among: if given, only these ways are tried.
    """
    suspect = Suspect(problem, declared, profile, actual)
    found = []
    for explanation, dialect in alternatives(problem, declared.dialect, among):
        budget = suspect.budget(dialect)
        if budget is not None and budget <= 1.0:
            found.append(replace(explanation, budget=budget))
    found.sort(key=lambda each: of_change((each.way,)))
    if is_unexpectedly_infinite(declared, actual):
        found.sort(key=lambda each: each.decision not in OF_NONFINITE)
    return tuple(found)


def is_unexpectedly_infinite(declared: Expectation, actual: Mapping[str, Tensor]) -> bool:
    """Whether an output that must be finite everywhere has NaN or infinities."""
    return any(
        np.isfinite(each.values).all() and not np.isfinite(actual[name].float64()).all()
        for name, each in declared.reply.items()
    )


class Likely:
    """
    The ways that explained earlier replies of one subject. They are tried first on the next reply.

    A subject has few deviations, but it shows them in hundreds of calls. After FRUITLESS searches in vain, no other
    ways are tried.
    """

    def __init__(self, ways: Iterable[Way] = (), *, search: bool = True) -> None:
        """
        Start with some ways. search: whether others are tried, too.

        searched: whether the last reply was compared with every single deviation.
        """
        self._ways = dict.fromkeys(ways)
        self._fruitless = 0 if search else FRUITLESS
        self.searched = True

    def explain(
        self,
        problem: Problem,
        declared: Expectation,
        profile: Profile,
        actual: Mapping[str, Tensor],
        *,
        thorough: bool = False,
    ) -> tuple[Explanation, ...]:
        """
        As the function `explain`, but deviations of kernels are tried only if `thorough`.

        The diagnosis tries those on a few cells. Everyday mistakes and deviations of frameworks are tried unless too
        many searches in a row found nothing.
        """
        found = explain(problem, declared, profile, actual, self._ways) if self._ways else ()
        self.searched = bool(found) or thorough
        if not found and (thorough or self._fruitless < FRUITLESS):
            among = None if thorough else plain_ways(problem, declared.dialect)
            found = explain(problem, declared, profile, actual, among)
            self._fruitless = 0 if found else self._fruitless + 1
            self.searched = self.searched or bool(found)
        self._ways.update(dict.fromkeys(each.way for each in found))
        return found


Key = TypeVar("Key", bound=Hashable)


def fewest(candidates: Mapping[Key, Sequence[str]]) -> dict[Key, str]:
    """
    Choose one cause for every cell so that few causes suffice (greedy set cover).

    candidates: for each cell, the causes that explain it, in order of preference. Each step takes the cause that
    explains most of the remaining cells; of equal ones, the cause that is preferred more often, then the first. Cells
    without a candidate are left out.
    """
    remaining = {key: causes for key, causes in candidates.items() if causes}
    chosen: dict[Key, str] = {}
    while remaining:
        reach = Counter(cause for causes in remaining.values() for cause in dict.fromkeys(causes))
        first = Counter(causes[0] for causes in remaining.values())
        best = max(reach, key=lambda cause: (reach[cause], first[cause]))
        explained = [key for key, causes in remaining.items() if best in causes]
        chosen |= dict.fromkeys(explained, best)
        for key in explained:
            del remaining[key]
    return chosen
