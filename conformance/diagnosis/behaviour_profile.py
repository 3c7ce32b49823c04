"""
The behaviour profile of a subject: its dialect as read from its replies, compared with the declared dialect.

Each reply is read for every decision, while all other decisions are fixed: as declared if the reply is within that
bound, otherwise with the one change that explains the reply. A way that gives the same answer in this call can be
neither shown nor refuted.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from math import prod
from typing import Literal

from conformance.bounds.outputs import UnderivedBound
from conformance.deviations.catalogue import candidates
from conformance.deviations.deviation import Dialect
from conformance.deviations.names import FRAMEWORK_BITS, prior, slot_of
from conformance.diagnosis.candidates import Cause
from conformance.diagnosis.diagnosis import diagnose
from conformance.diagnosis.evidence import OF_FILL, Change, Evidence
from conformance.diagnosis.explanation import CANONICAL, OF_NONFINITE, Way, explain, plain_ways, taking
from conformance.diagnosis.suspect import Suspect
from conformance.spec.problem import Problem
from conformance.verdicts.expectation import Expectation, expect

# Decisions about the values of a mask array; causal and window arguments do not have them.
OF_ARRAYS = ("polarity", "float_mask", "number_mask")


@dataclass(frozen=True, eq=False)
class Probe(Evidence):
    """
    A call with its reply, whatever its verdict.

    accepted: whether a live known deviation accepts the reply.
    """

    accepted: bool = False

    @property
    def dialect(self) -> Dialect:
        """The declared dialect."""
        return self.declared.dialect

    def ways(self, dialect: Dialect) -> Mapping[str, tuple[str, ...]]:
        """Every decision that applies to this call, with the ways that can differ in it; computed once."""
        return self.of_call.once(("ways", frozenset(dialect.items())), lambda: ways(self.problem, dialect))


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


def ways(problem: Problem, dialect: Dialect) -> dict[str, tuple[str, ...]]:
    """
    Every decision that applies to this call, with the ways that can differ in it, canonical first.

    Rare mistakes and those of kernels are left out, except the ways of `dialect`: a probe reports how a subject
    behaves, not which mistakes it lacks.
    """
    without_array = {operand.slot for operand in problem.mask_operands if operand.element == "flag"}
    found: dict[str, dict[str, None]] = {}
    for deviation in candidates(problem):
        family, slot = slot_of(deviation.decision)
        if prior(deviation.decision, deviation.name) > FRAMEWORK_BITS or (
            slot in without_array and family in OF_ARRAYS
        ):
            continue
        names = found.setdefault(deviation.decision, {CANONICAL: None})
        if deviation.name != problem.dtype and deviation.changes(problem):
            names[deviation.name] = None
    for decision, name in dialect.items():
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
    for decision, names in probe.ways({**probe.dialect, **dialect}).items():
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
    return base.separates(suspect.reply(other)) and not suspect.conforms_under(other)


def _shows_as_declared(suspect: Suspect, dialect: Dialect, way: Way) -> bool:
    """
    Whether a way gives a different answer under the declared dialect as well.

    A row that is fully masked only because another decision deviates shows nothing about fully masked rows.
    """
    declared = suspect.declared.dialect
    if dialect == declared or dialect.get(way[0]) != declared.get(way[0]):
        return True
    return suspect.declared.separates(suspect.reply(taking(declared, way)))


def declared_way(probe: Probe, decision: str) -> str:
    """The declared way of taking a decision in this call, in the words of the subject's documentation."""
    return _as_documented(probe, decision, probe.dialect.get(decision, CANONICAL))


def _as_documented(probe: Probe, decision: str, name: str) -> str:
    """The name of a way; for an inverted mask, polarity is that of the argument, not that of the case."""
    family, slot = slot_of(decision)
    inverted = {operand.slot for operand in probe.problem.mask_operands if operand.inverted}
    if family != "polarity" or slot not in inverted:
        return name
    return {CANONICAL: "ignore", "attend": CANONICAL}.get(name, name)


def hidden_by(probe: Probe, decision: str) -> Iterator[Way]:
    """The declared ways that hide the decision in this call."""
    suspect = probe.suspect()
    for declared in probe.dialect.items():
        names = probe.ways(probe.dialect).get(decision, ())
        plain = _without(probe, declared) if names and declared[0] != decision else None
        if plain is None:
            continue
        others = (taking(plain.dialect, (decision, name)) for name in names)
        if any(plain.separates(suspect.reply(other)) for other in others):
            yield declared


def _without(probe: Probe, declared: Way) -> Expectation | None:
    """The expectation with a declared way replaced by the canonical one; None if no bound can be derived for it."""
    return probe.of_call.once(("without", declared), lambda: _expected_without(probe, declared))


def _expected_without(probe: Probe, declared: Way) -> Expectation | None:
    try:
        return expect(probe.problem, taking(probe.dialect, (declared[0], CANONICAL)), probe.profile)
    except UnderivedBound:
        return None


# Maximum number of circumstances that are combined; if they do not suffice, a decision is reported as varying.
DEEPEST = 3

ALIASES = {"none": "three tensors", "kv": "key is value", "qkv": "one tensor"}

# Describes in words one property of a call that a decision may depend on. Arguments: call, decision.
Circumstance = Callable[[Probe, str], str]


def _element(probe: Probe, decision: str) -> str:
    _, slot = slot_of(decision)
    elements = {mask.element for mask in probe.facts.masks if slot in (None, mask.slot)}
    words = [f"{element} mask" if element != "flag" else "flag" for element in sorted(elements)]
    return " and ".join(words) or "no mask"


def _outputs(probe: Probe, _: str) -> str:
    return "with weights" if set(probe.facts.outputs) - {"output"} else "without weights"


def _slots(probe: Probe, _: str) -> str:
    return " and ".join(mask.slot for mask in probe.facts.masks) or "no mask"


def _square(probe: Probe, _: str) -> str:
    sizes = probe.facts.sizes
    return (
        "as many keys as queries"
        if sizes["seq_len_q"] == sizes["seq_len_k"]
        else "different numbers of keys and queries"
    )


# The circumstances in the order in which they are tried; the first that suffice are reported.
CIRCUMSTANCES: tuple[Circumstance, ...] = (
    _element,
    _outputs,
    lambda probe, _: probe.facts.dtype,
    lambda probe, _: ALIASES[probe.facts.alias],
    _slots,
    lambda probe, _: probe.facts.operator,
    _square,
)


def divided(
    readings: Sequence[Reading], decision: str, suits: Callable[[Sequence[Reading]], bool]
) -> Mapping[str, tuple[Reading, ...]] | None:
    """
    Divide the readings by circumstance such that every part suits; few circumstances and few parts are preferred.

    The key "" means all readings. The result is None if no division suits.
    """
    for depth in range(DEEPEST + 1):
        found = [_parts(readings, decision, chosen) for chosen in combinations(CIRCUMSTANCES, depth)]
        fitting = [parts for parts in found if all(suits(part) for part in parts.values())]
        if fitting:
            return min(fitting, key=len)
    return None


def _parts(
    readings: Iterable[Reading], decision: str, chosen: Iterable[Circumstance]
) -> dict[str, tuple[Reading, ...]]:
    parts: dict[str, tuple[Reading, ...]] = {}
    for reading in readings:
        words = ", ".join(dict.fromkeys(describe(reading.probe, decision) for describe in chosen))
        parts[words] = (*parts.get(words, ()), reading)
    return parts


# How the observed behaviour relates to the declared one. accepted: a live known deviation accepts every contradicting
# reply. blinded: a declared decision hides it. not reached: no call can show it.
Status = Literal["contradicted", "accepted", "agrees", "blinded", "not reached"]


@dataclass(frozen=True)
class Observation:
    """
    How a decision is taken in the calls of one circumstance.

    circumstance: in words, "" for all calls. declared: the ways that are declared there. observed: the observed way,
    then those that these calls do not distinguish from it; for a decision that varies, all observed ways. alike: ways
    of other decisions that would explain the same replies. cases: the cases that show it, those with the fewest logits
    first.
    """

    circumstance: str
    declared: tuple[str, ...]
    observed: tuple[str, ...]
    alike: tuple[Way, ...]
    cases: tuple[str, ...]
    varies: bool = False


@dataclass(frozen=True)
class Line:
    """
    The findings about one decision.

    against: cases whose replies contradict the declaration, those with the fewest logits first. blinded_by: declared
    ways that hide the decision.
    """

    decision: str
    status: Status
    observations: tuple[Observation, ...] = ()
    against: tuple[str, ...] = ()
    blinded_by: tuple[Way, ...] = ()


@dataclass(frozen=True)
class BehaviourProfile:
    """
    All findings about a subject.

    unexplained: cases whose reply no way explains. readings: one for each reply.
    """

    lines: tuple[Line, ...]
    unexplained: tuple[str, ...]
    readings: tuple[Reading, ...] = field(default=(), repr=False, compare=False)

    def line(self, decision: str) -> Line | None:
        """The findings about `decision`; None if the subject does not have this decision."""
        return next((line for line in self.lines if line.decision == decision), None)

    @property
    def contradicted(self) -> tuple[Line, ...]:
        """The decisions that contradict the declaration and that no known deviation accepts."""
        return tuple(line for line in self.lines if line.status == "contradicted")


def behaviour_profile(probes: Sequence[Probe]) -> BehaviourProfile:
    """Read the dialect of one subject from its replies."""
    found = readings(probes)
    taken = [
        (probe, {**probe.dialect, **(reading.dialect or {})}) for probe, reading in zip(probes, found, strict=True)
    ]
    named = dict.fromkeys(decision for probe, dialect in taken for decision in probe.ways(dialect))
    decisions = sorted(named, key=lambda decision: slot_of(decision)[1] is None)
    unexplained = tuple(reading.probe.case for reading in found if reading.dialect is None)
    return BehaviourProfile(tuple(_line(decision, found) for decision in decisions), unexplained, found)


def readings(probes: Sequence[Probe]) -> tuple[Reading, ...]:
    """
    Read every reply, in order.

    A reply that differs from the declaration is read under the cause that the diagnosis finds for it. If other replies
    contradict every cause, it is read under the most likely single way that explains it, if there is one.
    """
    cells = [_cell(probe) for probe in probes]
    found = {cell: cause for cause in diagnose(cells).causes for cell in cause.cells}
    return tuple(_reading(probe, cell, found.get(cell)) for probe, cell in zip(probes, cells, strict=True))


def _cell(probe: Probe) -> Evidence:
    """The evidence of one reply; if it is as declared, the reply itself is not needed."""
    suspect = probe.suspect()
    if suspect.conforms_under(probe.dialect):
        return replace(probe, actual=None)
    # Ways of kernels and rare ones are tried only if no other explains the reply.
    found = explain(suspect, plain_ways(probe.problem, probe.dialect)) or explain(suspect)
    return replace(probe, found=tuple(each.way for each in found))


def _reading(probe: Probe, cell: Evidence, cause: Cause | None) -> Reading:
    if cell.actual is None:
        return read(probe, probe.dialect)
    change = cell.found[:1] if cause is None else (_shown(cell, cause) or cause.candidate.change)
    dialect = probe.under(change) if change else None
    return read(probe, dialect, _not_distinguished(cause, cell))


def _shown(cell: Evidence, cause: Cause) -> Change:
    """
    The decision about non-finite values that a reply shows by itself, if the cause is a fill with the same effect.

    The fill is then only an inference. It is kept if a reply of the cause shows no such decision.
    """
    if any(decision != OF_FILL for decision, _ in cause.candidate.change):
        return ()
    seen = [[way for way in each.found if way[0] in OF_NONFINITE] for each in (cell, *cause.cells)]
    return tuple(seen[0][:1]) if all(seen) else ()


def _not_distinguished(cause: Cause | None, cell: Evidence) -> Iterator[Way]:
    """The single ways that explain the reply and that the diagnosis does not distinguish."""
    if cause is None:
        yield from cell.found
        return
    for each in (cause, *cause.ties):
        if len(each.candidate.change) == 1:
            yield from each.candidate.change


def _line(decision: str, found: Sequence[Reading]) -> Line:
    reaching = [reading for reading in found if reading.reaches(decision)]
    if not reaching:
        blinds = dict.fromkeys(way for reading in found for way in hidden_by(reading.probe, decision))
        return Line(decision, "blinded" if blinds else "not reached", blinded_by=tuple(blinds))
    against = [reading for reading in reaching if reading.contradicts(decision)]
    return Line(decision, _status(against), tuple(_observations(decision, reaching)), _cases(against))


def _status(against: Sequence[Reading]) -> Status:
    if not against:
        return "agrees"
    return "accepted" if all(reading.probe.accepted for reading in against) else "contradicted"


def _observations(decision: str, reaching: Sequence[Reading]) -> Iterator[Observation]:
    def is_consistent(part: Sequence[Reading]) -> bool:
        return bool(_common(decision, part))

    def is_consistent_under_one_declaration(part: Sequence[Reading]) -> bool:
        return is_consistent(part) and len(_declared(decision, part)) == 1

    parts = divided(reaching, decision, is_consistent_under_one_declaration) or divided(
        reaching, decision, is_consistent
    )
    if parts is None:
        yield _varying(decision, reaching)
        return
    merged: dict[tuple[tuple[str, ...], tuple[str, ...]], dict[str, tuple[Reading, ...]]] = {}
    for words, part in parts.items():
        declared = _declared(decision, part)
        merged.setdefault((declared, _ranked(decision, part)), {})[words] = part
    for (declared, observed), by_words in merged.items():
        together = [reading for part in by_words.values() for reading in part]
        words = "; ".join(by_words)
        yield Observation(words, declared, observed, _alike(decision, together), _cases(together))


def _varying(decision: str, reaching: Sequence[Reading]) -> Observation:
    seen = dict.fromkeys(_ranked(decision, [reading])[0] for reading in reaching)
    return Observation("", _declared(decision, reaching), tuple(seen), (), _cases(reaching), varies=True)


def _common(decision: str, part: Sequence[Reading]) -> frozenset[str]:
    """The ways under which all of these replies are within their bounds."""
    seen = frozenset(name for reading in part for name in reading.open.get(decision, ()))
    return seen - frozenset(name for reading in part for name in reading.refuted.get(decision, ()))


def _declared(decision: str, part: Sequence[Reading]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(declared_way(reading.probe, decision) for reading in part))


def _ranked(decision: str, part: Sequence[Reading]) -> tuple[str, ...]:
    """The common ways: declared ones first, then canonical, then the others in the order of the table."""
    names = (name for reading in part for name in reading.open.get(decision, ()))
    first = dict.fromkeys((*_declared(decision, part), CANONICAL, *names))
    return tuple(name for name in first if name in _common(decision, part))


def _alike(decision: str, part: Sequence[Reading]) -> tuple[Way, ...]:
    """Ways of other decisions that explain all of these replies that contradict the declaration."""
    against = [reading for reading in part if reading.contradicts(decision)]
    if not against:
        return ()
    common = frozenset.intersection(*(reading.explained for reading in against))
    return tuple(sorted(way for way in common if way[0] != decision))


def _cases(part: Sequence[Reading]) -> tuple[str, ...]:
    return tuple(reading.probe.case for reading in sorted(part, key=lambda reading: size(reading.probe)))


def size(probe: Probe) -> int:
    """The number of logits of a call."""
    return prod(probe.problem.logits_shape)
