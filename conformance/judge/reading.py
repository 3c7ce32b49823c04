"""
One reply read for every decision at once: which ways of taking it agree with what came back.

What is not about one decision is held fixed: at what is declared where the reply lies within that bound, else with
the one change that explains the reply. A way that gives the same answer here can be neither shown nor refuted.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from conformance.bridge.contract import Facts
from conformance.bridge.profile import Profile
from conformance.bridge.tensor import Tensor
from conformance.deviations.catalogue import candidates
from conformance.deviations.deviation import Dialect, Reply
from conformance.deviations.names import slot_of
from conformance.judge.cell import compare_all
from conformance.judge.expectation import Expectation, flat, largest_tolerance
from conformance.judge.explanation import CANONICAL, Way, taking
from conformance.judge.suspect import SCREEN
from conformance.oracle.bounds import UnderivedBound, bound_reply
from conformance.oracle.evaluate import Answer, evaluate
from conformance.spec.problem import Problem

OF_ARRAYS = ("polarity", "float_mask", "number_mask")
"""Decisions about what an array holds: a flag has none."""


@dataclass(frozen=True, eq=False)
class Probe:
    """
    One judged reply of a subject.

    problem: as routed. declared: what is expected under the declaration. accepted: whether a live known deviation
    accepts it. opposite: mask arguments that are documented as True = ignore and were converted to that: reading them
    otherwise is reading them as attend.
    """

    case: str
    facts: Facts
    problem: Problem
    declared: Expectation
    profile: Profile
    actual: Mapping[str, Tensor]
    accepted: bool = False
    opposite: frozenset[str] = frozenset()

    @property
    def dialect(self) -> Dialect:
        """The declared dialect."""
        return self.declared.dialect


@dataclass(frozen=True)
class Reading:
    """
    What one reply says.

    dialect: under which the reply lies within its bound; None where nothing explains it. explained: of a reply that is
    not as declared, every way that would explain it. open: decision -> ways that it leaves open. refuted: decision ->
    ways that are another answer than the one that came back; a decision without one is not reached.
    """

    probe: Probe
    dialect: Dialect | None
    explained: frozenset[Way] = frozenset()
    open: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    refuted: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def reaches(self, decision: str) -> bool:
        """Whether some way of taking the decision is another answer than the one that came back."""
        return bool(self.refuted.get(decision))

    def contradicts(self, decision: str) -> bool:
        """Whether the decision was not taken as it is declared."""
        return declared_way(self.probe, decision) in self.refuted.get(decision, ())


def ways(problem: Problem, declared: Dialect) -> dict[str, tuple[str, ...]]:
    """Every decision that there is for this call, with the ways that can differ in it, canonical first."""
    flags = {group.slot for group in problem.groups if group.element == "flag"}
    found: dict[str, dict[str, None]] = {}
    for deviation in candidates(problem):
        family, slot = slot_of(deviation.decision)
        if slot in flags and family in OF_ARRAYS:
            continue
        names = found.setdefault(deviation.decision, {CANONICAL: None})
        if deviation.name != problem.dtype and (deviation.problem is None or deviation.problem(problem) is not problem):
            names[deviation.name] = None
    for decision, name in declared.items():
        found.setdefault(decision, {CANONICAL: None})[name] = None
    return {decision: tuple(names) for decision, names in found.items()}


def alternatives(probe: Probe, dialect: Dialect) -> Iterator[Way]:
    """Every way that `dialect` does not take."""
    for decision, names in ways(probe.problem, probe.dialect).items():
        yield from ((decision, name) for name in names if name != dialect.get(decision, CANONICAL))


def agrees(probe: Probe, dialect: Dialect) -> bool:
    """Whether the reply lies within its bound under `dialect`."""
    return _holds(probe, dialect, answer_under(probe, dialect))


def answer_under(probe: Probe, dialect: Dialect) -> Answer:
    """The oracle's answer to the call under `dialect`."""
    return evaluate(probe.problem, dialect, probe.profile.score)


def _holds(probe: Probe, dialect: Dialect, answer: Answer) -> bool:
    expected = expected_under(probe, dialect, answer)
    return expected is not None and all(
        each.verdict != "fail" for each in compare_all(expected, probe.actual, probe.profile)
    )


def expected_under(probe: Probe, dialect: Dialect, answer: Answer) -> Expectation | None:
    """
    The expectation under `dialect`, or None where a glance shows that the reply is far from it.

    Where no bound is derived for it, the largest declared tolerance stands in: enough to read a way, never to declare
    it.
    """
    if not _near(probe, answer.reply):
        return None
    try:
        bounds = bound_reply(answer, probe.profile)
    except UnderivedBound:
        declared = ((name, each.values.shape, probe.declared.bounds[name]) for name, each in answer.reply.items())
        bounds = {name: flat(bound, shape, largest_tolerance(bound)) for name, shape, bound in declared}
    return Expectation(dialect, answer.reply, bounds)


def _near(probe: Probe, reply: Reply) -> bool:
    for name, expected in reply.items():
        actual, bound = probe.actual[name], probe.declared.bounds[name]
        if actual.shape != expected.values.shape or actual.dtype != expected.dtype:
            return False
        with np.errstate(invalid="ignore"):
            error = np.nanmax(np.abs(actual.float64() - expected.values), initial=0.0)
        if error > SCREEN * float(np.nanmax(np.abs(expected.values), initial=0.0)) + largest_tolerance(bound):
            return False
    return True


def read(probe: Probe, dialect: Dialect | None, explained: Iterable[Way] = ()) -> Reading:
    """Look which ways agree where everything else is as in `dialect`."""
    base = None if dialect is None else expected_under(probe, dialect, answer_under(probe, dialect))
    if dialect is None or base is None:
        return Reading(probe, None)
    open_: dict[str, tuple[str, ...]] = {}
    refuted: dict[str, frozenset[str]] = {}
    for decision, names in ways(probe.problem, probe.dialect).items():
        wrong = [name for name in names if _refutes(probe, base, dialect, (decision, name))]
        left = [name for name in names if name not in wrong]
        refuted[decision] = frozenset(_as_documented(probe, decision, name) for name in wrong)
        open_[decision] = tuple(_as_documented(probe, decision, name) for name in left)
    return Reading(probe, dialect, frozenset(explained), open_, refuted)


def _refutes(probe: Probe, base: Expectation, dialect: Dialect, way: Way) -> bool:
    """Whether a way would be another answer here, and not the one that came back."""
    other = taking(dialect, way)
    if other == dialect or not _shows_as_declared(probe, dialect, way):
        return False
    answer = answer_under(probe, other)
    return base.separates(answer.reply) and not _holds(probe, other, answer)


def _shows_as_declared(probe: Probe, dialect: Dialect, way: Way) -> bool:
    """
    Whether a way is another answer under the declaration as well.

    A row that is dead because another decision is taken otherwise says nothing about dead rows.
    """
    taken, declared = dialect.get(way[0]), probe.dialect.get(way[0])
    if dialect == probe.dialect or taken != declared:
        return True
    return probe.declared.separates(answer_under(probe, taking(probe.dialect, way)).reply)


def declared_way(probe: Probe, decision: str) -> str:
    """How the subject says it takes a decision in this call, in the words of its documentation."""
    return _as_documented(probe, decision, probe.dialect.get(decision, CANONICAL))


def _as_documented(probe: Probe, decision: str, name: str) -> str:
    """Polarity of a converted mask is that of the argument, not that of our own reading."""
    family, slot = slot_of(decision)
    turned = family == "polarity" and slot in probe.opposite
    return {CANONICAL: "ignore", "ignore": CANONICAL}[name] if turned else name


def hidden_by(probe: Probe, decision: str) -> Iterator[Way]:
    """Declared ways without which this call would show the decision."""
    for declared in probe.dialect.items():
        if declared[0] == decision or decision not in ways(probe.problem, probe.dialect):
            continue
        without = taking(probe.dialect, (declared[0], CANONICAL))
        answer = answer_under(probe, without)
        try:
            plain = Expectation(without, answer.reply, bound_reply(answer, probe.profile))
        except UnderivedBound:
            continue
        others = (taking(without, (decision, name)) for name in ways(probe.problem, probe.dialect)[decision])
        if any(plain.separates(answer_under(probe, other).reply) for other in others):
            yield declared
