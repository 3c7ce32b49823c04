"""The head of every report: whether the run conforms, the objections of the gate, and one line per subject."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from conformance.engine.logged_cell import JudgedCell, LoggedKnown
from conformance.engine.records import LoggedSubject
from conformance.engine.run_folder import Run
from conformance.report.counts import verdict_counts
from conformance.spec.texts import are, counted
from conformance.verdicts.verdict import CONFORMING


@dataclass(frozen=True)
class KnownGroup:
    """The verdicts that one known deviation accepts."""

    known: LoggedKnown
    cells: tuple[JudgedCell, ...]

    @property
    def subjects(self) -> tuple[str, ...]:
        """The subjects that deviate."""
        return tuple(dict.fromkeys(cell.subject for cell in self.cells))


def known_groups(run: Run) -> list[KnownGroup]:
    """The accepted verdicts, grouped by the known deviation that accepts them; largest group first."""
    groups: dict[tuple[str, str], tuple[LoggedKnown, list[JudgedCell]]] = {}
    for cell in run.judged.values():
        if (known := cell.known) is not None:
            groups.setdefault((known.entry, known.reason), (known, []))[1].append(cell)
    found = [KnownGroup(known, tuple(cells)) for known, cells in groups.values()]
    return sorted(found, key=lambda group: -len(group.cells))


# Verdicts of cells whose numbers were not judged.
UNJUDGED = ("unsupported", "inconclusive")


@dataclass(frozen=True)
class SubjectLine:
    """The verdict counts of one subject; `share` is the fraction of its operators' cases that were judged."""

    subject: LoggedSubject
    counts: Mapping[str, int]
    rejected: int
    missing: int
    cases: int
    share: float | None
    worst: float | None


# The kind of a note about the log, which does not count against any subject.
LOG_NOTE = "run log"


def headline(run: Run) -> str:
    """Say in one sentence whether the run conforms, and if not, why."""
    objections = ", ".join(_objection_counts(run))
    if run.footer is None:
        return f"Undecided: the run was interrupted before its end ({objections or 'the log has no last record'})."
    if run.conforms:
        accepted = sum(cell.known is not None for cell in run.judged.values())
        known = f"; {counted(accepted, 'verdict')} accepted as known deviations" if accepted else ""
        left = len(run.judged) - _made(run)
        declined = f"; {left:,} unsupported" if left else ""
        made = f"{counted(_made(run), 'call')} judged on {_judged_subjects(run)}"
        return f"Conforms: {made}, none rejected{known}{declined}."
    if run.footer.gate.not_working:
        first, *others = run.footer.gate.not_working.values()
        more = f" ({counted(len(others), 'other subject')} likewise)" if others else ""
        return f"Incomplete: {first}{more}{f'; {objections}' if objections else ''}."
    if not run.rejected and not run.footer.complete:
        return f"Incomplete: {objections or 'not every requested case was judged'}."
    return f"Does not conform: {objections or 'the gate rejected the run'}."


def _made(run: Run) -> int:
    """The number of calls that were made: all verdicts but `unsupported`."""
    return sum(cell.verdict != "unsupported" for cell in run.judged.values())


def _judged_subjects(run: Run) -> str:
    """The number of judged subjects, and that of dense forms if there are any."""
    judged = {subject for _, subject in run.judged}
    dense = sum(not run.header.subjects[subject].counted for subject in judged)
    forms = f" and {counted(dense, 'dense form')}" if dense else ""
    return f"{counted(len(judged) - dense, 'subject')}{forms}"


def _objection_counts(run: Run) -> list[str]:
    """How many verdicts, workers and known deviations speak against the run, each in words."""
    parts = []
    if run.rejected:
        verb = "is" if len(run.rejected) == 1 else "are"
        parts.append(f"{len(run.rejected):,} of {counted(_made(run), 'judged call')} {verb} rejected")
    if run.missing:
        parts.append(f"{counted(len(run.missing), 'verdict')} missing")
    failed = sum(worker.status == "failed" for worker in run.workers)
    if failed:
        parts.append(f"{counted(failed, 'worker')} failed")
    gate = run.footer.gate if run.footer else None
    if gate and gate.known.dead:
        parts.append(f"{are(len(gate.known.dead), 'known deviation')} no longer needed")
    if gate and gate.known.too_wide:
        parts.append(f"{are(len(gate.known.too_wide), 'known deviation')} too wide")
    return parts


def left_out_note(run: Run) -> str:
    """Say how many cases were left out because only --thorough runs them; "" if none was left out."""
    number = run.header.left_out
    more = "some variants, and the calls with all masks merged into one argument (dense forms)"
    return f"not run without --thorough: {counted(number, 'case')}, {more}" if number else ""


def replies_note(run: Run) -> str:
    """Say how many calls were not made because an earlier run has their replies; "" if all were made."""
    replies = run.footer.replies if run.footer else {}
    known, made = replies.get("known", 0), replies.get("made", 0)
    return f"{counted(known, 'call')} reused from earlier runs, {made:,} made now" if known else ""


def gate_notes(run: Run) -> list[tuple[str, str]]:
    """Objections of the gate other than rejected verdicts, and faults of the log, as (kind, text)."""
    return [*_log_notes(run), *_objections(run)]


def _log_notes(run: Run) -> list[tuple[str, str]]:
    if not run.repeated:
        return []
    case, subject = min(run.repeated)
    cells = f"{are(len(run.repeated), 'verdict')} in the log more than once (first: {case} on {subject})"
    return [(LOG_NOTE, f"two processes wrote this run at the same time: {cells}; the worse verdict counts")]


def _objections(run: Run) -> list[tuple[str, str]]:
    if run.footer is None:
        return []
    gate = run.footer.gate
    kinds = {
        "incomplete": gate.incomplete,
        "known deviation no longer needed": gate.known.dead,
        "known deviation too wide": gate.known.too_wide,
        "problem": [text for text in gate.problems if text != f"{are(len(run.rejected), 'verdict')} rejected"],
    }
    return [(kind, text) for kind, texts in kinds.items() for text in texts]


def subject_lines(run: Run) -> list[SubjectLine]:
    """One line per subject that has or owes a verdict, in the order of the header."""
    cells: dict[str, list[JudgedCell]] = {name: [] for name in run.header.subjects}
    for cell in run.judged.values():
        cells[cell.subject].append(cell)
    missing = Counter(subject for _, subject in run.missing)
    lines = []
    for name, subject in run.header.subjects.items():
        if cells[name] or missing[name]:
            lines.append(_line(run, subject, cells[name], missing[name]))
    return lines


def _line(run: Run, subject: LoggedSubject, cells: list[JudgedCell], missing: int) -> SubjectLine:
    cases = len(run.cases_of(subject)) if subject.counted else len(cells)
    judged = sum(cell.verdict not in UNJUDGED for cell in cells)
    budgets = [cell.budget for cell in cells if cell.budget is not None and cell.verdict in CONFORMING]
    return SubjectLine(
        subject=subject,
        counts=verdict_counts(cells),
        rejected=sum(cell.key in run.rejected for cell in cells),
        missing=missing,
        cases=cases,
        share=judged / cases if cases else None,
        worst=max(budgets, default=None),
    )
