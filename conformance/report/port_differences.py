"""What differs between two subjects for somebody who moves calls from one to the other."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from conformance.deviations.names import slot_of
from conformance.diagnosis.behaviour_profile import divided, size
from conformance.diagnosis.explanation import Way, sentence
from conformance.diagnosis.reading import OF_ARRAYS, Reading
from conformance.engine.adapters import Subject
from conformance.engine.slots import Slot
from conformance.report.call_site_advice import Destination, change
from conformance.report.probe_report import Pictured, declared_text, observed_text
from conformance.spec.masks import KINDS

# Cases that show a difference, with the way of either side.
ObservedDifference = list[tuple[str, tuple[Way, Way]]]

# Verdicts of calls that had a reply.
WITH_REPLY = ("pass", "dialect", "fail", "inconclusive")

FACTS = ("outputs", "dtypes", "capabilities")


@dataclass(frozen=True)
class PortedSubject:
    """One of the two subjects, what was read off its replies, and its records in the run log."""

    subject: Subject
    picture: Pictured
    records: Sequence[Mapping[str, Any]]

    @property
    def name(self) -> str:
        """The subject's name."""
        return self.subject.name

    @property
    def verdicts(self) -> dict[str, Mapping[str, Any]]:
        """Case -> record."""
        return {record["case"]: record for record in self.records}

    @property
    def readings(self) -> dict[str, Reading]:
        """Case -> what its reply says."""
        return {reading.probe.case: reading for reading in self.picture.behaviour.readings}


@dataclass(frozen=True)
class Argument:
    """Where a kind of mask goes on either side; None where a subject has no argument of its own for it."""

    kind: str
    here: Slot | None
    there: Slot | None


@dataclass(frozen=True)
class Difference:
    """
    A decision that the two take in different ways in one and the same case.

    decision: on either side (arguments have other names). declared, observed: in words, on either side. case: of those
    that show it the one of fewest elements. ways: in that case. changes: what to change at the call site; more than one
    where it depends on the circumstances, none where nothing is known to help.
    """

    decision: tuple[str, str]
    declared: tuple[str, str]
    observed: tuple[str, str]
    case: str
    ways: tuple[Way, Way]
    changes: tuple[str, ...]

    @property
    def sentences(self) -> tuple[str, str]:
        """What either side does in the case that shows it."""
        return sentence(*self.ways[0]), sentence(*self.ways[1])


@dataclass(frozen=True)
class Refusal:
    """Cases that the one answers and the other does not, for one reason; case is the one of fewest elements."""

    verdict: str
    reason: str
    case: str
    count: int


@dataclass(frozen=True)
class Port:
    """All that differs; lost and gained: of FACTS, what only the one or only the other has."""

    here: PortedSubject
    there: PortedSubject
    arguments: tuple[Argument, ...]
    differences: tuple[Difference, ...]
    lost: Mapping[str, tuple[str, ...]]
    gained: Mapping[str, tuple[str, ...]]
    refusals: tuple[Refusal, ...]

    @property
    def shared(self) -> int:
        """How many cases were judged on both sides."""
        here, there = (
            {case for case, record in side.verdicts.items() if record["verdict"] in WITH_REPLY}
            for side in (self.here, self.there)
        )
        return len(here & there)


def port(here: PortedSubject, there: PortedSubject) -> Port:
    """Compare two subjects that were asked the same."""
    arguments = tuple(Argument(kind, slot_for(here.subject, kind), slot_for(there.subject, kind)) for kind in KINDS)
    facts = {name: (getattr(here.subject, name), getattr(there.subject, name)) for name in FACTS}
    return Port(
        here,
        there,
        arguments,
        tuple(_differences(here, there, arguments)),
        {name: tuple(each for each in mine if each not in yours) for name, (mine, yours) in facts.items()},
        {name: tuple(each for each in yours if each not in mine) for name, (mine, yours) in facts.items()},
        tuple(_refusals(here, there)),
    )


def slot_for(subject: Subject, kind: str) -> Slot | None:
    """
    The argument or flag that takes a kind of mask in a plain call: a flag first.

    One about whole queries is no mask of that kind, and what stands for a cache is no argument.
    """
    slots = [slot for slot in subject.slots.values() if not slot.only_with]
    flags = (slot for slot in slots if slot.role == kind or (slot.role == "lengths" and kind in slot.takes))
    masks = (slot for slot in slots if slot.role == "mask" and kind in slot.takes and slot.axes != (("b", "q"),))
    return next(iter((*flags, *masks)), None)


def _differences(here: PortedSubject, there: PortedSubject, arguments: Sequence[Argument]) -> Iterator[Difference]:
    names = {a.here.name: a.there.name for a in reversed(arguments) if a.here is not None and a.there is not None}
    for line in here.picture.behaviour.lines:
        other = _counterpart(line.decision, names)
        match = there.picture.behaviour.line(other) if other else None
        if other is None or match is None or not (line.observations and match.observations):
            continue
        found = _observed(here, there, line.decision, other)
        if found:
            case, ways = found[0]
            yield Difference(
                decision=(line.decision, other),
                declared=(declared_text(here.picture, line), declared_text(there.picture, match)),
                observed=(observed_text(line), observed_text(match)),
                case=case,
                ways=ways,
                changes=tuple(_changes(found, there, _destination(there, other, arguments))),
            )


def _destination(there: PortedSubject, decision: str, arguments: Sequence[Argument]) -> Destination:
    """Where a call moves to, as far as a decision of the new side is concerned."""
    additive = next((each.there for each in arguments if each.kind == "additive"), None)
    slot = there.subject.slots.get(slot_of(decision)[1] or "")
    operator = there.picture.behaviour.readings[0].probe.facts.operator
    return Destination(operator, slot, additive)


def _changes(shown: ObservedDifference, there: PortedSubject, to: Destination) -> Iterator[str]:
    """What to change, with the circumstances of the call under which it is where there is more than one."""
    texts = {case: change(*ways, to) for case, ways in shown}

    def is_one(part: Sequence[Reading]) -> bool:
        return len({texts[reading.probe.case] for reading in part}) == 1

    parts = divided([there.readings[case] for case in texts], shown[0][1][1][0], is_one)
    if parts is None:
        yield from filter(None, dict.fromkeys(texts.values()))
        return
    by_text: dict[str, list[str]] = {}
    for words, part in parts.items():
        by_text.setdefault(texts[part[0].probe.case], []).append(words)
    for text, circumstances in by_text.items():
        if text:
            yield f"{'; '.join(circumstances)}: {text}" if len(by_text) > 1 else text


def _counterpart(decision: str, names: Mapping[str, str]) -> str | None:
    """The decision under the name of the other side's argument, or None where it has none for it."""
    family, slot = slot_of(decision)
    if slot is None:
        return decision
    return f"{family}[{names[slot]}]" if slot in names else None


def _observed(here: PortedSubject, there: PortedSubject, mine: str, yours: str) -> ObservedDifference:
    """The cases, those of fewest elements first, in which no way is left open that both could have taken."""
    found, others = [], there.readings
    for case, reading in sorted(here.readings.items(), key=lambda item: size(item[1].probe)):
        other = others.get(case)
        if other is None or not (reading.reaches(mine) and other.reaches(yours)):
            continue
        if slot_of(mine)[0] in OF_ARRAYS and not any(mask.verbatim for mask in reading.probe.facts.masks):
            continue  # the array was converted to what each side documents
        if set(reading.open[mine]).isdisjoint(other.open[yours]):
            found.append((case, ((mine, reading.open[mine][0]), (yours, other.open[yours][0]))))
    return found


def _refusals(here: PortedSubject, there: PortedSubject) -> Iterator[Refusal]:
    """What the other side declines or fails to answer, though this one answers it."""
    answered = {case: reading for case, reading in here.readings.items() if case not in there.readings}
    by_reason: dict[tuple[str, str], list[str]] = {}
    for case in sorted(answered, key=lambda case: size(answered[case].probe)):
        record = there.verdicts.get(case)
        if record is not None:
            reason = str(record.get("reason", "")).splitlines()[0] if record.get("reason") else ""
            by_reason.setdefault((record["verdict"], reason), []).append(case)
    for (verdict, reason), cases in by_reason.items():
        yield Refusal(verdict, reason, cases[0], len(cases))
