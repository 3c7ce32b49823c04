"""
Which single decision, taken otherwise than declared, explains a failing reply.

A variation explains it if the reply lies within the bound of the oracle that takes that decision. Candidates are
screened by a cheap residual; only survivors get a bound.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from conformance.bridge.profile import UNIT, Profile
from conformance.bridge.tensor import Tensor
from conformance.judge.closer import is_closer
from conformance.judge.compare import RMS_LIMIT, averages, compare, has_rms_gate, root_mean_square
from conformance.judge.expectation import Expectation, flat, largest_tolerance
from conformance.oracle.bound import Bound
from conformance.oracle.bounds import UnderivedBound, bound_reply
from conformance.oracle.evaluate import Answer, evaluate
from conformance.oracle.variation import Dialect, Expected, Reply
from conformance.oracle.variations import CANONICAL_NAMES, FITTED, candidates, find
from conformance.spec.problem import Array, Problem

SCREEN = 0.05
"""A candidate that is further off than this fraction of its own largest number is not looked at closer."""

FRUITLESS = 16
"""After so many searches in a row that found nothing, the next replies of a subject are left to the diagnosis."""

OF_NONFINITE = ("fully_masked_row", "nonfinite_value", "nonfinite_key")
"""Decisions about rows without a number and about numbers that are none."""

ROUNDINGS = 8.0
"""A suspect may be off by so many roundings where what is declared is exact, as in a row of zeros."""

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


@dataclass(frozen=True, eq=False)
class Case:
    """A failing reply with what was expected of it, ready to be held against other dialects."""

    problem: Problem
    declared: Expectation
    profile: Profile
    actual: Mapping[str, Tensor]

    def budget(self, dialect: Dialect) -> float | None:
        """
        What the reply uses of the bound under `dialect`: at most 1 where that explains it.

        None where a glance shows that it is far off, or no nearer, or where `dialect` is the declared answer again.
        """
        answer = evaluate(self.problem, dialect, self.profile.score)
        if not self._near(answer.reply) or not separate(self.declared, answer.reply, self.profile):
            return None
        if not is_closer(self.actual, self.declared, answer.reply):
            return None
        return _budget(answer, self.declared, self.profile, self.actual)

    def held_by(self, dialect: Dialect) -> bool:
        """Whether the reply lies within the bound under `dialect`, be that hardly another answer here."""
        answer = evaluate(self.problem, dialect, self.profile.score)
        return self._near(answer.reply) and _budget(answer, self.declared, self.profile, self.actual) <= 1.0

    def explained_by(self, dialect: Dialect) -> bool:
        """Whether the reply lies within the bound under `dialect`, and not for being what is declared."""
        budget = self.budget(dialect)
        return budget is not None and budget <= 1.0

    def _near(self, reply: Reply) -> bool:
        for name, expected in reply.items():
            if not _near(self.actual[name], expected.values, expected.dtype, self.declared.bounds[name]):
                return False
        return True


def _near(actual: Tensor, expected: np.ndarray, dtype: str, bound: Bound) -> bool:
    if actual.shape != expected.shape or actual.dtype != dtype:
        return False
    got = actual.float64()
    if not np.array_equal(np.isfinite(got), np.isfinite(expected)):
        return False
    with np.errstate(invalid="ignore"):
        error = np.nanmax(np.abs(got - expected), initial=0.0)
        limit = SCREEN * np.nanmax(np.abs(expected), initial=0.0) + np.max(bound.tolerance, initial=0.0)
    return bool(error <= limit)


def explain(
    problem: Problem,
    declared: Expectation,
    profile: Profile,
    actual: Mapping[str, Tensor],
    among: Collection[Way] | None = None,
) -> tuple[Explanation, ...]:
    """
    Every single decision that explains `actual`: declared ones taken back first, then in the table's order.

    Where it is not finite, and should be, what is about such numbers comes first: any NaN explains a NaN.

    among: only these ways are tried, if given.
    """
    case = Case(problem, declared, profile, actual)
    found = []
    for explanation, dialect in _alternatives(problem, declared.dialect, among):
        budget = case.budget(dialect)
        if budget is not None and budget <= 1.0:
            found.append(replace(explanation, budget=budget))
    if is_unexpectedly_infinite(declared, actual):
        found.sort(key=lambda each: each.decision not in OF_NONFINITE)
    return tuple(found)


def is_unexpectedly_infinite(declared: Expectation, actual: Mapping[str, Tensor]) -> bool:
    """Whether a reply has NaN or infinities where numbers are expected throughout."""
    return any(
        np.isfinite(each.values).all() and not np.isfinite(actual[name].float64()).all()
        for name, each in declared.reply.items()
    )


class Likely:
    """
    What explained replies of one subject so far: tried first, and alone where nothing else was found for long.

    A subject takes few decisions otherwise than declared, but it does so in hundreds of calls.
    """

    def __init__(self) -> None:
        """Begin with nothing seen; searched: whether the last reply was held against every single decision."""
        self._ways: dict[Way, None] = {}
        self._fruitless = 0
        self.searched = True

    def explain(
        self,
        problem: Problem,
        declared: Expectation,
        profile: Profile,
        actual: Mapping[str, Tensor],
        *,
        thorough: bool = False,
    ) -> tuple[Explanation, ...]:
        """As the function; what never explained anything is tried too if `thorough`, or not in vain before."""
        found = explain(problem, declared, profile, actual, self._ways) if self._ways else ()
        self.searched = bool(found) or thorough or self._fruitless < FRUITLESS
        if not found and self.searched:
            found = explain(problem, declared, profile, actual)
            self._fruitless = 0 if found else self._fruitless + 1
        self._ways.update(dict.fromkeys(each.way for each in found))
        return found


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
    found = next((each for each, _ in _alternatives(problem, declared) if each.way == way), None)
    return _fitted(way) if found is None and way[0] in FITTED else found


def _fitted(way: Way) -> Explanation:
    """What the table does not have."""
    row = find(*way)
    return Explanation(*way, CANONICAL_NAMES[way[0]], row.sentence, row.remedy, 0.0)


def ways(problem: Problem, declared: Dialect) -> tuple[Way, ...]:
    """Every single way in which a call could be taken otherwise than declared, and which changes something."""
    return tuple(explanation.way for explanation, _ in _alternatives(problem, declared))


def _alternatives(
    problem: Problem, declared: Dialect, among: Collection[Way] | None = None
) -> Iterator[tuple[Explanation, Dialect]]:
    for decision, name in declared.items():
        if among is not None and (decision, CANONICAL) not in among:
            continue
        canonical = CANONICAL_NAMES.get(decision, CANONICAL)
        sentence = f"takes {decision} as {canonical}, though {name} is declared: the declaration is stale"
        rest = {d: n for d, n in declared.items() if d != decision}
        yield Explanation(decision, canonical, name, sentence, "update the declaration", 0.0), rest
    for variation in candidates(problem):
        if among is not None and way_of(variation.decision, variation.name) not in among:
            continue
        if declared.get(variation.decision) == variation.name:
            continue
        if variation.problem is not None and variation.problem(problem) is problem:
            continue
        before = declared.get(variation.decision, CANONICAL_NAMES.get(variation.decision, CANONICAL))
        yield (
            Explanation(variation.decision, variation.name, before, variation.sentence, variation.remedy, 0.0),
            {**declared, variation.decision: variation.name},
        )


def separate(declared: Expectation, reply: Reply, profile: Profile) -> bool:
    """
    Whether another reply is another answer here, beyond the bound, by an element or by the root mean square.

    What is not cannot explain anything.
    """
    return declared.separates(reply) or (
        has_rms_gate(profile) and any(_together(declared, reply, name) for name in reply)
    )


def _together(declared: Expectation, reply: Reply, name: str) -> bool:
    """Whether small differences of many elements amount to more than the second gate allows."""
    one, other, bound = declared.reply[name].values, reply[name].values, declared.bounds[name]
    if not averages(name, one.size):
        return False
    with np.errstate(invalid="ignore"):
        return root_mean_square(np.abs(one - other), bound) > RMS_LIMIT


def _budget(answer: Answer, declared: Expectation, profile: Profile, actual: Mapping[str, Tensor]) -> float:
    """
    What the reply uses of the bound under a candidate.

    Where no bound is derived for it (rows that do not sum to one), the declared one stands in, as much larger as the
    numbers are: good enough to name a suspect, never to declare one.
    """
    try:
        bounds = bound_reply(answer, profile)
    except UnderivedBound:
        attended = np.where(answer.state.allowed, answer.state.scaled, 0.0)
        computed = max((variation.roundings for variation in answer.variations), default=0.0)
        if UNIT[profile.soft] * computed > SCREEN:  # what is as coarse as that could be anything
            return float("inf")
        rounded = max(UNIT[profile.score] * _largest(attended), UNIT[profile.soft] * computed)
        bounds = {name: _standing_in(declared, name, other, rounded) for name, other in answer.reply.items()}
    used = [0.0]
    for name, expected in answer.reply.items():
        if bounds[name].hard.shape != expected.values.shape:
            return float("inf")
        gate = has_rms_gate(profile)
        used.append(compare(name, expected, actual[name], bounds[name], rms_gate=gate).budget)
    return max(used)


def _standing_in(declared: Expectation, name: str, other: Expected, rounded: float) -> Bound:
    """
    The largest tolerance for all, times the growth of the largest number, at least some roundings of that.

    rounded: by what part of itself a weight may move since its logit is rounded, which does not show where the weights
    that are declared are saturated, or since it is computed otherwise.
    """
    bound = declared.bounds[name]
    one, most = _largest(declared.reply[name].values), _largest(other.values)
    grown = max(1.0, most / one) if one else 1.0
    least = max(ROUNDINGS * UNIT[other.dtype], rounded) * most
    return flat(bound, other.values.shape, max(grown * largest_tolerance(bound), least))


def _largest(values: Array) -> float:
    return float(np.max(np.abs(values), initial=0.0, where=np.isfinite(values)))
