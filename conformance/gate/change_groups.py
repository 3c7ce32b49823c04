"""Groups changes of one kind, one cause and one upgrade, with the sentence that reports each group."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from textwrap import shorten
from typing import Any

from conformance.diagnosis.explanation import CANONICAL, NON_REPRODUCIBLE, OF_NONFINITE, fewest, sentence, turned
from conformance.engine.records import Key
from conformance.gate.change import KINDS, PRECISION, Change, effective
from conformance.gate.observations import AND, INVARIANT, ComparedRun, Observed
from conformance.spec.texts import counted
from conformance.verdicts.invariants import INVARIANTS

# Maximum number of characters of a message in a sentence.
MAX_CHARACTERS_SHOWN = 160

# How a failure without an explanation differs, by its class.
DIFFERENCES = {
    "precision": "differs by more than the bound, though it could be rounding",
    "impossible": "differs by more than rounding can",
}


@dataclass(frozen=True)
class ObservedWays:
    """
    The old and the new behaviour of a changed cell.

    before, now: keys that cells with one cause share (`fully_masked_row=nan`). before_text, now_text: complete "it
    ...". short: such as ("a fully masked row is zero", "NaN"), if a single decision changed that has short names.
    condition: the condition under which the new way shows, "" if none is known.
    """

    before: str
    now: str
    before_text: str
    now_text: str
    short: tuple[str, str] | None = None
    condition: str = ""


def ways_of(changes: Iterable[Change]) -> dict[Key, ObservedWays]:
    """
    The ways of every change, with as few causes as possible.

    A cell without a diagnosis gets the way that explains most of the subject's other cells.
    """
    by_key = {(change.case, change.subject): change for change in _named_by_root(list(changes))}
    before = _chosen({key: _likely(change.base, change.candidate) for key, change in by_key.items()})
    now = _chosen({key: _likely(change.candidate, change.base) for key, change in by_key.items()})
    return {key: _ways(change, before.get(key, ""), now.get(key, "")) for key, change in by_key.items()}


def _named_by_root(changes: list[Change]) -> Iterator[Change]:
    """The changes, with one class for all exceptions with the same root; releases may change the class."""
    sides = [side for change in changes for side in (change.base, change.candidate) if side is not None]
    classes = {side.root: side.error for side in reversed(sides) if side.root}

    def named(side: Observed | None) -> Observed | None:
        return side if side is None else replace(side, error=classes.get(side.root, side.error))

    yield from (replace(change, base=named(change.base), candidate=named(change.candidate)) for change in changes)


def _likely(cell: Observed | None, other: Observed | None) -> tuple[str, ...]:
    """
    The ways of one side that are reported: the cause from the run's diagnosis, if there is one.

    Otherwise, ways of a decision that the other side takes in another way; then ways about non-finite values, which a
    reply shows by itself, while a fill with the same effect is only an inference; then all ways.
    """
    if cell is not None and cell.cause:
        return (cell.cause,)
    ways = cell.ways if cell is not None else ()
    elsewhere = {_decision(way) for way in (other.ways if other is not None else ())}
    for decisions in (elsewhere, OF_NONFINITE):
        if chosen := tuple(way for way in ways if _decision(way) in decisions):
            return chosen
    return ways


def _decision(way: str) -> str:
    return way.partition("=")[0]


def _chosen(cells: Mapping[Key, tuple[str, ...]]) -> dict[Key, str]:
    by_subject: dict[str, dict[Key, tuple[str, ...]]] = {}
    for key, ways in cells.items():
        by_subject.setdefault(key[1], {})[key] = ways
    return {key: way for found in by_subject.values() for key, way in fewest(found).items()}


def _ways(change: Change, before: str, now: str) -> ObservedWays:
    base, candidate = change.base, change.candidate
    if base is None or candidate is None:
        return ObservedWays("", "", "", "")
    if change.kind in ("drifted", "judge_changed", "case_changed"):
        return ObservedWays("", change.text, "", DRIFTS.get(change.text, ""))
    taken = [way for ways in (now, before) if ways for way in ways.split(AND)]
    decisions = [_decision(way) for way in taken if _decision(way) not in (INVARIANT, "arithmetic")]
    if not decisions and base.conforms and candidate.conforms:
        decisions = sorted(_differing(effective(base), effective(candidate)))
    first, second = _side(base, before, decisions), _side(candidate, now, decisions)
    is_diagnosed = now == candidate.ways[0] if now else not candidate.ways
    condition = candidate.condition if is_diagnosed else ""
    return ObservedWays(first[0], second[0], first[1], second[1], _short(first[0], second[0]), condition)


DRIFTS = {
    "coarser": f"computes in a narrower dtype (errors over {PRECISION:,.0f} times larger, within the bound)",
    "finer": f"computes in a wider dtype (errors over {PRECISION:,.0f} times smaller)",
    "budget": "uses a different share of the allowed error",
    "bits": "conforms with different bits",
}


def _differing(before: Mapping[str, str], now: Mapping[str, str]) -> set[str]:
    return {d for d in {*before, *now} if before.get(d, CANONICAL) != now.get(d, CANONICAL)}


def _side(observed: Observed, way: str, decisions: list[str]) -> tuple[str, str]:
    """The key and the sentence of one side."""
    if way:
        return way, _sentence(way)
    if observed.conforms and decisions:
        taken = [f"{decision}={observed.declared.get(decision, CANONICAL)}" for decision in dict.fromkeys(decisions)]
        return ", ".join(taken), " and ".join(map(_sentence, taken))
    if observed.conforms:
        return "conforms", "conforms"
    kind = f"{observed.verdict}, {observed.klass}" if observed.klass else observed.verdict
    what = observed.error or observed.not_refused
    return f"{kind}: {what}" if what else kind, _happened(observed)


def _sentence(way: str) -> str:
    """The sentence for one way or several combined ways."""
    return " and ".join(map(_single, way.split(AND)))


def _single(way: str) -> str:
    decision, _, name = way.partition("=")
    if decision == "arithmetic":
        return f"computes with less precision than declared ({name})"
    if decision == INVARIANT:
        return next((each.sentence for each in INVARIANTS if each.name == name), f"breaks the relation {name}")
    try:
        return sentence(decision, name)
    except KeyError:  # from a version with another table
        return f"has {decision} = {name}"


def _happened(observed: Observed) -> str:
    text = f": {shorten(observed.text, MAX_CHARACTERS_SHOWN, placeholder=' …')}" if observed.text else ""
    match observed.verdict:
        case "unsupported":
            return f"is declined{text}"
        case "error":
            return f"raises {observed.error or 'an error'}{text}"
        case "crash":
            return f"crashes{text}"
        case "timeout":
            return "does not reply in time"
        case "inconclusive":
            return f"cannot be judged{text}"
    differs = DIFFERENCES.get(observed.klass, "differs by more than the bound")
    unexplained = NON_REPRODUCIBLE.get(observed.klass, f"{differs}, and no single decision explains it")
    return observed.not_refused or unexplained


def _short(before: str, now: str) -> tuple[str, str] | None:
    decision, _, name = now.partition("=")
    other, _, previous = before.partition("=")
    same = decision == other and name and previous and not {",", "&"} & set(before + now)
    return turned(decision, previous, name) if same else None


@dataclass(frozen=True)
class ChangeGroup:
    """
    Cells that changed for one reason.

    sentence: reports the whole group. before, now: versions of the distributions that differ.
    """

    kind: str
    sentence: str
    before: Mapping[str, str]
    now: Mapping[str, str]
    ways: ObservedWays
    changes: tuple[Change, ...]

    @property
    def subjects(self) -> tuple[str, ...]:
        """The subjects that changed."""
        return tuple(sorted({change.subject for change in self.changes}))

    @property
    def cases(self) -> int:
        """The number of cases that changed."""
        return len({change.case for change in self.changes})

    def record(self, sources: Mapping[str, str]) -> dict[str, Any]:
        """The record for comparison.json."""
        return {
            "kind": self.kind,
            "sentence": self.sentence,
            "cases": self.cases,
            "subjects": list(self.subjects),
            "base": {"versions": dict(self.before), "way": self.ways.before, "text": self.ways.before_text},
            "candidate": {"versions": dict(self.now), "way": self.ways.now, "text": self.ways.now_text},
            "cells": [_cell(change, sources.get(change.case, "")) for change in self.changes],
        }


def _cell(change: Change, source: str) -> dict[str, Any]:
    found: dict[str, Any] = {"case": change.case, "subject": change.subject}
    for name, side in (("base", change.base), ("candidate", change.candidate)):
        if side is not None:
            found[name] = _observed(side)
    return found | ({"source": source} if source else {})


def _observed(side: Observed) -> dict[str, Any]:
    about: dict[str, Any] = {"verdict": side.verdict}
    optional = {
        "class": side.klass,
        "budget": side.budget,
        "ways": list(side.ways),
        "declared": dict(side.declared),
        "text": side.text,
        "known": side.known,
        "rerun": side.rerun,
    }
    return about | {name: value for name, value in optional.items() if value not in ("", None, [], {})}


def group_changes(changes: Iterable[Change], base: ComparedRun, candidate: ComparedRun) -> tuple[ChangeGroup, ...]:
    """Group changes; the most severe kind first, then the largest group."""
    changes = list(changes)
    ways = ways_of(changes)
    gathered: dict[tuple[Any, ...], list[Change]] = {}
    for change in changes:
        found = ways[change.case, change.subject]
        upgrade = _upgrade(change, base, candidate)
        who = "" if upgrade[1] else change.subject
        key = (change.kind, found.before, found.now, tuple(upgrade[0].items()), tuple(upgrade[1].items()), who)
        gathered.setdefault(key, []).append(change)
    groups = [_change_group(tuple(found), ways, base, candidate) for found in gathered.values()]
    order = list(KINDS)
    return tuple(sorted(groups, key=lambda g: (order.index(g.kind), -len(g.changes), g.sentence)))


def _upgrade(change: Change, base: ComparedRun, candidate: ComparedRun) -> tuple[dict[str, str], dict[str, str]]:
    """The old and the new versions of the distributions of a subject that differ."""
    subject = change.subject
    sides = (base.circumstances(subject, change.base), candidate.circumstances(subject, change.candidate))
    before, now = (side.versions if side else {} for side in sides)
    names = sorted(name for name in before.keys() & now.keys() if before[name] != now[name])
    framework = subject.partition(".")[0]
    names.sort(key=lambda name: name != framework)
    return {name: before[name] for name in names}, {name: now[name] for name in names}


def _change_group(
    changes: tuple[Change, ...], ways: Mapping[tuple[str, str], ObservedWays], base: ComparedRun, candidate: ComparedRun
) -> ChangeGroup:
    first = changes[0]
    found = ways[first.case, first.subject]
    if any(ways[change.case, change.subject].condition != found.condition for change in changes):
        found = replace(found, condition="")
    before, now = _upgrade(first, base, candidate)
    text = _group_sentence(changes, found, before, now)
    return ChangeGroup(first.kind, text, before, now, found, changes)


def _group_sentence(
    changes: tuple[Change, ...], ways: ObservedWays, before: Mapping[str, str], now: Mapping[str, str]
) -> str:
    kind, subjects = changes[0].kind, sorted({change.subject for change in changes})
    who = ", ".join(f"{name} {version}" for name, version in now.items()) or subjects[0]
    was = _was(before, now)
    return f"{who}: {_what(kind, ways, was)}: {_number(changes)}"


def _was(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Where the old way was seen: the version if one distribution differs, else all of them by name."""
    if not now:
        return "before"
    return f"in {next(iter(before.values()))}" if len(now) == 1 else f"in {', '.join(map(' '.join, before.items()))}"


def _what(kind: str, ways: ObservedWays, was: str) -> str:
    only = f", {ways.condition}" if ways.condition else ""
    if kind in ("added", "deleted", "case_changed", "judge_changed"):
        return f"{KINDS[kind]}{only}"
    if kind == "drifted":
        return f"{ways.now_text} than {was}{only}"
    if ways.short:
        return f"{ways.short[0]} ({was}: {ways.short[1]}){only}"
    before = f"{was} it {_past(ways.before_text)}"
    if ways.condition and "=" not in ways.now:  # no decision is named
        return f"{ways.condition}, it {ways.now_text}; {before}"
    return f"it {ways.now_text}{only}; {before}"


def _past(text: str) -> str:
    return "conformed" if text == "conforms" else text


def _number(changes: tuple[Change, ...]) -> str:
    cases, subjects = len({c.case for c in changes}), len({c.subject for c in changes})
    number = counted(cases, "case")
    return number if subjects == 1 else f"{number} on {subjects} subjects"
