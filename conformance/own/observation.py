"""
Decisions without consensus: which way a function takes them, read off its replies as `conformance probe` reads them.

Nothing else is ever observed: every other decision has one right answer.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product

import numpy as np

from conformance.bridge.profile import Profile
from conformance.deviations.catalogue import TABLE
from conformance.deviations.deviation import Dialect
from conformance.deviations.names import CANONICAL_NAMES
from conformance.judge.evidence import Change, Evidence
from conformance.judge.explanation import CANONICAL
from conformance.judge.joint import among
from conformance.judge.probing import common, read_under
from conformance.judge.reading import Probe, Reading
from conformance.oracle.evaluate import evaluate
from conformance.own.declaring import Declared
from conformance.own.probing import Answers, is_open, reply_of

Varying = Mapping[str, Mapping[str, str]]
"""Decision -> the name of a way in which it is taken -> a case in which it is."""


def _all_ways(decision: str) -> tuple[str, ...]:
    return tuple(row.name for row in TABLE if row.decision == decision)


WAYS: dict[str, tuple[str, ...]] = {
    "fully_masked_row": _all_ways("fully_masked_row"),
    "causal_alignment": ("bottom_right",),
    "nonfinite_key": _all_ways("nonfinite_key"),
    "nonfinite_value": _all_ways("nonfinite_value"),
    "mask_fill": ("finite_minimum",),
}
"""
The known ways of each, beside the canonical one.

Other anchors of a causal mask are off by one, and mistakes. A finite fill shows in fully masked rows alone, and there
it depends on what else masks: it comes last, where nothing else explains them.
"""

MOST = 0.75
"""Where less than this part of the replies is explained by any way, something else is wrong: see what is finite."""


@dataclass(frozen=True)
class Observed:
    """
    What was seen.

    dialect: decisions that are taken otherwise than canonical, the same way wherever they matter. varies: decisions
    that are taken now one way and now another.
    """

    dialect: Mapping[str, str]
    varies: Varying = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Asked:
    """
    A reply to a case on which there is no consensus.

    cell: the same as evidence. matters: the decisions that the case shows. changes: by which the reply is explained.
    """

    probe: Probe
    cell: Evidence
    matters: tuple[str, ...]
    changes: tuple[Change, ...] = ()


def observe(answers: Answers, profiles: Mapping[str, Profile], declared: Declared, cause: Dialect) -> Observed:
    """
    Find, for each decision that is not declared, the way that explains every reply that any way explains.

    cause: what is wrong with the function already on plain cases.
    """
    decisions = [decision for decision in WAYS if not declared.pins(decision)]
    asked = list(_asked(answers, profiles, (declared.dialect, cause), decisions))
    changes = dict.fromkeys(change for each in asked for change in each.changes)
    probes, cells = [each.probe for each in asked], [each.cell for each in asked]
    found = read_under(probes, cells, partial(among, changes=changes), decisions)
    dialect: dict[str, str] = {}
    varies: dict[str, Mapping[str, str]] = {}
    for decision in decisions:
        there = [(each, one) for each, one in zip(asked, found, strict=True) if decision in each.matters]
        seen = [one for _, one in there if one.dialect is not None]
        if len(seen) < MOST * len(there):
            way = _of_what_is_finite(decision, [each for each, _ in there])
        elif (way := _common(decision, seen)) is None:
            varies[decision] = _examples(decision, seen)
        if way not in (None, CANONICAL):
            dialect[decision] = str(way)
    return Observed(dialect, varies)


def _asked(
    answers: Answers, profiles: Mapping[str, Profile], dialects: tuple[Dialect, Dialect], decisions: Sequence[str]
) -> Iterator[Asked]:
    """dialects: what is declared, and the cause."""
    declared, cause = dialects
    for cell, outcome in answers:
        if not is_open(cell.case, cell.route.problem):
            continue
        plain = reply_of(cell, outcome, {}, profiles[cell.case.dtype])
        if matters := tuple(each for each in decisions if _matters(plain, each)):
            probe = reply_of(cell, outcome, declared, profiles[cell.case.dtype])
            if not cause and probe.suspect().holds(probe.dialect):
                yield Asked(probe, replace(probe, actual=None), matters)
            else:
                yield _explained(probe, matters, tuple(cause.items()))


def _explained(probe: Probe, matters: tuple[str, ...], cause: Change) -> Asked:
    """What explains the reply: beside the cause if possible, and by few decisions."""
    several = sorted(_changes(matters), key=len)
    for base in dict.fromkeys((cause, ())):
        if not base and probe.suspect().holds(probe.dialect):
            return Asked(probe, replace(probe, actual=None), matters)
        fitting = [change for change in several if (base or change) and probe.held_by((*base, *change))]
        if fitting:
            fewest = [(*base, *change) for change in fitting if len(change) == len(fitting[0])]
            alone = tuple(change[0] for change in fewest if len(change) == 1)
            return Asked(probe, replace(probe, found=alone), matters, tuple(fewest))
    return Asked(probe, probe, matters)


def _changes(matters: Iterable[str]) -> Iterator[Change]:
    """Every way of each of these decisions, with every way of the others."""
    for names in product(*((None, *WAYS[decision]) for decision in matters)):
        yield tuple((decision, name) for decision, name in zip(matters, names, strict=True) if name is not None)


def _of_what_is_finite(decision: str, asked: Sequence[Asked]) -> str | None:
    """The most canonical way by which just those numbers are finite that are, in every reply; None if there is none."""
    ways = [
        {
            dict(change).get(decision, CANONICAL)
            for change in _changes(each.matters)
            if _is_finite_as(each.probe, change)
        }
        for each in asked
    ]
    return next((way for way in (CANONICAL, *WAYS[decision]) if all(way in found for found in ways)), None)


def _is_finite_as(probe: Probe, change: Change) -> bool:
    """Whether just those numbers of a reply are finite that are so under a change, and none that must not be."""
    actual = {name: np.isfinite(each.float64()) for name, each in probe.suspect().actual.items()}
    for name, each in probe.declared.reply.items():
        if actual[name].shape != each.values.shape or np.any(actual[name] & ~np.isfinite(each.values)):
            return False
    reply = evaluate(probe.problem, probe.under(change), probe.profile.score).reply
    return all(np.array_equal(np.isfinite(each.values), actual[name]) for name, each in reply.items())


def _matters(plain: Probe, decision: str) -> bool:
    """Whether any way of a decision gives another answer here than canonical, were all else right."""
    replies = (evaluate(plain.problem, {decision: name}, plain.profile.score).reply for name in WAYS[decision])
    return any(plain.declared.separates(reply) for reply in replies)


def _common(decision: str, seen: Sequence[Reading]) -> str | None:
    """The most canonical way under which all of these replies lie within their bounds."""
    ways = common(decision, seen)
    return next((way for way in (CANONICAL, *WAYS[decision]) if way in ways), None)


def _examples(decision: str, seen: Iterable[Reading]) -> dict[str, str]:
    """One example of each way that was seen."""
    examples: dict[str, str] = {}
    for reading in seen:
        way = _common(decision, [reading])
        examples.setdefault(CANONICAL_NAMES[decision] if way == CANONICAL else str(way), reading.probe.case)
    return examples
