"""The ways in which a call could be taken otherwise than declared, each in words and as a dialect."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from conformance.deviations.catalogue import candidates, find, has_row
from conformance.deviations.deviation import Deviation, Dialect
from conformance.deviations.names import CANONICAL_NAMES, FRAMEWORK_BITS, prior
from conformance.spec.problem import Problem

OF_FLAGS = frozenset({"causal_mask=ignored", "causal_mask=ignored_beside_others"})
"""What is told of the causal flag, and not of the argument that carries it."""

CANONICAL = "canonical"
Way = tuple[str, str]
"""A decision and the way it is taken; `canonical` takes a declared one back."""


@dataclass(frozen=True)
class Explanation:
    """
    One decision that explains a reply.

    declared: how the subject says it takes the decision. budget: what the reply uses of the bound under it.
    """

    decision: str
    name: str
    declared: str
    sentence: str
    remedy: str
    budget: float

    @property
    def way(self) -> Way:
        """The decision as it was taken."""
        return way_of(self.decision, self.name)

    def record(self) -> dict[str, object]:
        """For the run log."""
        return {
            "decision": self.decision,
            "name": self.name,
            "declared": self.declared,
            "sentence": self.sentence,
            "remedy": self.remedy,
            "budget": self.budget,
        }


def way_of(decision: str, name: str) -> Way:
    """A decision and the name that an explanation gives the way it is taken."""
    return decision, CANONICAL if name == CANONICAL_NAMES.get(decision, CANONICAL) else name


def taking(dialect: Dialect, way: Way) -> dict[str, str]:
    """`dialect` with one decision taken in a certain way."""
    decision, name = way
    rest = {each: taken for each, taken in dialect.items() if each != decision}
    return rest if name == CANONICAL else {**rest, decision: name}


def explanation_of(way: Way, problem: Problem, declared: Dialect) -> Explanation | None:
    """A way in words, for a call under a declared dialect; None where the call cannot take it."""
    found = next((each for each, _ in alternatives(problem, declared) if each.way == way), None)
    return _fitted(way) if found is None and way[1] != CANONICAL and not has_row(*way) else found


def _fitted(way: Way) -> Explanation:
    """What the table does not have."""
    row = find(*way)
    return Explanation(*way, CANONICAL_NAMES[way[0]], row.sentence, row.remedy, 0.0)


def ways(problem: Problem, declared: Dialect) -> tuple[Way, ...]:
    """Every single way in which a call could be taken otherwise than declared, and which changes something."""
    return tuple(explanation.way for explanation, _ in alternatives(problem, declared))


def likely(problem: Problem) -> Iterator[Deviation]:
    """
    Every deviation that the problem could show, each told once.

    That a causal flag is ignored is told of the flag, whichever argument carries it: `causal_mask=ignored`.
    """
    flags = {f"use[{group.slot}]" for group in problem.groups if group.offset is not None}
    for deviation in candidates(problem):
        if deviation.decision not in flags or f"causal_mask={deviation.name}" not in OF_FLAGS:
            yield deviation


def plain_ways(problem: Problem, declared: Dialect) -> Collection[Way]:
    """What takes a declared way back, then the ways that people take every day, or a framework takes."""
    every = (way_of(each.decision, each.name) for each in likely(problem))
    plain = (way for way in every if prior(*way) <= FRAMEWORK_BITS)
    return dict.fromkeys((*((decision, CANONICAL) for decision in declared), *plain))


def alternatives(
    problem: Problem, declared: Dialect, among: Collection[Way] | None = None
) -> Iterator[tuple[Explanation, Dialect]]:
    """
    Every single decision taken otherwise than declared, with the dialect: declared ones taken back first.

    among: only these ways, if given.
    """
    for decision, name in declared.items():
        if among is not None and (decision, CANONICAL) not in among:
            continue
        canonical = CANONICAL_NAMES.get(decision, CANONICAL)
        sentence = f"behaves as {decision}={canonical}, while the declaration says {name}"
        rest = {d: n for d, n in declared.items() if d != decision}
        yield Explanation(decision, canonical, name, sentence, "update the declaration", 0.0), rest
    for deviation in likely(problem):
        if among is not None and way_of(deviation.decision, deviation.name) not in among:
            continue
        if declared.get(deviation.decision) == deviation.name:
            continue
        if deviation.problem is not None and deviation.posed(problem) is problem:
            continue
        before = declared.get(deviation.decision, CANONICAL_NAMES.get(deviation.decision, CANONICAL))
        yield (
            Explanation(deviation.decision, deviation.name, before, deviation.sentence, deviation.remedy, 0.0),
            {**declared, deviation.decision: deviation.name},
        )
