"""
What a set of cases can tell: for every deviation, the cases in which it is another answer than canonical.

A call is taken as it is before routing, with an argument of its own for every mask, called like its kind. Only the
bound of the canonical answer is needed: a deviation is told apart where it is at least FACTOR of these bounds away.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

from conformance.bridge.profile import Profile
from conformance.deviations.catalogue import TABLE, candidates
from conformance.deviations.deviation import Deviation, Reply
from conformance.deviations.masks import slot_deviations
from conformance.deviations.names import INVISIBLE
from conformance.judge.compare import distance
from conformance.oracle.bound import Bound
from conformance.oracle.bounds import bound_reply
from conformance.oracle.evaluate import Answer, evaluate, evaluate_deviations
from conformance.spec.masks import KINDS
from conformance.spec.problem import Problem

FACTOR = 10.0
"""How many bounds away is told apart."""

SHARP = ("float64", "float32")
"""The dtypes in which a deviation counts as pinned down."""

FORMS = frozenset(deviation.key for deviation in TABLE if deviation.stage == "reply")
"""Deviations of the form of a reply: a shape or a dtype shows in every case."""


@dataclass(frozen=True)
class Sight:
    """
    One case that tells a deviation apart.

    bounds: how far away it is, inf for another shape, dtype or pattern. size: how many logits the case has.
    """

    case: str
    operator: str
    dtype: str
    bounds: float
    size: int


@dataclass(frozen=True)
class Power:
    """
    What a set of cases tells apart.

    sights: deviation -> every case that tells it apart, in any dtype; every deviation that there is has a key.
    powerless: cases that tell nothing apart but the form of the reply, which every case tells.
    """

    sights: Mapping[str, tuple[Sight, ...]]
    powerless: tuple[str, ...]

    def sharp(self, key: str) -> tuple[Sight, ...]:
        """The cases in float64 or float32 that tell a deviation apart."""
        return tuple(sight for sight in self.sights[key] if sight.dtype in SHARP)

    def simplest(self, key: str) -> Sight | None:
        """The smallest of these cases, the first of equal ones; None if there is none."""
        return min(self.sharp(key), key=lambda sight: sight.size, default=None)

    @property
    def unpinned(self) -> tuple[str, ...]:
        """Deviations that no case in float64 or float32 tells apart, though one could."""
        return tuple(key for key in self.sights if key not in INVISIBLE and not self.sharp(key))

    @property
    def undecided(self) -> tuple[str, ...]:
        """Decisions of which not a single deviation is pinned down, though one could be."""
        could = dict.fromkeys(_decision(key) for key in self.sights if key not in INVISIBLE)
        pinned = {_decision(key) for key in self.sights if self.sharp(key)}
        return tuple(decision for decision in could if decision not in pinned)


def _decision(key: str) -> str:
    return key.rpartition("=")[0]


def all_deviations() -> tuple[Deviation, ...]:
    """Every deviation that there is, those of an argument once for each kind of mask."""
    return (*(deviation for kind in KINDS for deviation in slot_deviations(kind)), *TABLE)


def by_kind(problem: Problem) -> Problem:
    """Give each mask an argument of its own, called like its kind."""
    return problem.but(groups=tuple(replace(group, slot=group.kinds[0]) for group in problem.groups))


def power(problems: Iterable[tuple[str, Problem]]) -> Power:
    """Look at every pair of a case (its id and problem, not routed) and a deviation."""
    sights: dict[str, list[Sight]] = {deviation.key: [] for deviation in all_deviations()}
    powerless = []
    for case, problem in problems:
        found = told_apart(by_kind(problem))
        for key, bounds in found.items():
            sights[key].append(Sight(case, problem.operator, problem.dtype, bounds, prod(problem.logits_shape)))
        if not found.keys() - FORMS:
            powerless.append(case)
    return Power({key: tuple(seen) for key, seen in sights.items()}, tuple(powerless))


def told_apart(problem: Problem) -> dict[str, float]:
    """Deviation -> how many bounds away it is, for those that are at least FACTOR away."""
    return dict(_told_apart(problem))


def has_power(problem: Problem) -> bool:
    """Whether a call, not routed, tells apart more than the form of its reply."""
    return any(key not in FORMS for key, _ in _told_apart(by_kind(problem)))


def _told_apart(problem: Problem) -> Iterator[tuple[str, float]]:
    return ((key, away) for key, away in distances(problem) if away is not None and away >= FACTOR)


def distances(problem: Problem) -> Iterator[tuple[str, float | None]]:
    """How many bounds away each deviation is; None for one that leaves the problem as it is."""
    profile = Profile.ordinary(problem.dtype)
    right = evaluate(problem, score=profile.score)
    bounds = bound_reply(right, profile)
    for deviation in candidates(problem):
        if not _reaches(deviation, problem):
            yield deviation.key, None
            continue
        wrong = evaluate_deviations(problem, (deviation,), profile.score)
        yield deviation.key, apart(right, wrong.reply, bounds)


def _reaches(deviation: Deviation, problem: Problem) -> bool:
    """Whether the deviation can change anything: what leaves the problem as it is needs no oracle."""
    return deviation.problem is None or deviation.posed(problem) is not problem


def apart(right: Answer, wrong: Reply, bounds: Mapping[str, Bound]) -> float:
    """How many bounds of an answer another reply is away from it; inf where shape, dtype or pattern differ."""
    return max(distance(right.reply[name], wrong[name], bounds[name]) for name in right.reply)
