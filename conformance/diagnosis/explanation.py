"""The single deviations from the declared dialect that a call could show, each as a dialect and as a sentence."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from conformance.deviations.catalogue import candidates, find
from conformance.deviations.deviation import Deviation, Dialect
from conformance.deviations.names import CANONICAL_NAMES, FRAMEWORK_BITS, SHORT, TOPICS, USUAL, prior, slot_of
from conformance.spec.problem import Problem

# Deviations that are reported for the causal mask instead of the argument that carries it.
OF_CAUSAL_ARGUMENT = frozenset({"causal_mask=ignored", "causal_mask=ignored_beside_others"})

CANONICAL = "canonical"
# A decision and the way in which it is taken; `canonical` undoes a declared way.
Way = tuple[str, str]


@dataclass(frozen=True)
class Explanation:
    """
    One deviation that explains a reply.

    declared: the declared way of the decision. budget: the share of the bound that the reply uses under the deviation.
    """

    decision: str
    name: str
    declared: str
    sentence: str
    remedy: str
    budget: float

    @property
    def way(self) -> Way:
        """The decision and the way in which it was taken."""
        return way_of(self.decision, self.name)

    def record(self) -> dict[str, object]:
        """The record for the run log."""
        return {
            "decision": self.decision,
            "name": self.name,
            "declared": self.declared,
            "sentence": self.sentence,
            "remedy": self.remedy,
            "budget": self.budget,
        }


def way_of(decision: str, name: str) -> Way:
    """The way for a decision and a name; the decision's own canonical name becomes `canonical`."""
    return decision, CANONICAL if name == CANONICAL_NAMES.get(decision, CANONICAL) else name


def taking(dialect: Dialect, way: Way) -> dict[str, str]:
    """`dialect` with one decision taken in the given way."""
    decision, name = way
    rest = {each: taken for each, taken in dialect.items() if each != decision}
    return rest if name == CANONICAL else {**rest, decision: name}


def explanation_of(way: Way, declared: Dialect) -> Explanation:
    """A way as an explanation, under a declared dialect; it need not apply to every call of its cause."""
    decision, name = way
    if name == CANONICAL:
        return _undone(decision, declared[decision])
    row = find(decision, name)
    return Explanation(decision, name, CANONICAL_NAMES.get(decision, CANONICAL), row.sentence, row.remedy, 0.0)


def _undone(decision: str, name: str) -> Explanation:
    """That a decision is made as usual although something else is declared."""
    canonical = CANONICAL_NAMES.get(decision, CANONICAL)
    sentence = f"makes the canonical choice of {decision} ({canonical}), but {name} is declared"
    return Explanation(decision, canonical, name, sentence, f"remove {decision}={name} from the declaration", 0.0)


def ways(problem: Problem, declared: Dialect) -> tuple[Way, ...]:
    """Every single deviation from the declared dialect that could change something in a call."""
    return tuple(explanation.way for explanation, _ in alternatives(problem, declared))


def likely(problem: Problem) -> Iterator[Deviation]:
    """
    Every deviation that the problem could show, each once.

    That a causal argument is ignored is reported as `causal_mask=ignored`, whichever argument carries it.
    """
    causal = {f"use[{operand.slot}]" for operand in problem.mask_operands if operand.offset is not None}
    for deviation in candidates(problem):
        if deviation.decision not in causal or f"causal_mask={deviation.name}" not in OF_CAUSAL_ARGUMENT:
            yield deviation


def plain_ways(problem: Problem, declared: Dialect) -> Collection[Way]:
    """The ways that undo a declared one, then those of everyday mistakes and of frameworks."""
    every = (way_of(each.decision, each.name) for each in likely(problem))
    plain = (way for way in every if prior(*way) <= FRAMEWORK_BITS)
    return dict.fromkeys((*((decision, CANONICAL) for decision in declared), *plain))


def alternatives(
    problem: Problem, declared: Dialect, among: Collection[Way] | None = None
) -> Iterator[tuple[Explanation, Dialect]]:
    """
    Every single deviation from the declared dialect, with its dialect; those that undo a declared way come first.

    among: if given, only these ways.
    """
    for decision, name in declared.items():
        if among is not None and (decision, CANONICAL) not in among:
            continue
        yield _undone(decision, name), {d: n for d, n in declared.items() if d != decision}
    for deviation in likely(problem):
        if among is not None and way_of(deviation.decision, deviation.name) not in among:
            continue
        if declared.get(deviation.decision) == deviation.name:
            continue
        if deviation.problem is not None and deviation.posed(problem) is problem:
            continue
        current = declared.get(deviation.decision, CANONICAL_NAMES.get(deviation.decision, CANONICAL))
        yield (
            Explanation(deviation.decision, deviation.name, current, deviation.sentence, deviation.remedy, 0.0),
            {**declared, deviation.decision: deviation.name},
        )


# Class of a fail that repetition shows -> sentence; no decision explains it.
NON_REPRODUCIBLE = {
    "nondeterministic": "returns different results for the same call",
    "order_dependent": "returns a different result for the same call after other calls",
}


def sentence(decision: str, name: str) -> str:
    """
    What a subject does that takes a decision in this way; completes "it ...".

    Raises:
        KeyError: the table of deviations has no such row.
    """
    family, slot = slot_of(decision)
    if name != CANONICAL and name != CANONICAL_NAMES.get(decision):
        return find(decision, name).sentence
    if family in USUAL:
        return USUAL[family].replace("SLOT", slot or "SLOT")
    return f"makes the canonical choice of {decision} ({CANONICAL_NAMES.get(decision, CANONICAL)})"


def turned(decision: str, before: str, now: str) -> tuple[str, str] | None:
    """A changed decision in short words, new and old: ("a fully masked row is zero", "NaN"); None if not named."""
    family, slot = slot_of(decision)
    names = [
        SHORT.get(f"{family}={CANONICAL if name == CANONICAL_NAMES.get(decision) else name}") for name in (now, before)
    ]
    if family not in TOPICS or None in names:
        return None
    return f"{TOPICS[family].replace('SLOT', slot or 'SLOT')} {names[0]}", str(names[1])


def short(decision: str, name: str) -> str:
    """The short words for a way; if there are none, its name."""
    return SHORT.get(f"{slot_of(decision)[0]}={name}", name)
