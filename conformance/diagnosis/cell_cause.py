"""Which single deviation explains one failing reply, and which few explain many cells."""

from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
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

# After so many searches in a row that found nothing, the next replies of a subject are left to the diagnosis.
FRUITLESS = 16

# Decisions about rows without a number and about numbers that are none.
OF_NONFINITE = ("fully_masked_row", "nonfinite_value", "nonfinite_key")


def explain(
    problem: Problem,
    declared: Expectation,
    profile: Profile,
    actual: Mapping[str, Tensor],
    among: Collection[Way] | None = None,
) -> tuple[Explanation, ...]:
    """
    Every single decision that explains `actual`: declared ones taken back first, then the likeliest first (`bits`).

    Where it is not finite, and should be, what is about such numbers comes first: any NaN explains a NaN.

    among: only these ways are tried, if given.
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
    """Whether a reply has NaN or infinities where numbers are expected throughout."""
    return any(
        np.isfinite(each.values).all() and not np.isfinite(actual[name].float64()).all()
        for name, each in declared.reply.items()
    )


class Likely:
    """
    What explained replies of one subject so far: tried first, and alone where nothing else was found for long.

    A subject takes few decisions otherwise than declared, but it does so in hundreds of calls.
    """

    def __init__(self) -> None:
        """Begin with nothing seen; searched: whether the last reply was held against every single decision."""
        self._ways: dict[Way, None] = {}
        self._fruitless = 0
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
        As the function, but what only kernels do is tried only if `thorough`: the diagnosis tries it on few cells.

        What frameworks and people do is tried unless that was in vain for long.
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
    Choose one cause for every cell, so that few causes suffice (greedy set cover).

    candidates: for each cell what explains it, in order of preference. The cause that explains most of the cells that
    are left is taken next; of equal ones, the one that is preferred more often, then the first. Cells without a
    candidate are left out.
    """
    left = {key: causes for key, causes in candidates.items() if causes}
    chosen: dict[Key, str] = {}
    while left:
        reach = Counter(cause for causes in left.values() for cause in dict.fromkeys(causes))
        first = Counter(causes[0] for causes in left.values())
        best = max(reach, key=lambda cause: (reach[cause], first[cause]))
        explained = [key for key, causes in left.items() if best in causes]
        chosen |= dict.fromkeys(explained, best)
        for key in explained:
            del left[key]
    return chosen
