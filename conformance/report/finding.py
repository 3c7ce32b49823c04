"""A finding: one cause of rejected verdicts in words, as every report says it."""

from dataclasses import dataclass

from conformance.engine.records import Key
from conformance.judge.verdict import NOT_REFUSED
from conformance.spec.counting import counted


@dataclass(frozen=True)
class Finding:
    """
    One cause of rejected verdicts of one subject, in words, and what to change.

    explained: whether a cause is named. cells: the verdicts, the simplest call first where a diagnosis explains them.
    ambiguous: other causes that explain them as well, in sentences. seen: how replies to the example differed, of a
    cause that is told by repetition.
    """

    subject: str
    kind: str
    sentence: str
    remedy: str
    explained: bool
    cells: tuple[Key, ...]
    ambiguous: tuple[str, ...] = ()
    seen: str = ""

    @property
    def count(self) -> int:
        """How many verdicts it explains."""
        return len(self.cells)

    @property
    def example(self) -> Key:
        """The simplest of them."""
        return self.cells[0]

    @property
    def said(self) -> str:
        """The sentence, with what was seen in the example."""
        return f"{self.sentence}: {self.seen}" if self.seen else self.sentence


def finding_text(finding: Finding) -> str:
    """A finding in one sentence."""
    verdicts = f"{counted(finding.count, 'verdict')} of {finding.subject}"
    fix = f"; fix: {finding.remedy}" if finding.remedy else ""
    if not finding.explained:
        return f"{verdicts} ({unexplained_kind(finding)}): {finding.sentence}{fix}"
    return f"1 cause explains {verdicts}: {finding.said}{fix}"


def unexplained_kind(finding: Finding) -> str:
    """The kind of a finding without a cause; of numbers it is said that nothing explains them."""
    told = not finding.kind.startswith("fail") or finding.kind.endswith(NOT_REFUSED)
    return finding.kind if told else f"{finding.kind}, unexplained"
