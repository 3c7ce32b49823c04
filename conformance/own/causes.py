"""Why a function does not conform: one record for each cause, over both forms in which its masks are passed."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from conformance.engine.records import Key
from conformance.report.finding import Finding


@dataclass(frozen=True)
class Cause:
    """
    One cause of rejected verdicts.

    kind: the verdict, and of a fail its class. sentence: what the function does, after "it", where a decision explains
    it; else what happened. remedy: what helps at the call site, or "". case: an example. ambiguous: other causes that
    explain the verdicts as well, in sentences.
    """

    kind: str
    sentence: str
    remedy: str
    explained: bool
    count: int
    case: str
    ambiguous: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.explained:
            return f"it {self.sentence}"
        if self.kind.startswith("fail"):
            return f"no cause found ({self.kind}): {self.sentence}"
        return self.sentence if self.sentence.startswith(self.kind) else f"{self.kind}: {self.sentence}"


def causes(found: Iterable[Finding]) -> tuple[Cause, ...]:
    """
    Join findings that are the same, without a cause: but for numbers.

    A function is judged as one subject with each mask in its own argument, and as another with all masks in one.
    """
    return tuple(sorted(_joined(found).values(), key=lambda cause: (not cause.explained, -cause.count)))


def cause_of(found: Iterable[Finding]) -> dict[Key, Cause]:
    """The cause to which each rejected verdict belongs, of those that `causes` tells."""
    found = tuple(found)
    joined = _joined(found)
    return {key: joined[_key(each)] for each in found for key in each.cells}


def _joined(found: Iterable[Finding]) -> dict[tuple[str, str], Cause]:
    joined: dict[tuple[str, str], Cause] = {}
    for each in found:
        cause = Cause(each.kind, each.said, each.remedy, each.explained, each.count, each.example[0], each.ambiguous)
        key = _key(each)
        before = joined.get(key)
        joined[key] = cause if before is None else replace(before, count=before.count + cause.count)
    return joined


def _key(found: Finding) -> tuple[str, str]:
    """What is told as one: a cause by its sentence, in which numbers are conditions; the rest but for its numbers."""
    if found.explained:
        return found.kind, found.sentence
    return ("fail", "") if found.kind.startswith("fail") else (found.kind, re.sub(r"\d+", "#", found.sentence))
