"""
What can explain one failing reply, what an explanation costs, and which one is reported.

An explanation is a single deviation from the declared dialect, or few that explain many cells. Its cost is in bits, and
the explanation with the fewest bits is reported: a cause costs its prior and its condition, and each failing cell
without a cause costs UNEXPLAINED bits. So the gain of a cause is the cost of the cells that it explains, minus its own.
"""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log2
from typing import TypeVar

import numpy as np

from conformance.bridge.tensor import Tensor
from conformance.deviations.catalogue import candidates, find
from conformance.deviations.deviation import Deviation, Dialect
from conformance.deviations.names import (
    CANONICAL_NAMES,
    FRAMEWORK_BITS,
    SHORT,
    TOPICS,
    USUAL,
    USUAL_BITS,
    bits_of,
    prior,
    slot_of,
)
from conformance.diagnosis.suspect import Suspect
from conformance.spec.problem import Problem
from conformance.verdicts.expectation import Expectation

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
    canonical = CANONICAL_NAMES.get(decision, CANONICAL)
    current = declared.get(decision, canonical)
    if name != CANONICAL:
        row = find(decision, name)
        return Explanation(decision, name, current, row.sentence, row.remedy, 0.0)
    said = f"{sentence(decision, CANONICAL)}, although it is judged under {decision}={current}"
    return Explanation(decision, canonical, current, said, f"remove {decision}={current} from the declaration", 0.0)


def ways(problem: Problem, declared: Dialect, among: Collection[Way] | None = None) -> Iterator[Way]:
    """
    Every single deviation from the declared dialect that could change something; those that undo a way come first.

    among: if given, only these ways.
    """
    undone = ((decision, CANONICAL) for decision in declared)
    yield from (way for way in undone if among is None or way in among)
    for deviation in likely(problem, among):
        if declared.get(deviation.decision) != deviation.name and deviation.changes(problem):
            yield way_of(deviation.decision, deviation.name)


def likely(problem: Problem, among: Collection[Way] | None = None) -> Iterator[Deviation]:
    """
    Every deviation that the problem could show, each once; if `among` is given, only these.

    That a causal argument is ignored is reported as `causal_mask=ignored`, whichever argument carries it.
    """
    causal = {f"use[{operand.slot}]" for operand in problem.mask_operands if operand.offset is not None}
    for deviation in candidates(problem, among):
        if deviation.decision not in causal or f"causal_mask={deviation.name}" not in OF_CAUSAL_ARGUMENT:
            yield deviation


def plain_ways(problem: Problem, declared: Dialect) -> Collection[Way]:
    """The ways that undo a declared one, then those of everyday mistakes and of frameworks."""
    every = (way_of(each.decision, each.name) for each in likely(problem))
    plain = (way for way in every if prior(*way) <= FRAMEWORK_BITS)
    return dict.fromkeys((*((decision, CANONICAL) for decision in declared), *plain))


# Class of a fail that repetition shows -> sentence; no decision explains it.
NON_REPRODUCIBLE = {
    "nondeterministic": "returns different results for the same call",
    "order_dependent": "returns a result that depends on earlier calls",
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
    return USUAL[family].replace("SLOT", slot or "SLOT")


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


# Bits for a failing cell without a cause: enough to pay for a second everyday mistake in that cell alone.
UNEXPLAINED = 8.0

# Bits for each further deviation that is combined with the first. A usual one, which straightforward code has beside
# any other mistake, is no surprise and costs only its prior.
SECOND_DEVIATION = 4.0

# Bits for each term of a condition that compares a dimension with a number: kernels have such limits, everyday code
# seldom does, and one of them fits almost any few calls.
LIMIT_BITS = 3.0

# Maximum extra cost, in bits, of an explanation that is reported in addition to the best.
MAX_EXTRA_COST = 2.0

# Maximum number of explanations that are reported in addition to the best.
MAX_ALTERNATIVES = 2


def of_change(change: Iterable[Way], *, coarser: bool = False) -> float:
    """The cost of deviations or of coarser arithmetic, in bits; undoing a declared way costs nothing."""
    each = [0.0 if name == CANONICAL else bits_of(decision, name) for decision, name in change]
    surprises = sum(bits != USUAL_BITS for bits in each)
    return sum(each) + SECOND_DEVIATION * max(surprises - 1, 0) + (FRAMEWORK_BITS if coarser else 0.0)


def of_condition(terms: int, conditions: int, limits: int = 0) -> float:
    """
    The cost of a condition with `terms` terms, each chosen from `conditions` possible conditions, in bits.

    limits: how many of the terms compare a dimension with a number, as in "with seq_len_k above 64".
    """
    return terms * log2(max(conditions, 2)) + LIMIT_BITS * limits


def saved(cells: int, cost: float) -> float:
    """The bits saved by an explanation of `cells` failing cells that costs `cost` bits."""
    return UNEXPLAINED * cells - cost


# Number of consecutive searches without a result after which a subject's replies are left to the diagnosis.
FRUITLESS = 8

# Decisions about fully masked rows and about non-finite inputs.
OF_NONFINITE = ("fully_masked_row", "nonfinite_value", "nonfinite_key")


# The share of the bound under a dialect that a suspect's reply uses; None if the dialect cannot explain it.
BudgetUnder = Callable[[Suspect, Dialect], float | None]


def explain(
    suspect: Suspect, among: Collection[Way] | None = None, budget_under: BudgetUnder = Suspect.budget
) -> tuple[Explanation, ...]:
    """
    Every single deviation that explains a reply, the cheapest in bits first; undoing a declared way costs nothing.

    If the reply is not finite and should be, decisions about non-finite values come first, because any deviation that
    gives NaN explains a NaN.

    among: if given, only these ways are tried. budget_under: the share of the bound under a dialect.
    """
    declared, found = suspect.declared.dialect, []
    for way in ways(suspect.problem, declared, among):
        budget = budget_under(suspect, taking(declared, way))
        if budget is not None and budget <= 1.0:
            found.append(replace(explanation_of(way, declared), budget=budget))
    found.sort(key=lambda each: of_change((each.way,)))
    if is_unexpectedly_infinite(suspect.declared, suspect.actual):
        found.sort(key=lambda each: each.decision not in OF_NONFINITE)
    return tuple(found)


def is_unexpectedly_infinite(declared: Expectation, actual: Mapping[str, Tensor]) -> bool:
    """Whether an output that must be finite everywhere has NaN or infinities."""
    return any(
        np.isfinite(each.values).all() and not np.isfinite(actual[name].float64()).all()
        for name, each in declared.reply.items()
    )


class Likely:
    """
    The ways that explained earlier replies of one subject. They are tried first on the next reply.

    A subject has few deviations, but it shows them in hundreds of calls. After FRUITLESS searches in vain, no other
    ways are tried.
    """

    def __init__(
        self, ways: Iterable[Way] = (), *, search: bool = True, budget_under: BudgetUnder = Suspect.budget
    ) -> None:
        """
        Start with some ways. search: whether others are tried, too. budget_under: as of `explain`.

        searched: whether the last reply was compared with every single deviation.
        """
        self._ways, self._budget_under = dict.fromkeys(ways), budget_under
        self._fruitless = 0 if search else FRUITLESS
        self.searched = True

    def explain(self, suspect: Suspect, *, thorough: bool = False) -> tuple[Explanation, ...]:
        """
        As the function `explain`, but deviations of kernels are tried only if `thorough`.

        The diagnosis tries those on a few cells. Everyday mistakes and deviations of frameworks are tried unless too
        many searches in a row found nothing.
        """
        found = explain(suspect, self._ways, self._budget_under) if self._ways else ()
        self.searched = bool(found) or thorough
        if not found and (thorough or self._fruitless < FRUITLESS):
            found = explain(suspect, None if thorough else plain_ways(suspect.problem, suspect.declared.dialect))
            self._fruitless = 0 if found else self._fruitless + 1
            self.searched = self.searched or bool(found)
        # Its ties are not tried first: one that explains another reply would hide the deviation that explains both.
        self._ways.update(dict.fromkeys(each.way for each in found[:1]))
        return found


Key = TypeVar("Key", bound=Hashable)


def fewest(candidates: Mapping[Key, Sequence[str]]) -> dict[Key, str]:
    """
    Choose one cause for every cell so that few causes suffice (greedy set cover).

    candidates: for each cell, the causes that explain it, in order of preference. Each step takes the cause that
    explains most of the remaining cells; of equal ones, the cause that is preferred more often, then the first. Cells
    without a candidate are left out.
    """
    remaining = {key: causes for key, causes in candidates.items() if causes}
    chosen: dict[Key, str] = {}
    while remaining:
        reach = Counter(cause for causes in remaining.values() for cause in dict.fromkeys(causes))
        first = Counter(causes[0] for causes in remaining.values())
        best = max(reach, key=lambda cause: (reach[cause], first[cause]))
        explained = [key for key, causes in remaining.items() if best in causes]
        chosen |= dict.fromkeys(explained, best)
        for key in explained:
            del remaining[key]
    return chosen
