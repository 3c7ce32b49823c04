"""What became of each case of a check: what a test-suite tells one by one."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from conformance.engine.records import Cell, Key
from conformance.engine.run import Run
from conformance.judge.verdict import gravest
from conformance.own.causes import Cause, cause_of
from conformance.own.telling import judged_cases, told
from conformance.report.conclusion import UNJUDGED
from conformance.report.findings import findings
from conformance.report.verdicts import what_happened
from conformance.spec.counting import counted

DECLINED = "unsupported"
MISSING = "missing"
SHOWN_REASONS = 4
"""So many reasons for which cases were left out."""


@dataclass(frozen=True)
class Outcome:
    """
    What became of one case, over both forms in which its masks are passed.

    verdict: one of docs/architecture.md, or "missing" where the check ended before it. accepted: whether the gate
    accepts it. text: the cause, what to change and the command that shows it again where it does not; why where it was
    declined.
    """

    verdict: str
    accepted: bool
    text: str = ""

    @property
    def judged(self) -> bool:
        """Whether the function was called and its reply could be judged."""
        return self.verdict not in (*UNJUDGED, MISSING)


def outcomes(run: Run, again: Callable[[str], str]) -> dict[str, Outcome]:
    """Case -> what became of it; again: the command that checks one case again."""
    cells: dict[str, list[Cell]] = {name: [] for name in run.header.cases}
    for cell in run.cells.values():
        cells[cell.case].append(cell)
    where = _by_cases(cause_of(findings(run)))
    return {name: _outcome(run, some, where, again(name)) for name, some in cells.items()}


def _by_cases(where: Mapping[Key, Cause]) -> dict[Key, Cause]:
    """Causes that count cases: one case has a verdict for each form."""
    asked = {(cause, case) for (case, _), cause in where.items()}
    count = Counter(cause for cause, _ in asked)
    return {key: replace(cause, count=count[cause]) for key, cause in where.items()}


def _outcome(run: Run, cells: list[Cell], where: Mapping[Key, Cause], again: str) -> Outcome:
    asked = [cell for cell in cells if cell.verdict != DECLINED]
    if not cells:
        why = run.footer.gate.incomplete if run.footer else ()
        return Outcome(MISSING, accepted=False, text="\n".join(["no verdict: the check did not get to it", *why]))
    if not asked:
        return Outcome(DECLINED, accepted=True, text=what_happened(cells[0]))
    verdict = gravest(cell.verdict for cell in asked)
    red = next((cell for cell in asked if cell.key in run.rejected), None)
    if red is None:
        return Outcome(verdict, accepted=True)
    cause = where[red.key]
    first, *rest = told(cause, again, "case")
    here = [] if cause.explained or what_happened(red) in first else [f"here: {what_happened(red)}"]
    return Outcome(verdict, accepted=False, text="\n".join([first, *here, *rest]))


def judged_share(given: str, found: Mapping[str, Outcome], least: float) -> Outcome:
    """
    Whether enough of the cases was judged: a function of which nearly all is left out conforms for nothing.

    given: what the function is called. found: case -> what became of it. least: the smallest share, from 0 to 1.
    """
    judged, every = judged_cases((case, each.judged) for case, each in found.items())
    if judged and judged >= least * every:
        return Outcome("pass", accepted=True)
    share = judged / max(1, every)
    said = f"{given} was judged in {judged} of {counted(every, 'case')}: {share:.0%}, and min_judged is {least:.0%}"
    fix = "fix: let it take what they need (docs/check.md), or choose what it is for: cases=[...]"
    if few := int(100 * share) / 100:
        fix += f", or min_judged={few} where no more is meant"
    return Outcome("fail", accepted=False, text="\n".join([said, *_left_out(found.values()), fix]))


def _left_out(found: Collection[Outcome]) -> Iterator[str]:
    """The most frequent reasons, without the sizes of a case."""
    reasons = Counter(each.text.partition(" over ")[0] for each in found if each.verdict == DECLINED)
    for reason, count in reasons.most_common(SHOWN_REASONS):
        yield f"left out: {counted(count, 'case')}: {reason}"
    if more := sum(reasons.values()) - sum(count for _, count in reasons.most_common(SHOWN_REASONS)):
        yield f"left out: {counted(more, 'case')} for other reasons"
