"""Why a run does not conform: its rejected verdicts by their causes, each cause in words."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from conformance.deviations.catalogue import find
from conformance.diagnosis.cell_cause import fewest
from conformance.diagnosis.explanation import NON_REPRODUCIBLE
from conformance.engine.records import Cell, Diagnosis, Key, Tie, native
from conformance.engine.run_folder import Run
from conformance.report.counts import first_line, kind_of, what_happened
from conformance.spec.refusals import REFUSALS
from conformance.spec.texts import counted
from conformance.verdicts.verdict import LOST, NOT_REFUSED, root


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


# They depend on the sizes of a call: what differs in them alone is the same.
FIGURES = re.compile(r"\d+ of \d+|-?\d+\.\d+(?:e-?\d+)?|1/\d+")


def most_common(read: Iterable[Sequence[str]]) -> tuple[str, int]:
    """
    The phrase that most calls have, with the figures of each, and how many have it; "" where no phrase is in most.

    read: of each call that has been read all that is certain, the plainest first.
    """
    calls = [{FIGURES.sub("#", phrase): phrase for phrase in reversed(phrases)} for phrases in read]
    ranks = [{said: rank for rank, said in enumerate(reversed(call))} for call in calls]
    common = {said: [call[said] for call in calls if said in call] for call in calls for said in call}
    often = [said for said, phrases in common.items() if 2 * len(phrases) > len(calls)]
    if not often:
        return "", 0
    best = min(often, key=lambda said: (-len(common[said]), sum(rank.get(said, 0) for rank in ranks)))
    figures = zip(*(FIGURES.findall(phrase) for phrase in common[best]), strict=True)
    filled = iter([" or ".join(dict.fromkeys(each)) for each in figures])
    return FIGURES.sub(lambda _: next(filled), common[best][0]), len(common[best])


# Class of a fail that is told by repetition -> what to change.
LOOK_FOR = {
    "nondeterministic": "switch dropout off, as in inference; else look for a race or memory that nobody wrote",
    "order_dependent": "look for a cache whose key leaves something out, as what a mask holds; "
    "else for a buffer that one call leaves to the next",
}


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
    found += _non_reproducible([cell for cell in left if cell.fail_class in NON_REPRODUCIBLE])
    left = [cell for cell in left if cell.fail_class not in NON_REPRODUCIBLE]
    found += _undiagnosed([cell for cell in left if cell.key not in where], _reported(run.diagnoses.values()))
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


def _reported(diagnoses: Iterable[Diagnosis]) -> Mapping[str, Mapping[str, tuple[str, str]]]:
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


def _non_reproducible(cells: list[Cell]) -> Iterator[Finding]:
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
            sentence=f"{NON_REPRODUCIBLE[klass]} ({klass.replace('_', ' ')})",
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
    odd, calls = most_common(cell.odd_weights for cell in cells if cell.odd_weights is not None)
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
