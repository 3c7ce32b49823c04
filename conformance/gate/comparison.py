"""Compares two sides: what changed, in groups with sentences, and the exit code that follows."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from conformance.engine.records import Key, native
from conformance.gate.change import DECLINED, DRIFT, FAILING, FLOOR, KINDS, Change, change_of
from conformance.gate.change_groups import ChangeGroup, group_changes
from conformance.gate.decision import CONFORMS, INCOMPLETE, NOTHING, REJECTED
from conformance.gate.known import versions_hold
from conformance.gate.observations import Circumstances, ComparedRun, Observed
from conformance.spec.texts import are, counted

# Schema version of comparison.json (docs/comparing.md).
SCHEMA = 1

# Kinds of changes where no verdicts were compared.
ONE_SIDED = ("added", "deleted", "case_changed", "judge_changed")


@dataclass(frozen=True)
class Comparison:
    """
    What changed from base to candidate.

    groups: the most severe first. compared: number of cells that both sides have, of subjects that work on both.
    judged: number of these that were judged on both sides. unchanged: number of the judged cells that show the same.
    declined: number of the compared cells that both sides decline. red: number of the compared cells that neither
    side's gate accepts, for the same reason. incomplete: what is missing for a verdict. notes: what a reader has to
    know, each once. skip_budget: number of cells that may lose their support.
    """

    base: ComparedRun
    candidate: ComparedRun
    groups: tuple[ChangeGroup, ...]
    compared: int
    unchanged: int
    incomplete: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    skip_budget: int = 0
    red: int = 0
    judged: int = 0
    declined: int = 0

    @property
    def counts(self) -> dict[str, int]:
        """The number of changed cells of each kind that occurs, the most severe first."""
        tally = Counter(change.kind for found in self.groups for change in found.changes)
        return {kind: tally[kind] for kind in KINDS if tally[kind]}

    @property
    def rejected(self) -> tuple[ChangeGroup, ...]:
        """The groups that the gate does not accept."""
        spared = {"support_lost"} if self.counts.get("support_lost", 0) <= self.skip_budget else set()
        return tuple(found for found in self.groups if found.kind in FAILING and found.kind not in spared)

    @property
    def exit_code(self) -> int:
        """The exit code, as in docs/exit-codes.md; precedence 7, 1, 5, 0."""
        if self.incomplete:
            return INCOMPLETE
        if self.rejected:
            return REJECTED
        return NOTHING if self.says_nothing else CONFORMS

    @property
    def says_nothing(self) -> bool:
        """Whether no cell was judged on both sides and none changed."""
        return not self.judged and not any(found.kind not in ONE_SIDED for found in self.groups)

    @property
    def headline(self) -> str:
        """The first line of the report: what changed, the most severe first."""
        if self.incomplete:
            so_far = f"; so far: {self._summary()}" if self.groups else ""
            return f"Incomplete: {self.incomplete[0]}{so_far}"
        if not self.compared:
            return "Nothing was compared: the two sides have no case and subject in common"
        if self.says_nothing:
            return f"Nothing was compared: {counted(self.compared, 'verdict')}, none of them judged on both sides"
        return f"{self._summary()}; {are(self.red, 'verdict')} red on both sides" if self.red else self._summary()

    def _summary(self) -> str:
        if not self.groups:
            subjects = len(_subjects(self.candidate))
            judged = f"{counted(self.unchanged, 'verdict')} on {counted(subjects, 'subject')}"
            return f"Unchanged: {judged}, judged on both sides"
        first = (self.rejected or self.groups)[0]
        others = len(self.groups) - 1
        more = f" (and {counted(others, 'other change')})" if others else ""
        change = f"{title(first.kind)}: {first.sentence}{more}"
        return change if self.rejected else f"Nothing regressed. {change}"

    def still(self) -> Iterator[dict[str, Any]]:
        """The cells that show the same on both sides; the record has only their number."""
        changed = {(change.case, change.subject) for found in self.groups for change in found.changes}
        for key, now in self.candidate.cells.items():
            works = self.base.works(key[1]) and self.candidate.works(key[1])
            if works and key in self.base.cells and key not in changed:
                source = self.candidate.sources.get(key[0], "")
                about = {"case": key[0], "subject": key[1], "source": source, "verdict": now.verdict}
                yield about | {"red": _red(now) and _red(self.base.cells[key])}

    def record(self) -> dict[str, Any]:
        """The content of comparison.json (docs/comparing.md)."""
        sources = {**self.base.sources, **self.candidate.sources}
        code = self.exit_code
        return {
            "schema": SCHEMA,
            "headline": self.headline,
            "exit_code": code,
            "conforms": code == CONFORMS,
            "complete": code != INCOMPLETE,
            "base": _about(self.base),
            "candidate": _about(self.candidate),
            "settings": {"drift": DRIFT, "floor": FLOOR, "skip_budget": self.skip_budget},
            "counts": self.counts,
            "compared": self.compared,
            "judged": self.judged,
            "unchanged": self.unchanged,
            "declined": self.declined,
            "red_on_both": self.red,
            "incomplete": list(self.incomplete),
            "notes": list(self.notes),
            "groups": [
                {**found.record(sources), "rejected": found in self.rejected, "meaning": KINDS[found.kind]}
                for found in self.groups
            ],
        }


def title(kind: str) -> str:
    """A kind of change as a heading."""
    return {"fails_otherwise": "Fails in another way than before"}.get(kind, kind.replace("_", " ").capitalize())


def compare(base: ComparedRun, candidate: ComparedRun, *, skip_budget: int = 0) -> Comparison:
    """Compare two sides, cell by cell."""
    changes: list[Change] = []
    compared = judged = unchanged = declined = red = 0
    for key in dict.fromkeys((*candidate.cells, *base.cells)):
        if not (base.works(key[1]) and candidate.works(key[1])):
            continue
        before, now = base.cells.get(key), candidate.cells.get(key)
        if before is None or now is None:
            changes += _one_sided(key, before, now, base, candidate)
            continue
        compared += 1
        found = _compared(
            key,
            before,
            now,
            same_machine=_same_machine(key[1], before, base, candidate),
            announced=_announced(key[1], before, now, base),
        )
        changes += found
        both = before.judged and now.judged
        judged += both
        unchanged += both and not found
        declined += before.verdict == now.verdict == DECLINED and not found
        red += not found and _red(before) and _red(now)
    return Comparison(
        base,
        candidate,
        group_changes(changes, base, candidate),
        compared,
        unchanged,
        (*base.missing, *candidate.missing, *_absent(base, candidate), *_absent(candidate, base)),
        tuple(_notes(base, candidate)),
        skip_budget,
        red,
        judged,
        declined,
    )


def _red(observed: Observed) -> bool:
    """Whether the gate of its own run rejects it."""
    return not (observed.conforms or observed.known or observed.verdict == "unsupported")


def _announced(subject: str, before: Observed, now: Observed, base: ComparedRun) -> bool:
    """Whether the change is announced: a known deviation accepts the candidate, and its versions exclude the base."""
    circumstances = base.circumstances(subject, before)
    return bool(now.since) and circumstances is not None and not versions_hold(now.since, circumstances.versions)


def _compared(key: Key, before: Observed, now: Observed, *, same_machine: bool, announced: bool) -> list[Change]:
    case, subject = key
    if before.problem and now.problem and before.problem != now.problem:
        return [Change("case_changed", case, subject, before, now)]
    found = change_of(before, now, same_machine=same_machine)
    if found is None:
        return []
    kind, text = found
    if before.judge != now.judge and kind != "drifted":
        return [Change("judge_changed", case, subject, before, now, kind)]
    if kind in FAILING and announced:
        kind = "accepted"
    return [Change(kind, case, subject, before, now, text)]


def _one_sided(
    key: Key, before: Observed | None, now: Observed | None, base: ComparedRun, candidate: ComparedRun
) -> Iterable[Change]:
    """
    The change for a cell that one side lacks: added or deleted.

    If the cell was requested on that side, there is no change: it is reported as missing. If its subject is no longer
    offered, its support is lost; also if the call has no dense form any more, because it uses only the argument for all
    masks now. What only the thorough one of two runs asks is a note.
    """
    case, subject = key
    if now is None and subject in candidate.not_offered:
        lost = Observed(DECLINED, text=f"not offered, because it lacks {candidate.not_offered[subject]}")
        return [Change("support_lost", case, subject, before, lost)]
    if before is not None and before.verdict != DECLINED and _has_no_dense_form(candidate, case, subject):
        lost = Observed(DECLINED, text="the call uses only the argument for all masks now, so it has no dense form")
        return [Change("support_lost", case, subject, before, lost)]
    other = candidate if now is None else base
    if (case in other.cases and other.asks(subject)) or _is_shorter(other, base, candidate):
        return []
    return [Change("deleted" if now is None else "added", case, subject, before, now)]


def _has_no_dense_form(side: ComparedRun, case: str, subject: str) -> bool:
    """Whether the subject is a dense form, and a complete run has a reply to this call of the native subject only."""
    if subject == native(subject) or not side.asks(subject) or side.missing or (case, subject) in side.cells:
        return False
    plain = side.cells.get((case, native(subject)))
    return plain is not None and plain.judged


def _is_shorter(side: ComparedRun, base: ComparedRun, candidate: ComparedRun) -> bool:
    """Whether a side left out what only a thorough run asks, while the other side asked it."""
    return side.left_out > 0 and 0 in (base.left_out, candidate.left_out)


def _absent(side: ComparedRun, other: ComparedRun) -> list[str]:
    """Report cells that `other` has and `side` lacks although they were requested."""
    absent = [key for key in other.cells if key not in side.cells and key[0] in side.cases and key[1] in side.asked]
    absent = [key for key in absent if not key[1].removesuffix("]").endswith("dense")]  # these depend on the route
    if not absent:
        return []
    case, subject = absent[0]
    return [f"{side.name}: {are(len(absent), 'verdict')} missing, first {case} on {subject}: run it again"]


def _same_machine(subject: str, before: Observed | None, base: ComparedRun, candidate: ComparedRun) -> bool:
    first, second = base.circumstances(subject, before), candidate.asked.get(subject)
    return first is not None and second is not None and first.machine == second.machine


def _notes(base: ComparedRun, candidate: ComparedRun) -> Iterable[str]:
    both = base.cells.keys() & candidate.cells.keys()
    if any(base.cells[key].judge != candidate.cells[key].judge for key in both):
        yield "the judging code differs, so changed verdicts are not compared; judge both sides with the same version"
    subjects = sorted({subject for _, subject in both})
    foreign = sorted({key[1] for key in both if not _same_machine(key[1], base.cells[key], base, candidate)})
    if foreign:
        which = "every subject" if foreign == subjects else ", ".join(foreign)
        yield f"bits are not comparable for {which}: platform, CPU features, threads, device or math libraries differ"
    yield from _left_out(base, candidate)
    yield from sorted({text for name in subjects for text in _settings(base.asked[name], candidate.asked[name])})
    for name in subjects:
        before, now = base.asked[name].adapter, candidate.asked[name].adapter
        if before and now and before != now:
            own = f"adapter of {name} (or a module beside it)"
            what = f"function {name} (or the way it is called)" if candidate.is_check else own
            yield f"the {what} differs between the two sides: it may have caused the changes"


def _left_out(base: ComparedRun, candidate: ComparedRun) -> Iterator[str]:
    for shorter, longer in ((base, candidate), (candidate, base)):
        only = longer.cells.keys() - shorter.cells.keys()
        if only and _is_shorter(shorter, base, candidate):
            number = are(len(only), "verdict")
            yield f"{number} only in {longer.name}, a thorough run, and not compared: run both sides with --thorough"


def _settings(base: Circumstances, candidate: Circumstances) -> Iterator[str]:
    """Report environment variables that differ, if both sides recorded them."""
    if not (base.settings and candidate.settings):
        return
    for name in sorted({*base.settings, *candidate.settings}):
        before, now = base.settings.get(name, "not set"), candidate.settings.get(name, "not set")
        if before != now:
            yield f"the environment differs: {name} is {now}, was {before}"


def _about(side: ComparedRun) -> dict[str, Any]:
    versions = {name: dict(about.versions) for name, about in side.asked.items()}
    return {"name": side.name, "subjects": dict(sorted(versions.items()))}


def _subjects(side: ComparedRun) -> set[str]:
    return {subject for _, subject in side.cells}
