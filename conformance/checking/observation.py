"""Decisions without consensus: which way a function takes them. They are read off its replies first."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Literal

import numpy as np

from conformance.bridge.profile import Profile
from conformance.checking import array_layouts, layer
from conformance.checking.adapter_text import (
    ADAPTER,
    ARRAYS_FILE,
    DECLARED,
    FUNCTION,
    LAYER_FILE,
    adapter_text,
    function_text,
)
from conformance.checking.arithmetic import (
    CANDIDATES,
    PROFILES,
    calibrated,
    evident_cause,
    fallback,
    ordinary,
    profiles_by_dtype,
    profiles_named,
)
from conformance.checking.declarations import Declared
from conformance.checking.probe_calls import BASIS, Answers, asked_first, is_open, plan_of, probe, reply_of
from conformance.checking.signature import Signature
from conformance.checking.target import Target
from conformance.deviations.catalogue import TABLE
from conformance.deviations.deviation import Dialect
from conformance.deviations.evaluate import evaluate
from conformance.deviations.names import CANONICAL_NAMES
from conformance.diagnosis.suspect import Suspect
from conformance.disk import scratch
from conformance.engine.adapters import Subject, read_adapter
from conformance.spec.case import Case
from conformance.spec.problem import Problem
from conformance.verdicts.compare import differs
from conformance.verdicts.expectation import Expectation, expect

# A decision and the name of the way in which it is taken; None is canonical.
Way = tuple[str, str] | None

# A way of each decision.
Combination = Mapping[str, Way]

# Decision -> the name of a way in which it is taken -> a case in which it is.
Varying = Mapping[str, Mapping[str, str]]

ANCHOR = ("causal_alignment", "bottom_right")
# It shows in fully masked rows alone, and there it depends on what else masks.
FINITE_FILL = ("mask_fill", "finite_minimum")


def _all_ways(decision: str) -> tuple[Way, ...]:
    return (None, *((row.decision, row.name) for row in TABLE if row.decision == decision))


# The known ways of each; other anchors of a causal mask are off by one, and mistakes.
OPEN_DECISIONS: dict[str, tuple[Way, ...]] = {
    "mask_fill": (None, FINITE_FILL),
    "fully_masked_row": _all_ways("fully_masked_row"),
    "causal_alignment": (None, ANCHOR),
    "nonfinite_key": _all_ways("nonfinite_key"),
    "nonfinite_value": _all_ways("nonfinite_value"),
}

# Where less than this part of the replies is explained by any way, something else is wrong: see what is finite.
MIN_EXPLAINED = 0.75


@dataclass(frozen=True)
class Observed:
    """
    What was seen.

    dialect: decisions that are taken otherwise than canonical, the same way wherever they matter. varies: decisions
    that are taken now one way and now another.
    """

    dialect: Mapping[str, str]
    varies: Varying = field(default_factory=dict)


@dataclass(frozen=True)
class Fit:
    """
    A reply to a case on which there is no consensus, and the combinations of ways that explain it.

    alone: those that explain it by themselves. beside: those that do beside the cause. finite: tells those under which
    just the numbers that are finite are, whatever else is wrong with them.
    """

    case: str
    matters: frozenset[str]
    alone: tuple[Combination, ...]
    beside: tuple[Combination, ...]
    finite: Callable[[], tuple[Combination, ...]]

    def ways(self, decision: str, *, alone: bool = False) -> list[Way]:
        """Of one decision, the ways in those combinations."""
        found = self.alone if alone else (*self.alone, *self.beside)
        return list(dict.fromkeys(combination[decision] for combination in found))

    def taking(self, decision: str, way: Way) -> "Fit":
        """What is left of it where the decision is taken in this way."""
        if decision not in self.matters:
            return self
        alone, beside = (tuple(each for each in found if each[decision] == way) for found in (self.alone, self.beside))
        return replace(self, alone=alone, beside=beside)


def observe(answers: Answers, profiles: Mapping[str, Profile], declared: Declared, cause: Dialect) -> Observed:
    """
    Find, for each decision that is not declared, the way that explains every reply that any way explains.

    cause: what is wrong with the function already on plain cases.
    """
    decisions = [decision for decision in OPEN_DECISIONS if not declared.pins(decision)]
    fits = list(_fits(answers, profiles, (declared.dialect, cause), decisions))
    dialect: dict[str, str] = {}
    varies: dict[str, Mapping[str, str]] = {}
    for decision in decisions:
        asked = [fit for fit in fits if decision in fit.matters]
        seen = [fit for fit in asked if fit.alone or fit.beside]
        if len(seen) < MIN_EXPLAINED * len(asked):
            dialect |= _dialect(_of_what_is_finite(decision, asked))
            continue
        way = _common(decision, seen)
        dialect |= _dialect(way or None)
        if way is False:
            varies[decision] = _examples(decision, seen)
        else:
            fits = [fit.taking(decision, way) if fit.alone or fit.beside else fit for fit in fits]
    return Observed(dialect, varies)


def _fits(
    answers: Answers, profiles: Mapping[str, Profile], dialects: tuple[Dialect, Dialect], decisions: list[str]
) -> Iterator[Fit]:
    """dialects: what is declared, and the cause."""
    declared, cause = dialects
    for cell, outcome in answers:
        problem, profile = cell.route.problem, profiles[cell.case.dtype]
        if not is_open(cell.case, problem):
            continue
        plain = expect(problem, {}, profile)
        matters = [each for each in decisions if _matters(problem, plain, each, profile)]
        if matters:
            every = [
                dict(zip(matters, ways, strict=True)) for ways in product(*(OPEN_DECISIONS[each] for each in matters))
            ]
            suspected = reply_of(cell, outcome, {}, profile).suspect()
            routed = suspected.declared.dialect
            alone, beside = (
                tuple(each for each in every if suspected.held_by({**routed, **dialect, **_composed(each)}))
                for dialect in (declared, {**declared, **cause})
            )
            yield Fit(cell.case.id, frozenset(matters), alone, beside, partial(_finite, suspected, every))


def _finite(suspected: Suspect, every: Iterable[Combination]) -> tuple[Combination, ...]:
    """None where a number is finite that must not be: that is another matter than what spreads."""
    for name, each in suspected.declared.reply.items():
        got = suspected.actual[name].float64()
        if got.shape != each.values.shape or np.any(np.isfinite(got) & ~np.isfinite(each.values)):
            return ()
    return tuple(each for each in every if _is_finite_as(suspected, _composed(each)))


def _of_what_is_finite(decision: str, asked: list[Fit]) -> Way:
    """The most canonical way by which just those numbers are finite that are, in every reply; None if there is none."""
    ways = [{combination[decision] for combination in fit.finite()} for fit in asked]
    return next((way for way in OPEN_DECISIONS[decision] if all(way in found for found in ways)), None)


def _is_finite_as(suspected: Suspect, dialect: Dialect) -> bool:
    """Whether just those numbers of a reply are finite that are so under a dialect."""
    declared = {**suspected.declared.dialect, **dialect}
    reply = evaluate(suspected.problem, declared, suspected.profile.score).reply
    return all(
        np.array_equal(np.isfinite(each.values), np.isfinite(suspected.actual[name].float64()))
        for name, each in reply.items()
    )


def _matters(problem: Problem, plain: Expectation, decision: str, profile: Profile) -> bool:
    """Whether any way of a decision gives another answer here than canonical, were all else right."""
    others = (
        evaluate(problem, _dialect(way), profile.score).reply for way in OPEN_DECISIONS[decision] if way is not None
    )
    return any(differs(plain.reply[name], other[name], plain.bounds[name]) for other in others for name in other)


def _dialect(way: Way) -> dict[str, str]:
    return {} if way is None else dict([way])


def _composed(combination: Combination) -> dict[str, str]:
    return dict(way for way in combination.values() if way is not None)


def _common(decision: str, seen: list[Fit]) -> Way | Literal[False]:
    """The way that explains all, and most of them without the cause, the most canonical first; False if none does."""
    common = [way for way in OPEN_DECISIONS[decision] if all(way in fit.ways(decision) for fit in seen)]
    return max(common, key=lambda way: sum(way in fit.ways(decision, alone=True) for fit in seen), default=False)


def _examples(decision: str, seen: list[Fit]) -> dict[str, str]:
    """One example of each way that was seen."""
    examples: dict[str, str] = {}
    for fit in seen:
        _, name = fit.ways(decision)[0] or (decision, CANONICAL_NAMES[decision])
        examples.setdefault(name, fit.case)
    return examples


OBSERVED = "observed by conformance check"


@dataclass(frozen=True)
class SettledFunction:
    """
    The names of the profiles by dtype, and what was observed beside what is declared.

    read: of the profiles, those that were read off replies or given.
    """

    signature: Signature
    declared: Declared
    profiles: Mapping[str, str]
    read: Mapping[str, str]
    observed: Observed

    def files(self, target: Target) -> dict[str, str]:
        """The adapter that declares it, and its helper."""
        sources = [(self.declared.dialect, DECLARED), (self.observed.dialect, OBSERVED)]
        dialect = tuple((decision, name, source) for each, source in sources for decision, name in each.items())
        profiles = profiles_named(self.profiles)
        text = adapter_text(target, self.signature, self.declared.polarity, profiles, dialect)
        helpers = {ARRAYS_FILE: array_layouts}
        if self.signature.built is not None:
            helpers[LAYER_FILE] = layer
        copies = {name: Path(str(module.__file__)).read_text(encoding="utf-8") for name, module in helpers.items()}
        return {ADAPTER: text, FUNCTION: function_text(target, str(Path.cwd()), self.signature.method)} | copies


def settle(
    target: Target,
    signature: Signature,
    declared: Declared,
    profile: str | None,
    cases: Sequence[Case],
    timeout: float,
) -> SettledFunction:
    """Ask the function plain cases and those without consensus, and settle what it is judged under."""
    said = profiles_by_dtype(profile, CANDIDATES) if profile else {}
    before = SettledFunction(signature, declared, {dtype: ordinary(dtype) for dtype in CANDIDATES}, {}, Observed({}))
    with scratch() as folder:
        subject = write_adapter(Path(folder), before.files(target))
        answers = probe(asked_first(cases), subject, plan_of(subject), timeout)
    cause = evident_cause(answers, declared.dialect, PROFILES[said.get(BASIS, ordinary(BASIS))](BASIS))
    read = {**calibrated(answers, declared.dialect, cause), **said}
    names = {dtype: fallback(dtype) for dtype in CANDIDATES} | read
    return SettledFunction(signature, declared, names, read, observe(answers, profiles_named(names), declared, cause))


def write_adapter(folder: Path, files: Mapping[str, str]) -> Subject:
    """Write the generated files and read the adapter among them."""
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return Subject(read_adapter(folder / ADAPTER))
