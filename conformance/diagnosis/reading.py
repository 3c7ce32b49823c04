"""
One reply read for every decision at once: which ways of taking it agree with what came back.

What is not about one decision is held fixed: at what is declared where the reply lies within that bound, else with
the one change that explains the reply. A way that gives the same answer here can be neither shown nor refuted.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from conformance.bounds.outputs import UnderivedBound
from conformance.deviations.catalogue import candidates
from conformance.deviations.deviation import Dialect, Reply
from conformance.deviations.evaluate import evaluate
from conformance.deviations.names import slot_of
from conformance.diagnosis.evidence import Evidence
from conformance.diagnosis.explanation import CANONICAL, Way, taking
from conformance.diagnosis.suspect import Suspect
from conformance.spec.problem import Problem
from conformance.verdicts.expectation import Expectation, expect

# Decisions about what an array holds: a flag has none.
OF_ARRAYS = ("polarity", "float_mask", "number_mask")


@dataclass(frozen=True, eq=False)
class Probe(Evidence):
    """
    A call with its reply, whatever its verdict is.

    accepted: whether a live known deviation accepts it. opposite: mask arguments that are documented as True = ignore
    and were converted to that: reading them otherwise is reading them as attend.
    """

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
    flags = {operand.slot for operand in problem.mask_operands if operand.element == "flag"}
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


def read(probe: Probe, dialect: Dialect | None, explained: Iterable[Way] = ()) -> Reading:
    """Look which ways agree where everything else is as in `dialect`."""
    suspect = probe.suspect()
    base = None if dialect is None else suspect.expected(dialect)
    if dialect is None or base is None:
        return Reading(probe, None)
    open_: dict[str, tuple[str, ...]] = {}
    refuted: dict[str, frozenset[str]] = {}
    for decision, names in ways(probe.problem, probe.dialect).items():
        wrong = [name for name in names if _refutes(suspect, base, (decision, name))]
        left = [name for name in names if name not in wrong]
        refuted[decision] = frozenset(_as_documented(probe, decision, name) for name in wrong)
        open_[decision] = tuple(_as_documented(probe, decision, name) for name in left)
    return Reading(probe, dialect, frozenset(explained), open_, refuted)


def _refutes(suspect: Suspect, base: Expectation, way: Way) -> bool:
    """Whether a way would be another answer here, and not the one that came back."""
    other = taking(base.dialect, way)
    if other == base.dialect or not _shows_as_declared(suspect, base.dialect, way):
        return False
    return base.separates(_reply(suspect, other)) and not suspect.holds(other)


def _reply(suspect: Suspect, dialect: Dialect) -> Reply:
    """The oracle's answer to the call under `dialect`."""
    return evaluate(suspect.problem, dialect, suspect.profile.score).reply


def _shows_as_declared(suspect: Suspect, dialect: Dialect, way: Way) -> bool:
    """
    Whether a way is another answer under the declaration as well.

    A row that is fully masked because another decision is taken otherwise says nothing about fully masked rows.
    """
    declared = suspect.declared.dialect
    if dialect == declared or dialect.get(way[0]) != declared.get(way[0]):
        return True
    return suspect.declared.separates(_reply(suspect, taking(declared, way)))


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
        try:
            plain = expect(probe.problem, without, probe.profile)
        except UnderivedBound:
            continue
        others = (taking(without, (decision, name)) for name in ways(probe.problem, probe.dialect)[decision])
        if any(plain.separates(_reply(probe.suspect(), other)) for other in others):
            yield declared
