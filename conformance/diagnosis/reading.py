"""
Reads one reply for every decision: which ways of taking the decision agree with the reply.

All other decisions are fixed: as declared if the reply is within that bound, otherwise with the one change that
explains the reply. A way that gives the same answer in this call can be neither shown nor refuted.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from conformance.bounds.outputs import UnderivedBound
from conformance.deviations.catalogue import candidates, evaluate
from conformance.deviations.deviation import Dialect, Reply
from conformance.deviations.names import slot_of
from conformance.diagnosis.evidence import Evidence
from conformance.diagnosis.explanation import CANONICAL, Way, taking
from conformance.diagnosis.suspect import Suspect
from conformance.spec.problem import Problem
from conformance.verdicts.expectation import Expectation, expect

# Decisions about the values of a mask array; causal and window arguments do not have them.
OF_ARRAYS = ("polarity", "float_mask", "number_mask")


@dataclass(frozen=True, eq=False)
class Probe(Evidence):
    """
    A call with its reply, whatever its verdict.

    accepted: whether a live known deviation accepts the reply. opposite: mask arguments that are documented as
    True = ignore, to which the masks were converted. A subject that reads them the other way reads True as attend.
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
    What one reply shows.

    dialect: the dialect under which the reply is within its bound; None if nothing explains it. explained: for a reply
    that contradicts the declaration, every way that would explain it. open: decision -> ways that the reply leaves
    open. refuted: decision -> ways that would give a different reply; a decision without refuted ways is not reached.
    """

    probe: Probe
    dialect: Dialect | None
    explained: frozenset[Way] = frozenset()
    open: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    refuted: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def reaches(self, decision: str) -> bool:
        """Whether some way of taking the decision would give a different reply."""
        return bool(self.refuted.get(decision))

    def contradicts(self, decision: str) -> bool:
        """Whether the reply refutes the declared way of taking the decision."""
        return declared_way(self.probe, decision) in self.refuted.get(decision, ())


def ways(problem: Problem, declared: Dialect) -> dict[str, tuple[str, ...]]:
    """Every decision that applies to this call, with the ways that can differ in it, canonical first."""
    without_array = {operand.slot for operand in problem.mask_operands if operand.element == "flag"}
    found: dict[str, dict[str, None]] = {}
    for deviation in candidates(problem):
        family, slot = slot_of(deviation.decision)
        if slot in without_array and family in OF_ARRAYS:
            continue
        names = found.setdefault(deviation.decision, {CANONICAL: None})
        if deviation.name != problem.dtype and (deviation.problem is None or deviation.problem(problem) is not problem):
            names[deviation.name] = None
    for decision, name in declared.items():
        found.setdefault(decision, {CANONICAL: None})[name] = None
    return {decision: tuple(names) for decision, names in found.items()}


def read(probe: Probe, dialect: Dialect | None, explained: Iterable[Way] = ()) -> Reading:
    """Find the ways of each decision that agree with the reply while all other decisions are as in `dialect`."""
    suspect = probe.suspect()
    base = None if dialect is None else suspect.expected(dialect)
    if dialect is None or base is None:
        return Reading(probe, None)
    open_: dict[str, tuple[str, ...]] = {}
    refuted: dict[str, frozenset[str]] = {}
    for decision, names in ways(probe.problem, probe.dialect).items():
        wrong = [name for name in names if _refutes(suspect, base, (decision, name))]
        remaining = [name for name in names if name not in wrong]
        refuted[decision] = frozenset(_as_documented(probe, decision, name) for name in wrong)
        open_[decision] = tuple(_as_documented(probe, decision, name) for name in remaining)
    return Reading(probe, dialect, frozenset(explained), open_, refuted)


def _refutes(suspect: Suspect, base: Expectation, way: Way) -> bool:
    """Whether a way would give a different answer here, and the reply is not that answer."""
    other = taking(base.dialect, way)
    if other == base.dialect or not _shows_as_declared(suspect, base.dialect, way):
        return False
    return base.separates(_reply(suspect, other)) and not suspect.conforms_under(other)


def _reply(suspect: Suspect, dialect: Dialect) -> Reply:
    """The oracle's reply to the call under `dialect`."""
    return evaluate(suspect.problem, dialect, suspect.profile.score).reply


def _shows_as_declared(suspect: Suspect, dialect: Dialect, way: Way) -> bool:
    """
    Whether a way gives a different answer under the declared dialect as well.

    A row that is fully masked only because another decision deviates shows nothing about fully masked rows.
    """
    declared = suspect.declared.dialect
    if dialect == declared or dialect.get(way[0]) != declared.get(way[0]):
        return True
    return suspect.declared.separates(_reply(suspect, taking(declared, way)))


def declared_way(probe: Probe, decision: str) -> str:
    """The declared way of taking a decision in this call, in the words of the subject's documentation."""
    return _as_documented(probe, decision, probe.dialect.get(decision, CANONICAL))


def _as_documented(probe: Probe, decision: str, name: str) -> str:
    """The name of a way; for a converted mask, polarity is that of the argument, not that of the case."""
    family, slot = slot_of(decision)
    is_inverted = family == "polarity" and slot in probe.opposite
    return {CANONICAL: "ignore", "ignore": CANONICAL}[name] if is_inverted else name


def hidden_by(probe: Probe, decision: str) -> Iterator[Way]:
    """The declared ways that hide the decision in this call."""
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
