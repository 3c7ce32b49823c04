"""Why a function does not conform: one record for each cause, over both forms in which its masks are passed."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from conformance.report.findings import Finding


@dataclass(frozen=True)
class Cause:
    """
    One cause of rejected verdicts.

    kind: the verdict, and of a fail its class. sentence: what the function does, after "it", where a decision explains
    it; else what happened. remedy: what helps at the call site, or "". case: an example.
    """

    kind: str
    sentence: str
    remedy: str
    explained: bool
    count: int
    case: str

    def __str__(self) -> str:
        if self.explained:
            return f"it {self.sentence}"
        return self.sentence if self.sentence.startswith(self.kind) else f"{self.kind}: {self.sentence}"


def causes(found: Iterable[Finding]) -> tuple[Cause, ...]:
    """
    Join findings that are the same but for numbers.

    A function is judged as one subject with each mask in its own argument, and as another with all masks in one.
    """
    joined: dict[tuple[str, str], Cause] = {}
    for each in found:
        cause = Cause(each.kind, each.sentence, each.remedy, each.explained, each.count, each.example[0])
        by_numbers = each.kind.startswith("fail") and not each.explained
        key = ("fail" if by_numbers else each.kind, "" if by_numbers else re.sub(r"\d+", "#", each.sentence))
        before = joined.get(key)
        joined[key] = cause if before is None else replace(before, count=before.count + cause.count)
    return tuple(sorted(joined.values(), key=lambda cause: (not cause.explained, -cause.count)))
