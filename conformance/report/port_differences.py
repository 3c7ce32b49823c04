"""What differs between two subjects when calls move from one to the other."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from conformance.deviations.names import slot_of
from conformance.diagnosis.behaviour_profile import OF_ARRAYS, Line, Reading, divided, size
from conformance.diagnosis.explanation import Way, sentence
from conformance.engine.adapter_facts import Slot
from conformance.engine.adapters import Subject
from conformance.engine.logged_cell import LoggedCell
from conformance.report.call_site_advice import Destination, change
from conformance.report.circumstances import SOME_CALLS, calls, limit, observation
from conformance.report.probe_report import Pictured, declared_text, observed_text
from conformance.spec.masks import KINDS

# Cases that show a difference, each with the ways of both sides.
ObservedDifference = list[tuple[str, tuple[Way, Way]]]

# A subject and its findings about one decision.
Side = tuple["PortedSubject", Line]

# Verdicts of calls that have a reply.
WITH_REPLY = ("pass", "dialect", "fail", "inconclusive")

FACTS = ("outputs", "dtypes", "capabilities")


@dataclass(frozen=True)
class PortedSubject:
    """One of the two subjects, its behaviour profile, and its cells in the run log."""

    subject: Subject
    picture: Pictured
    cells: Sequence[LoggedCell]

    @property
    def name(self) -> str:
        """The subject's name."""
        return self.subject.name

    @property
    def verdicts(self) -> dict[str, LoggedCell]:
        """Case -> cell."""
        return {cell.case: cell for cell in self.cells}

    @property
    def readings(self) -> dict[str, Reading]:
        """Case -> what its reply shows."""
        return {reading.probe.case: reading for reading in self.picture.behaviour.readings}


@dataclass(frozen=True)
class Argument:
    """
    The argument for a kind of mask on either side; None if a subject has no argument of its own for it.

    array: the argument of the new side that takes this kind of mask as an array.
    """

    kind: str
    here: Slot | None
    there: Slot | None
    array: Slot | None


@dataclass(frozen=True)
class Difference:
    """
    A decision in which the two subjects differ in the same case.

    decision: its name on either side (the names of arguments differ). declared, observed: in words, on either side.
    case: the case with the fewest elements that shows the difference. ways: what each side does in that case. limits:
    the calls in which each side does so, in words, "" for all calls. changes: what to change at the call site; several
    if the change depends on the circumstances, none if no remedy is known.
    """

    decision: tuple[str, str]
    declared: tuple[str, str]
    observed: tuple[str, str]
    case: str
    ways: tuple[Way, Way]
    limits: tuple[str, str]
    changes: tuple[str, ...]

    @property
    def sentences(self) -> tuple[str, str]:
        """What either side does in `case`, in words, with the calls in which it does so."""
        here, there = (
            f"{sentence(*way)} ({limit})" if limit else sentence(*way)
            for way, limit in zip(self.ways, self.limits, strict=True)
        )
        return here, there


@dataclass(frozen=True)
class PortRefusal:
    """Cases with a reply on the old side only, all for one reason; `case` is the one with the fewest elements."""

    verdict: str
    reason: str
    case: str
    count: int


@dataclass(frozen=True)
class Port:
    """All differences; lost, gained: for each of FACTS, the values that only the old or only the new side has."""

    here: PortedSubject
    there: PortedSubject
    arguments: tuple[Argument, ...]
    differences: tuple[Difference, ...]
    lost: Mapping[str, tuple[str, ...]]
    gained: Mapping[str, tuple[str, ...]]
    refusals: tuple[PortRefusal, ...]

    @property
    def shared(self) -> int:
        """The number of cases that have a reply on both sides."""
        here, there = (
            {case for case, cell in side.verdicts.items() if cell.verdict in WITH_REPLY}
            for side in (self.here, self.there)
        )
        return len(here & there)


def port(here: PortedSubject, there: PortedSubject) -> Port:
    """Compare two subjects that were given the same cases."""
    arguments = tuple(_argument(here.subject, there.subject, kind) for kind in KINDS)
    facts = {name: (getattr(here.subject, name), getattr(there.subject, name)) for name in FACTS}
    return Port(
        here,
        there,
        arguments,
        tuple(_differences(here, there, arguments)),
        {name: tuple(each for each in old if each not in new) for name, (old, new) in facts.items()},
        {name: tuple(each for each in new if each not in old) for name, (old, new) in facts.items()},
        tuple(_refusals(here, there)),
    )


def _argument(here: Subject, there: Subject, kind: str) -> Argument:
    """The argument for a kind of mask; any mask that is not additive is also an attention mask."""
    array = array_for(there, kind) or (array_for(there, "attention") if kind != "additive" else None)
    return Argument(kind, slot_for(here, kind), slot_for(there, kind), array)


def slot_for(subject: Subject, kind: str) -> Slot | None:
    """The argument that takes a kind of mask in a plain call; a causal, window or lengths argument is preferred."""
    scalars = (slot for slot in _plain(subject) if slot.role == kind or (slot.role == "lengths" and kind in slot.takes))
    return next(scalars, None) or array_for(subject, kind)


def array_for(subject: Subject, kind: str) -> Slot | None:
    """The argument that takes a kind of mask as an array in a plain call."""
    return next((slot for slot in _plain(subject) if slot.role == "mask" and kind in slot.takes), None)


def _plain(subject: Subject) -> Iterator[Slot]:
    """The arguments that mask keys, and not whole queries, in a call without a cache."""
    return (slot for slot in subject.slots.values() if not slot.only_with and slot.axes != (("b", "q"),))


def _differences(here: PortedSubject, there: PortedSubject, arguments: Sequence[Argument]) -> Iterator[Difference]:
    names = {a.here.name: a.there.name for a in reversed(arguments) if a.here is not None and a.there is not None}
    for line in here.picture.behaviour.lines:
        other = _counterpart(line.decision, names)
        match = there.picture.behaviour.line(other) if other else None
        if other is None or match is None or not (line.observations and match.observations):
            continue
        shown = _observed((here, line), (there, match))
        if shown:
            case, _ = shown[0]
            yield Difference(
                decision=(line.decision, other),
                declared=(declared_text(here.picture, line), declared_text(there.picture, match)),
                observed=(observed_text(line), observed_text(match)),
                case=case,
                ways=(_way(here, line, case), _way(there, match, case)),
                limits=(limit(line, case), limit(match, case)),
                changes=tuple(_changes(shown, ((here, line), (there, match)), _destination(there, other, arguments))),
            )


def _destination(there: PortedSubject, decision: str, arguments: Sequence[Argument]) -> Destination:
    """The destination of a call, as far as one decision of the new side is concerned."""
    additive = next((each.there for each in arguments if each.kind == "additive"), None)
    slot = there.subject.slots.get(slot_of(decision)[1] or "")
    operator = there.picture.behaviour.readings[0].probe.facts.operator
    return Destination(operator, slot, additive)


def _changes(shown: ObservedDifference, sides: tuple[Side, Side], to: Destination) -> Iterator[str]:
    """
    What to change; if there is more than one change, each begins with the calls in which it applies.

    These are described as the old side gets them, because the reader has these calls.
    """
    texts = {case: change(*ways, to) for case, ways in shown}

    def is_one(part: Sequence[Reading]) -> bool:
        return len({texts[reading.probe.case] for reading in part}) == 1

    divisions = (divided([side.readings[case] for case in texts], line.decision, is_one) for side, line in sides)
    parts = next(filter(None, divisions), None)
    if parts is None:
        yield from (f"{SOME_CALLS}: {text}" for text in dict.fromkeys(texts.values()) if text)
        return
    by_text: dict[str, list[str]] = {}
    for words, part in parts.items():
        by_text.setdefault(texts[part[0].probe.case], []).append(words)
    for text, circumstances in by_text.items():
        others = [words for each, found in by_text.items() if each != text for words in found]
        if text:
            yield f"{calls(circumstances, others)}: {text}" if others else text


def _counterpart(decision: str, names: Mapping[str, str]) -> str | None:
    """The same decision with the name of the other side's argument, or None if the other side has no such argument."""
    family, slot = slot_of(decision)
    if slot is None:
        return decision
    return f"{family}[{names[slot]}]" if slot in names else None


def _observed(old_side: Side, new_side: Side) -> ObservedDifference:
    """The cases in which no way is possible for both sides, those with the fewest elements first."""
    old, new = old_side[1].decision, new_side[1].decision
    found, others = [], new_side[0].readings
    for case, reading in sorted(old_side[0].readings.items(), key=lambda pair: size(pair[1].probe)):
        other = others.get(case)
        if other is None or not (reading.reaches(old) and other.reaches(new)):
            continue
        if slot_of(old)[0] in OF_ARRAYS and not any(mask.verbatim for mask in reading.probe.facts.masks):
            continue  # the array was converted to the form that each side documents
        if set(reading.open[old]).isdisjoint(other.open[new]):
            found.append((case, (_first(old_side, reading), _first(new_side, other))))
    return found


def _first(side: Side, reading: Reading) -> Way:
    """The first way that a reply leaves open."""
    subject, line = side
    return _documented(subject, line.decision), reading.open[line.decision][0]


def _way(side: PortedSubject, line: Line, case: str) -> Way:
    """What the calls of an observation have in common; if they vary, the first way that one of them leaves open."""
    shown = observation(line, case)
    if shown.varies:
        return _first((side, line), side.readings[case])
    return _documented(side, line.decision), shown.observed[0]


def _documented(side: PortedSubject, decision: str) -> str:
    """The decision, about an argument with its documented name."""
    family, name = slot_of(decision)
    slot = side.subject.slots.get(name or "")
    return f"{family}[{slot.title}]" if slot else decision


def _refusals(here: PortedSubject, there: PortedSubject) -> Iterator[PortRefusal]:
    """The cases that have a reply on the old side and none on the new side, by reason."""
    answered = {case: reading for case, reading in here.readings.items() if case not in there.readings}
    by_reason: dict[tuple[str, str], list[str]] = {}
    for case in sorted(answered, key=lambda case: size(answered[case].probe)):
        cell = there.verdicts.get(case)
        if cell is not None:
            reason = next(iter(cell.reason.splitlines()), "")
            by_reason.setdefault((cell.verdict, reason), []).append(case)
    for (verdict, reason), cases in by_reason.items():
        yield PortRefusal(verdict, reason, cases[0], len(cases))
