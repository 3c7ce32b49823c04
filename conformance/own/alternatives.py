"""What a failure would conform under: coarser arithmetic, which is told and never taken for granted."""

from collections.abc import Mapping
from typing import Any

from conformance.engine.judging import Judged
from conformance.judge.cell import compare_all
from conformance.judge.expectation import expect
from conformance.own.profiles import PROFILES, TOLD, meant

MISSES = 10
"""A profile that explains so many failures less than there are is not tried any more."""
SHOWN = 2
"""So many profiles that explain the same are named."""
MOST = 0.9
"""What explains a smaller part of the failures is not worth telling."""


class Alternatives:
    """Counts, while cells are judged, under which profiles the failures that nothing else explains would conform."""

    def __init__(self) -> None:
        """Begin with nothing seen."""
        self._seen = 0
        self._conforming = dict.fromkeys(TOLD, 0)

    def review(self, judged: Judged) -> Mapping[str, Any]:
        """Look at one cell; nothing is added to its record."""
        found = judged.judgement
        if found is not None and found.verdict == "fail" and found.explanation is None:
            for name, count in self._conforming.items():
                if self._seen - count <= MISSES:
                    self._conforming[name] += _would_conform(judged, name)
            self._seen += 1
        return {}

    def notes(self) -> list[str]:
        """The profiles that explain most; those that are alike are all named, the least coarse first."""
        count = max(self._conforming.values())
        if not count or count < MOST * self._seen:
            return []
        names = [name for name, number in self._conforming.items() if number == count][:SHOWN]
        of = f"{count} of {self._seen} verdicts" if self._seen > 1 else "the verdict"
        under = " or ".join(names)
        return [f"{of} that no decision explains would conform under {under}; if intended, --profile {names[0]}"]


def _would_conform(judged: Judged, name: str) -> bool:
    """Whether it would, of a dtype for which --profile takes the name."""
    if judged.declared is None or not meant(name, [judged.facts.dtype]):
        return False
    profile = PROFILES[name](judged.facts.dtype)
    expected = expect(judged.problem, judged.declared.dialect, profile)
    return all(each.verdict == "pass" for each in compare_all(expected, judged.actual, profile))
