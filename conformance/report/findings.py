"""
Why a run does not conform: its rejected verdicts by their causes.

Every report is written from these records, so they all say the same.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from conformance.deviations.catalogue import find
from conformance.engine.records import Cell, Diagnosis, Key, Tie, native
from conformance.engine.run import Run
from conformance.judge.causes import fewest
from conformance.judge.exceptions import root
from conformance.judge.telling import UNSTEADY
from conformance.judge.verdict import LOST, NOT_REFUSED
from conformance.report.finding import Finding
from conformance.report.most_said import most_said
from conformance.report.verdicts import first_line, kind_of, what_happened
from conformance.spec.counting import counted
from conformance.spec.refusals import REFUSALS

LOOK_FOR = {
    "nondeterministic": "switch dropout off, as in inference; else look for a race or memory that nobody wrote",
    "order_dependent": "look for a cache whose key leaves something out, as what a mask holds; "
    "else for a buffer that one call leaves to the next",
}
"""Class of a fail that is told by repetition -> what to change."""


def findings(run: Run) -> list[Finding]:
    """
    Group the rejected verdicts by subject and cause: explained ones first, then by how many they are.

    Causes are those of the subject's diagnosis. A cell of which it does not speak (no reply, or the run was cut after a
    relation between replies broke) goes to a cause of the diagnosis that explains it as well, else to the cause that
    explains most of the subject's other such cells.
    """
    found = [finding for diagnosis in run.diagnoses.values() for finding in _diagnosed(run, diagnosis)]
    told = {key for finding in found for key in finding.cells}
    left = [cell for cell in rejected_cells(run) if cell.key not in told]
    where = {
        (case, each.subject): each.unexplained_where for each in run.diagnoses.values() for case in each.unexplained
    }
    where |= {
        (case, each.subject): lost.condition
        for each in run.diagnoses.values()
        for lost in each.errors
        for case in lost.cells
    }
    found += _unsteady([cell for cell in left if cell.fail_class in UNSTEADY])
    left = [cell for cell in left if cell.fail_class not in UNSTEADY]
    found += _undiagnosed([cell for cell in left if cell.key not in where], _told(run.diagnoses.values()))
    found += _unexplained([cell for cell in left if cell.key in where], where)
    return sorted(_merged(found), key=lambda finding: (not finding.explained, -finding.count))


def _merged(found: Iterable[Finding]) -> Iterator[Finding]:
    """
    One finding for one cause of a subject, its dense form included, told under the native name.

    It shows in calls by the diagnosis, and where a relation between replies broke.
    """
    same: dict[tuple[str, ...], list[Finding]] = {}
    for number, each in enumerate(sorted(found, key=lambda each: each.subject != native(each.subject))):
        key = (native(each.subject), each.sentence, each.remedy) if each.explained else (str(number),)
        same.setdefault(key, []).append(each)
    for first, *others in same.values():
        yield replace(first, cells=(*first.cells, *(cell for other in others for cell in other.cells)))


def finding_of(run: Run) -> dict[Key, Finding]:
    """The finding to which each rejected verdict belongs."""
    return {key: finding for finding in findings(run) for key in finding.cells}


def _diagnosed(run: Run, diagnosis: Diagnosis) -> Iterator[Finding]:
    for cause in diagnosis.causes:
        found = (key for case in cause.cells if (key := (case, diagnosis.subject)) in run.rejected)
        if keys := tuple(sorted(found, key=lambda key: not _is_wrong_itself(run.cells[key]))):
            yield Finding(
                subject=diagnosis.subject,
                kind=kind_of(run.cells[keys[0]]),
                sentence=conditioned(cause.sentence, cause.condition),
                remedy=cause.remedy,
                explained=True,
                cells=keys,
                ambiguous=tuple(_ambiguity(tie) for tie in cause.ties),
            )


def _is_wrong_itself(cell: Cell) -> bool:
    """Whether an output is wrong, and not just the reply to a changed call: the better example."""
    return any(output.verdict == "fail" for output in cell.outputs)


def conditioned(sentence: str, condition: str) -> str:
    """A sentence with the condition under which it is true."""
    return f"{sentence}, {condition}" if condition else sentence


def _ambiguity(tie: Tie) -> str:
    """What else it could be, and what would tell."""
    told = f"{tie.separated_by} would tell" if tie.separated_by else "no case tells the two apart"
    fix = f" (fix: {tie.remedy})" if tie.remedy else ""
    return f"or it {conditioned(tie.sentence, tie.condition)}{fix}; {told}"


def _told(diagnoses: Iterable[Diagnosis]) -> Mapping[str, Mapping[str, tuple[str, str]]]:
    """Subject -> the causes of its diagnosis that are one decision, `decision=name` -> sentence and remedy."""
    return {
        each.subject: {
            "=".join(way): (conditioned(cause.sentence, cause.condition), cause.remedy)
            for cause in reversed(each.causes)
            if len(cause.decisions) == 1
            for way in cause.decisions.items()
        }
        for each in diagnoses
    }


def _undiagnosed(cells: list[Cell], told: Mapping[str, Mapping[str, tuple[str, str]]]) -> list[Finding]:
    """
    Of which no diagnosis speaks: what is told already, else what explains each alone, for as many as possible.

    What is told already has its condition: a relation breaks where a changed call meets it and the call does not.
    """
    by_subject: dict[str, dict[Key, list[str]]] = {}
    for cell in cells:
        alone = _explained_by(cell)
        known = [cause for cause in alone if cause in told.get(cell.subject, ())]
        by_subject.setdefault(cell.subject, {})[cell.key] = known or alone
    causes = {key: cause for some in by_subject.values() for key, cause in fewest(some).items()}
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        if cell.key in causes:
            groups.setdefault((cell.subject, causes[cell.key]), []).append(cell)
    explained = [_finding(some, cause, told.get(subject, {}).get(cause)) for (subject, cause), some in groups.items()]
    return explained + _unexplained([cell for cell in cells if cell.key not in causes])


def _unsteady(cells: list[Cell]) -> Iterator[Finding]:
    """
    What is told by repetition: one finding for each subject and class.

    Of replies that are drawn each time, two in a row may be the same by chance: a few such calls are no other cause.
    """
    count = Counter((cell.subject, cell.fail_class) for cell in cells)
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        drawn = (cell.subject, "nondeterministic")
        own = (cell.subject, cell.fail_class)
        groups.setdefault(drawn if count[drawn] > count[own] else own, []).append(cell)
    for (subject, klass), some in groups.items():
        alike = [cell for cell in some if cell.fail_class == klass]
        first = next((cell for cell in alike if cell.repeated), alike[0])
        yield Finding(
            subject=subject,
            kind=kind_of(first),
            sentence=f"{UNSTEADY[klass]} ({klass.replace('_', ' ')})",
            remedy=LOOK_FOR[klass],
            explained=True,
            cells=(first.key, *(cell.key for cell in some if cell is not first)),
            seen=first.repeated,
        )


def _unexplained(cells: list[Cell], where: Mapping[Key, str] = MappingProxyType({})) -> list[Finding]:
    """What failed in the same way, as far as is known, and what that has in common."""
    groups: dict[tuple[str, str, str, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.subject, *_cause(cell)), []).append(cell)
    return [_described(_finding(some, ""), where, some) for some in groups.values()]


def _described(finding: Finding, where: Mapping[Key, str], cells: list[Cell]) -> Finding:
    """With what is known besides: where it lies, what its weights are, and what explains each by itself."""
    odd, calls = most_said(cell.odd_weights for cell in cells if cell.odd_weights is not None)
    weights = f"its weights, read in {counted(calls, 'call')}, {odd}" if odd else ""
    alone = _by_itself(cells) if finding.example in where else ""
    told = "; ".join(each for each in (where.get(finding.example, ""), weights, alone) if each)
    return replace(finding, sentence=f"{told}: {finding.sentence}") if told else finding


def _by_itself(cells: list[Cell]) -> str:
    """What would explain every one of these calls, if others did not contradict it; "" where nothing does."""
    common = [cause for cause in _explained_by(cells[0]) if all(cause in _explained_by(cell) for cell in cells)]
    return f"by itself, it {_sentence(cells, common[0])[0]}, which other calls contradict" if common else ""


def _explained_by(cell: Cell) -> list[str]:
    """Every cause that explains a cell, `decision=name`, the preferred one first."""
    if cell.explanation is None:
        return []
    return [f"{cell.explanation.decision}={cell.explanation.name}", *cell.ties]


def _sentence(cells: list[Cell], cause: str) -> tuple[str, str]:
    """Sentence and remedy of a cause: from a cell that has it first, else from the table."""
    for cell in cells:
        if cell.explanation is not None and _explained_by(cell)[0] == cause:
            return cell.explanation.sentence, cell.explanation.remedy
    decision, _, name = cause.partition("=")
    try:
        row = find(decision, name)
    except KeyError:
        return f"takes {decision} as {name}", ""
    return row.sentence, row.remedy


def rejected_cells(run: Run) -> list[Cell]:
    """The rejected cells in the order of the log."""
    return [cell for key, cell in run.cells.items() if key in run.rejected]


def _cause(cell: Cell) -> tuple[str, str, str]:
    if cell.error is not None and cell.verdict in LOST:
        return (cell.verdict, "", root(cell.error.message))
    if cell.verdict == "fail":
        return (cell.verdict, cell.fail_class, cell.mistake or "")
    return (cell.verdict, "", re.sub(r"\d+", "#", first_line(cell.reason)))


def _finding(cells: list[Cell], cause: str, told: tuple[str, str] | None = None) -> Finding:
    """One finding for a cause, or for none (""), in the words that are told already, if there are any."""
    first = cells[0]
    sentence, remedy = told or (_sentence(cells, cause) if cause else _without_cause(first))
    return Finding(
        subject=first.subject,
        kind=kind_of(first),
        sentence=sentence,
        remedy=remedy,
        explained=bool(cause),
        cells=tuple(cell.key for cell in cells),
    )


def _without_cause(cell: Cell) -> tuple[str, str]:
    """Sentence and remedy where no decision is the cause: of a call that was to be refused, its mistake."""
    if cell.fail_class == NOT_REFUSED and cell.mistake is not None:
        refusal = REFUSALS[cell.mistake]
        return refusal.sentence, refusal.remedy
    return what_happened(cell), ""
