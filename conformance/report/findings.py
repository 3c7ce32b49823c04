"""Why a run does not conform: its rejected verdicts grouped by cause, each cause in words."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from types import MappingProxyType
from weakref import WeakKeyDictionary

from conformance.deviations.catalogue import find
from conformance.diagnosis.explanation import NON_REPRODUCIBLE, fewest
from conformance.diagnosis.weight_facts import without_places
from conformance.engine.logged_cell import LoggedCell, LoggedRelation
from conformance.engine.records import Key, LoggedCause, LoggedDiagnosis, Tie, native
from conformance.engine.run_folder import Run
from conformance.report.counts import first_line, kind_of, what_happened
from conformance.spec.refusals import REFUSALS
from conformance.spec.texts import counted
from conformance.verdicts.verdict import LOST, NOT_REFUSED, root


@dataclass(frozen=True)
class Finding:
    """
    One cause of rejected verdicts of one subject, in words, and what to change.

    explained: whether a cause is named. cells: the rejected cells, the simplest call first if a diagnosis explains
    them. ambiguous: other causes that explain them as well, in sentences. seen: for a cause found by repeating calls,
    how the replies to the example differed. ways: decisions and names that the cause consists of, if it has no
    condition. fail_otherwise: the number of failing calls in which the cause would show and that it does not explain.
    facts: if no cause is named, what was measured of these calls, in sentences.
    """

    subject: str
    kind: str
    sentence: str
    remedy: str
    explained: bool
    cells: tuple[Key, ...]
    ambiguous: tuple[str, ...] = ()
    seen: str = ""
    ways: tuple[tuple[str, str], ...] = ()
    fail_otherwise: int = 0
    facts: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """The number of verdicts."""
        return len(self.cells)

    @property
    def example(self) -> Key:
        """The first cell, which is the simplest."""
        return self.cells[0]

    @property
    def forms(self) -> str:
        """What follows the name of the subject: " and its dense form" if cells of both are merged, else ""."""
        return " and its dense form" if any(subject != self.subject for _, subject in self.cells) else ""

    @property
    def full_sentence(self) -> str:
        """The sentence, followed by what was seen in the example, or by what speaks against the cause."""
        if self.fail_otherwise:
            calls = counted(self.fail_otherwise, "other failing call")
            return f"{self.sentence}, but this does not explain {calls} in which it would show"
        return f"{self.sentence}: {self.seen}" if self.seen else self.sentence


# How a remedy begins that changes the function itself; any other remedy changes the call.
IN_FUNCTION = "in the function, "


def advice(remedy: str) -> str:
    """A remedy with its label: "fix: ..." if it changes the function, "workaround: ..." if it changes the call."""
    return f"{'fix' if IN_FUNCTION in remedy else 'workaround'}: {remedy}" if remedy else ""


def finding_text(finding: Finding) -> str:
    """A finding in one line, with its facts."""
    return "; ".join((first_words(finding), *finding.facts))


def first_words(finding: Finding) -> str:
    """What is said of a finding before its facts."""
    verdicts = f"{counted(finding.count, 'verdict')} of {finding.subject}{finding.forms}"
    what_to_do = f"; {advice(finding.remedy)}" if finding.remedy else ""
    if not finding.explained:
        return f"{verdicts} ({unexplained_kind(finding)}): {finding.sentence}{what_to_do}"
    return f"1 cause explains {verdicts}: it {finding.full_sentence}{what_to_do}"


# Class of a fail -> how it differs, in words that follow "fail: ".
KINDS = {
    "precision": "could be rounding",
    "impossible": "more than rounding",
    "semantic": "a known cause would explain this failure, but other calls rule it out",
    "invariant": "calls that must give equal results give different ones",
    "nondeterministic": "differs from call to call",
    "order_dependent": "depends on earlier calls",
    NOT_REFUSED: "no exception, where one is due",
}


def kind_words(kind: str) -> str:
    """A kind of failure, such as `fail, impossible`, in words."""
    verdict, _, klass = kind.partition(", ")
    return f"{verdict}: {KINDS.get(klass, klass)}" if klass else verdict


def unexplained_kind(finding: Finding) -> str:
    """The kind of a finding without a cause, in words."""
    wrong_numbers = finding.kind.startswith("fail") and not finding.kind.endswith(NOT_REFUSED)
    return f"{kind_words(finding.kind)}; no cause found" if wrong_numbers else kind_words(finding.kind)


# Maximum number of broken relations that are reported of calls without a cause.
MAX_RELATIONS = 2

# Relations about which measured weights say more.
OF_WEIGHTS = frozenset({"visible_keys", "last_key"})

# Figures that depend on the sizes of a call: phrases that differ only in them are the same phrase.
FIGURES = re.compile(r"\d+ of \d+|-?\d+\.\d+(?:e-?\d+)?|1/\d+")


def most_common(read: Iterable[Sequence[str]]) -> tuple[str, int]:
    """
    The phrase that more than half of the calls share, and how many share it; ("", 0) if there is none.

    If they share none, phrases without places are compared. Of phrases that equally many calls share, the one that a
    later call shares is taken, then the plainest. Figures that differ between calls are all listed. read: for each call
    that was read, those with the fewest weights first, every phrase that is certain, the plainest first.
    """
    read = list(read)
    return _most_common(read) or _most_common([list(map(without_places, phrases)) for phrases in read]) or ("", 0)


def _most_common(read: Sequence[Sequence[str]]) -> tuple[str, int] | None:
    calls = [{FIGURES.sub("#", phrase): phrase for phrase in reversed(phrases)} for phrases in read]
    ranks = [{pattern: rank for rank, pattern in enumerate(reversed(call))} for call in calls]
    common = {pattern: [call[pattern] for call in calls if pattern in call] for call in calls for pattern in call}
    frequent = [pattern for pattern, phrases in common.items() if 2 * len(phrases) > len(calls)]
    if not frequent:
        return None
    last = {pattern: number for number, call in enumerate(calls) for pattern in call}
    best = min(
        frequent,
        key=lambda pattern: (-len(common[pattern]), -last[pattern], sum(rank.get(pattern, 0) for rank in ranks)),
    )
    figures = zip(*(FIGURES.findall(phrase) for phrase in common[best]), strict=True)
    filled = iter([" or ".join(dict.fromkeys(each)) for each in figures])
    return FIGURES.sub(lambda _: next(filled), common[best][0]), len(common[best])


# Class of a fail that is found by repeating calls -> what to change.
LOOK_FOR = {
    "nondeterministic": "in the function, disable dropout if it uses any; otherwise look for a race "
    "condition or uninitialised memory",
    "order_dependent": "in the function, look for a cache whose lookup key leaves out an input (such as the "
    "values of a mask); if there is no such cache, look for a buffer that one call writes and the next one reads",
}


# Every report of a run shows the same findings, so they are found once.
_KNOWN: WeakKeyDictionary[Run, Sequence[Finding]] = WeakKeyDictionary()


def findings(run: Run) -> Sequence[Finding]:
    """
    Group the rejected verdicts by subject and cause: explained causes first, then by number of verdicts.

    Causes are those of the subject's diagnosis. A cell that the diagnosis does not mention (it has no reply, or the run
    was interrupted after a relation between replies broke) goes to a cause of the diagnosis that also explains it, else
    to the cause that explains most of the subject's other such cells.
    """
    if run not in _KNOWN:
        _KNOWN[run] = _findings(run)
    return _KNOWN[run]


def _findings(run: Run) -> Sequence[Finding]:
    rejected = {cell.key: cell for cell in rejected_cells(run)}
    found = [finding for diagnosis in run.diagnoses.values() for finding in _diagnosed(run, rejected, diagnosis)]
    grouped = {key for finding in found for key in finding.cells}
    rest = [cell for key, cell in rejected.items() if key not in grouped]
    where = {
        (case, each.subject): each.unexplained_where for each in run.diagnoses.values() for case in each.unexplained
    }
    where |= {
        (case, each.subject): lost.condition
        for each in run.diagnoses.values()
        for lost in each.errors
        for case in lost.cells
    }
    found += _non_reproducible([cell for cell in rest if cell.fail_class in NON_REPRODUCIBLE])
    rest = [cell for cell in rest if cell.fail_class not in NON_REPRODUCIBLE]
    found += _undiagnosed([cell for cell in rest if cell.key not in where], _reported(run))
    found += _unexplained([cell for cell in rest if cell.key in where], where)
    return tuple(sorted(_merged(found), key=lambda finding: (not finding.explained, -finding.count)))


def _merged(found: Iterable[Finding]) -> Iterator[Finding]:
    """
    Merge findings with the same cause of the same subject; its dense form is reported under the native name.

    One cause can appear twice: in the diagnosis, and where a relation between replies broke.
    """
    groups: dict[tuple[str, ...], list[Finding]] = {}
    for number, each in enumerate(sorted(found, key=lambda each: each.subject != native(each.subject))):
        key = (native(each.subject), each.sentence, each.remedy) if each.explained else (str(number),)
        groups.setdefault(key, []).append(each)
    for first, *others in groups.values():
        yield replace(first, cells=(*first.cells, *(cell for other in others for cell in other.cells)))


def findings_of(run: Run) -> dict[Key, list[Finding]]:
    """The findings that each rejected verdict belongs to: several if it shows several deviations."""
    found: dict[Key, list[Finding]] = {}
    for finding in findings(run):
        for key in finding.cells:
            found.setdefault(key, []).append(finding)
    return found


def _diagnosed(run: Run, rejected: Mapping[Key, LoggedCell], diagnosis: LoggedDiagnosis) -> Iterator[Finding]:
    causes = Counter(case for cause in diagnosis.reported for case in cause.cells)
    for cause in diagnosis.reported:
        found = (key for case in cause.cells if (key := (case, diagnosis.subject)) in rejected)
        # The first one is the example: a call whose output is wrong itself, and for no other cause if possible.
        if keys := tuple(sorted(found, key=lambda key: (not _is_wrong_itself(rejected[key]), causes[key[0]]))):
            sentence = _stated(run, diagnosis, cause)
            yield Finding(
                subject=diagnosis.subject,
                kind=kind_of(rejected[keys[0]]),
                sentence=sentence,
                remedy=cause.remedy,
                explained=True,
                cells=keys,
                ambiguous=tuple(_ambiguity(tie, cause) for tie in cause.ties),
                ways=tuple(cause.decisions.items()) if sentence == cause.sentence else (),
                fail_otherwise=cause.fail_otherwise,
            )


def _is_wrong_itself(cell: LoggedCell) -> bool:
    """Whether an output of the call itself is wrong, which makes a better example than a broken relation."""
    return any(output.verdict == "fail" for output in cell.outputs)


def conditioned(sentence: str, condition: str) -> str:
    """A sentence followed by the condition under which it holds."""
    return f"{sentence}, {condition}" if condition else sentence


def _stated(run: Run, diagnosis: LoggedDiagnosis, cause: LoggedCause) -> str:
    """The sentence of a cause, with its condition unless the native form shows the same cause without a condition."""
    form = run.diagnoses.get(native(diagnosis.subject), diagnosis)
    is_general = any(each.sentence == cause.sentence and not each.condition for each in form.reported)
    return conditioned(cause.sentence, "" if is_general else cause.condition)


def _ambiguity(tie: Tie, cause: LoggedCause) -> str:
    """Another possible cause, its remedy unless the cause has the same, and the case that would distinguish the two."""
    case = f"{tie.separated_by} would distinguish them" if tie.separated_by else "no case distinguishes the two"
    what_to_do = f" ({advice(tie.remedy)})" if tie.remedy not in ("", cause.remedy) else ""
    return f"it {conditioned(tie.sentence, tie.condition)}{what_to_do}; {case}"


def _reported(run: Run) -> Mapping[str, Mapping[str, tuple[str, str]]]:
    """Subject -> `decision=name` -> sentence and remedy, for each cause of its diagnosis that is a single decision."""
    return {
        each.subject: {
            "=".join(way): (_stated(run, each, cause), cause.remedy)
            for cause in reversed(each.reported)
            if len(cause.decisions) == 1
            for way in cause.decisions.items()
        }
        for each in run.diagnoses.values()
    }


def _undiagnosed(cells: list[LoggedCell], reported: Mapping[str, Mapping[str, tuple[str, str]]]) -> list[Finding]:
    """
    Findings for cells that no diagnosis mentions, as few causes as possible.

    A cause that is already reported for the subject is preferred, else the causes that explain each cell alone. A
    reported cause keeps its condition: a relation breaks if the changed call meets the condition and the call does not.
    """
    by_subject: dict[str, dict[Key, list[str]]] = {}
    for cell in cells:
        alone = _explained_by(cell)
        known = [cause for cause in alone if cause in reported.get(cell.subject, ())]
        by_subject.setdefault(cell.subject, {})[cell.key] = known or alone
    causes = {key: cause for some in by_subject.values() for key, cause in fewest(some).items()}
    groups: dict[tuple[str, str], list[LoggedCell]] = {}
    for cell in cells:
        if cell.key in causes:
            groups.setdefault((cell.subject, causes[cell.key]), []).append(cell)
    explained = [
        _finding(some, cause, reported.get(subject, {}).get(cause)) for (subject, cause), some in groups.items()
    ]
    return explained + _unexplained([cell for cell in cells if cell.key not in causes])


def _non_reproducible(cells: list[LoggedCell]) -> Iterator[Finding]:
    """
    Findings for causes found by repeating calls: one for each subject and class.

    Two random replies in a row may be equal by chance. So if most calls of a subject are nondeterministic, its few
    order-dependent ones count as nondeterministic too.
    """
    count = Counter((cell.subject, cell.fail_class) for cell in cells)
    groups: dict[tuple[str, str], list[LoggedCell]] = {}
    for cell in cells:
        random = (cell.subject, "nondeterministic")
        own = (cell.subject, cell.fail_class)
        groups.setdefault(random if count[random] > count[own] else own, []).append(cell)
    for (subject, klass), some in groups.items():
        of_class = [cell for cell in some if cell.fail_class == klass]
        first = next((cell for cell in of_class if cell.repeats.reason), of_class[0])
        yield Finding(
            subject=subject,
            kind=kind_of(first),
            sentence=f"{NON_REPRODUCIBLE[klass]} ({klass.replace('_', ' ')})",
            remedy=LOOK_FOR[klass],
            explained=True,
            cells=(first.key, *(cell.key for cell in some if cell is not first)),
            seen=first.repeats.reason,
        )


def _unexplained(cells: list[LoggedCell], where: Mapping[Key, str] = MappingProxyType({})) -> list[Finding]:
    """Findings for cells without a cause: those that failed in the same way, with what they have in common."""
    groups: dict[tuple[str, str, str, str], list[LoggedCell]] = {}
    for cell in cells:
        groups.setdefault((cell.subject, *_cause(cell)), []).append(cell)
    return [_described(_finding(some, ""), where, some) for some in groups.values()]


def _described(finding: Finding, where: Mapping[Key, str], cells: list[LoggedCell]) -> Finding:
    """Add the facts: where the failures are, what the weights are, what changes them, what explains each cell alone."""
    measured = sorted(
        (cell for cell in cells if cell.pattern.odd is not None), key=lambda cell: cell.pattern.elements or 0
    )
    phrase, calls = most_common(cell.pattern.odd or () for cell in measured)
    which = "the weights that it returns" if _are_returned(measured) else "its weights"
    weights = f"{which} (in {calls} of {counted(len(measured), 'measured call')}) {phrase}" if phrase else ""
    alone = _contradicted_cause(cells) if finding.example in where else ""
    condition = where.get(finding.example, "")
    fails = f"it fails {condition}" if condition else ""
    relations = [
        relation
        for cell in cells
        for relation in cell.invariants or ()
        if not (relation.sentence and relation.sentence in finding.sentence)
        and not (phrase and relation.name in OF_WEIGHTS)
    ]
    facts = (fails, weights, *islice(broken(relations), MAX_RELATIONS), alone)
    return replace(finding, facts=tuple(each for each in facts if each))


def broken(relations: Iterable[LoggedRelation]) -> Iterator[str]:
    """
    The relations that do not hold between the reply to a call and to a changed call, in words.

    Those that are broken most often come first, each with the number of calls in which it was tested.
    """
    tested = [each for each in relations if each.found in ("holds", "broken")]
    calls = Counter(each.name for each in tested)
    found = Counter((each.name, each.sentence) for each in tested if each.found == "broken")
    for name, sentence in sorted(found, key=lambda relation: -found[relation] / calls[relation[0]]):
        yield f"it {sentence} (in {found[name, sentence]} of {counted(calls[name], 'tested call')})"


def _are_returned(measured: Iterable[LoggedCell]) -> bool:
    """Whether facts about weights are about the returned ones, because the output of every call is right."""
    return not any(
        output.output == "output" and output.verdict == "fail" for cell in measured for output in cell.outputs
    )


def _contradicted_cause(cells: list[LoggedCell]) -> str:
    """A cause that would explain every one of these cells but that other calls contradict; "" if there is none."""
    common = [cause for cause in _explained_by(cells[0]) if all(cause in _explained_by(cell) for cell in cells)]
    if not common:
        return ""
    return f"these calls alone suggest that it {_sentence(cells, common[0])[0]}, but other calls contradict this"


def _explained_by(cell: LoggedCell) -> list[str]:
    """Every cause that explains a cell, as `decision=name`, the preferred one first."""
    if cell.explanation is None:
        return []
    return [f"{cell.explanation.decision}={cell.explanation.name}", *cell.ties]


def _sentence(cells: list[LoggedCell], cause: str) -> tuple[str, str]:
    """Sentence and remedy of a cause: from a cell whose preferred cause it is, else from the catalogue."""
    for cell in cells:
        if cell.explanation is not None and _explained_by(cell)[0] == cause:
            return cell.explanation.sentence, cell.explanation.remedy
    decision, _, name = cause.partition("=")
    try:
        row = find(decision, name)
    except KeyError:
        return f"makes the choice {decision}={name}", ""
    return row.sentence, row.remedy


def rejected_cells(run: Run) -> list[LoggedCell]:
    """The rejected cells in the order of the log."""
    return [run.cells[key] for key in run.judged if key in run.rejected]


def _cause(cell: LoggedCell) -> tuple[str, str, str]:
    if cell.error is not None and cell.verdict in LOST:
        return (cell.verdict, "", root(cell.error.message))
    if cell.verdict == "fail":
        return (cell.verdict, cell.fail_class, cell.mistake or "")
    return (cell.verdict, "", re.sub(r"\d+", "#", first_line(cell.reason)))


def _finding(cells: list[LoggedCell], cause: str, reported: tuple[str, str] | None = None) -> Finding:
    """
    One finding for a cause, or for none ("").

    reported: sentence and remedy, if they are reported already.
    """
    first = cells[0]
    sentence, remedy = reported or (_sentence(cells, cause) if cause else _without_cause(first))
    return Finding(
        subject=first.subject,
        kind=kind_of(first),
        sentence=sentence,
        remedy=remedy,
        explained=bool(cause),
        cells=tuple(cell.key for cell in cells),
    )


def _without_cause(cell: LoggedCell) -> tuple[str, str]:
    """Sentence and remedy if no decision is the cause; for a call that must be refused, those of its mistake."""
    if cell.fail_class == NOT_REFUSED and cell.mistake is not None:
        refusal = REFUSALS[cell.mistake]
        return refusal.sentence, refusal.remedy
    return what_happened(cell), ""
