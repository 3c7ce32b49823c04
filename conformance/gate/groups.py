"""Changes of one kind, one cause and one upgrade, with the sentence that tells them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from conformance.gate.change import KINDS, Change
from conformance.gate.side import Observed, Side
from conformance.gate.ways import Ways, ways_of
from conformance.spec.counting import counted


@dataclass(frozen=True)
class Group:
    """
    Cells that changed for one reason.

    before, now: versions of the distributions that differ, or the subject where none does. sentence: the whole, in
    words.
    """

    kind: str
    sentence: str
    before: Mapping[str, str]
    now: Mapping[str, str]
    ways: Ways
    changes: tuple[Change, ...]

    @property
    def subjects(self) -> tuple[str, ...]:
        """Who changed."""
        return tuple(sorted({change.subject for change in self.changes}))

    @property
    def cases(self) -> int:
        """How many cases changed."""
        return len({change.case for change in self.changes})

    def record(self, sources: Mapping[str, str]) -> dict[str, Any]:
        """For comparison.json."""
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


def group(changes: Iterable[Change], base: Side, candidate: Side) -> tuple[Group, ...]:
    """Group changes; the gravest kind first, then the largest group."""
    changes = list(changes)
    ways = ways_of(changes)
    gathered: dict[tuple[Any, ...], list[Change]] = {}
    for change in changes:
        found = ways[change.case, change.subject]
        upgrade = _upgrade(change, base, candidate)
        who = "" if upgrade[1] else change.subject
        key = (change.kind, found.before, found.now, tuple(upgrade[0].items()), tuple(upgrade[1].items()), who)
        gathered.setdefault(key, []).append(change)
    groups = [_group(tuple(found), ways, base, candidate) for found in gathered.values()]
    order = list(KINDS)
    return tuple(sorted(groups, key=lambda g: (order.index(g.kind), -len(g.changes), g.sentence)))


def _upgrade(change: Change, base: Side, candidate: Side) -> tuple[dict[str, str], dict[str, str]]:
    """The distributions of a subject that differ, as they were and as they are."""
    subject = change.subject
    sides = (base.circumstances(subject, change.base), candidate.circumstances(subject, change.candidate))
    before, now = (side.versions if side else {} for side in sides)
    names = sorted(name for name in before.keys() & now.keys() if before[name] != now[name])
    framework = subject.partition(".")[0]
    names.sort(key=lambda name: name != framework)
    return {name: before[name] for name in names}, {name: now[name] for name in names}


def _group(changes: tuple[Change, ...], ways: Mapping[tuple[str, str], Ways], base: Side, candidate: Side) -> Group:
    first = changes[0]
    found = ways[first.case, first.subject]
    if any(ways[change.case, change.subject].condition != found.condition for change in changes):
        found = replace(found, condition="")
    before, now = _upgrade(first, base, candidate)
    said = _sentence(changes, found, before, now)
    return Group(first.kind, said, before, now, found, changes)


def _sentence(changes: tuple[Change, ...], ways: Ways, before: Mapping[str, str], now: Mapping[str, str]) -> str:
    kind, subjects = changes[0].kind, sorted({change.subject for change in changes})
    who = ", ".join(f"{name} {version}" for name, version in now.items()) or subjects[0]
    was = _was(before, now)
    only = f" ({ways.condition})" if ways.condition else ""
    return f"{who}: {_what(kind, ways, was)}{only}: {_number(changes)}"


def _was(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Where the other way was seen: the version where it is one distribution, else both by name."""
    if not now:
        return "before"
    return f"in {next(iter(before.values()))}" if len(now) == 1 else f"in {', '.join(map(' '.join, before.items()))}"


def _what(kind: str, ways: Ways, was: str) -> str:
    if kind in ("added", "deleted", "case_changed", "judge_changed"):
        return KINDS[kind]
    if kind == "drifted":
        return f"{ways.now_text} than {was}"
    if ways.short:
        return f"{ways.short[0]}, was {ways.short[1]} {was}"
    return f"it {ways.now_text}; {was} it {_past(ways.before_text)}"


def _past(text: str) -> str:
    return "conformed" if text == "conforms" else text


def _number(changes: tuple[Change, ...]) -> str:
    cases, subjects = len({c.case for c in changes}), len({c.subject for c in changes})
    told = counted(cases, "case")
    return told if subjects == 1 else f"{told} on {subjects} subjects"
