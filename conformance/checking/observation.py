"""Observe how a function makes the decisions on which there is no consensus, before it is judged."""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from math import inf
from typing import Literal

import numpy as np

from conformance.bridge.profile import UNIT, Profile
from conformance.checking.arithmetic import ANCHOR
from conformance.checking.declarations import Declared
from conformance.checking.probe_calls import Answers, Expectations, is_open
from conformance.deviations.catalogue import TABLE, evaluate
from conformance.deviations.deviation import Dialect, Reply
from conformance.deviations.names import CANONICAL_NAMES
from conformance.deviations.nonfinite import OF_MASKED_NAN
from conformance.diagnosis.diagnosis import Diagnosis, diagnose
from conformance.diagnosis.explanation import of_change
from conformance.diagnosis.suspect import OF_RESULTS, Suspect
from conformance.spec.problem import Problem
from conformance.verdicts.compare import differs
from conformance.verdicts.expectation import Expectation

# A decision and the name of a deviation of it; None is canonical.
Way = tuple[str, str] | None

# Decision -> the way in which it is made.
Combination = Mapping[str, Way]

# Decision that is made inconsistently -> name of each way that occurs -> a case in which it does.
Varying = Mapping[str, Mapping[str, str]]

# It shows in fully masked rows only, and there it depends on the other masks.
FINITE_FILL = ("mask_fill", "finite_minimum")
FULLY_MASKED = "fully_masked_row"


def _all_ways(decision: str) -> tuple[Way, ...]:
    return (None, *((row.decision, row.name) for row in TABLE if row.decision == decision))


# The accepted ways of each open decision; other causal alignments are off-by-one mistakes. flash-attention aligns
# causal masks and windows to the last key.
OPEN_DECISIONS: dict[str, tuple[Way, ...]] = {
    "mask_fill": (None, FINITE_FILL),
    "fully_masked_row": _all_ways("fully_masked_row"),
    "causal_alignment": (None, ANCHOR),
    "window_alignment": (None, ("window_alignment", "bottom_right")),
    "nonfinite_key": _all_ways("nonfinite_key"),
    "nonfinite_value": _all_ways("nonfinite_value"),
}

# The dtype in which a fill such as -1e9 is -inf.
NARROW = "float16"

# The decisions that a finite fill makes. They may be made in another way in NARROW.
OF_FILL = ("mask_fill", FULLY_MASKED)

# Minimum share of the replies that the ways must explain; if they explain fewer, only the finite pattern is compared.
MIN_EXPLAINED = 0.75


@dataclass(frozen=True)
class ObservedDecisions:
    """
    The observed behaviour.

    dialect: decisions with the same deviation in every case in which they matter. varies: decisions that are made
    inconsistently. of_dtypes: dtype -> dialect of the decisions that differ between dtypes, but not within one.
    left_open: decisions that the replies leave open, each with its possible ways, the most canonical first: those that
    vary, and those that too few replies show without an unknown mistake. split: dtypes -> what calls in them alone
    show, if a fill may do something else in NARROW.
    """

    dialect: Mapping[str, str]
    varies: Varying = field(default_factory=dict)
    of_dtypes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    left_open: Mapping[str, tuple[Way, ...]] = field(default_factory=dict)
    split: Mapping[tuple[str, ...], "ObservedDecisions"] = field(default_factory=dict)

    def under(self, dtype: str) -> dict[str, str]:
        """Return the dialect in calls of a dtype."""
        return {**self.dialect, **self.of_dtypes.get(dtype, {})}

    def split_by_dtype(self) -> "ObservedDecisions":
        """Return the decisions, those that a fill makes by dtype."""
        of_dtypes = {
            dtype: {name: each.dialect[name] for name in OF_FILL if name in each.dialect}
            for dtypes, each in self.split.items()
            for dtype in dtypes
        }
        return ObservedDecisions(
            {decision: name for decision, name in self.dialect.items() if decision not in OF_FILL},
            {decision: examples for decision, examples in self.varies.items() if decision not in OF_FILL},
            of_dtypes,
            {decision: ways for decision, ways in self.left_open.items() if decision not in OF_FILL},
        )


@dataclass(frozen=True)
class ObservedFit:
    """
    A reply to a case on which there is no consensus, with the combinations of ways that explain it.

    matters: the decisions that change the reply. alone: combinations that explain the reply. with_cause: combinations
    that explain it together with the cause. finite: returns the combinations that give the observed pattern of finite
    values, whatever the values are.
    """

    case: str
    dtype: str
    matters: frozenset[str]
    alone: tuple[Combination, ...]
    with_cause: tuple[Combination, ...]
    finite: Callable[[], tuple[Combination, ...]]

    def ways(self, decision: str, *, alone: bool = False) -> list[Way]:
        """Return the ways of one decision in these combinations; alone: without those that need the cause."""
        combinations = self.alone if alone else (*self.alone, *self.with_cause)
        return list(dict.fromkeys(combination[decision] for combination in combinations))

    @property
    def can_fill(self) -> bool:
        """Return whether a finite fill explains the reply."""
        return FINITE_FILL[0] in self.matters and FINITE_FILL in self.ways(FINITE_FILL[0])

    def preferring(self, decision: str, way: Way) -> "ObservedFit":
        """Return the fit with only the combinations in which the decision is made this way, if there are any."""
        if decision not in self.matters:
            return self
        alone, with_cause = (
            tuple(each for each in combinations if each[decision] == way)
            for combinations in (self.alone, self.with_cause)
        )
        return replace(self, alone=alone, with_cause=with_cause) if alone or with_cause else self


def observe(
    answers: Answers, expected: Expectations, profiles: Mapping[str, Profile], declared: Declared, cause: Dialect
) -> ObservedDecisions:
    """
    Find for each decision that is not declared the way that explains every reply that any way explains.

    A reply may contradict what is declared and still show how the other decisions are made. cause: the deviation that
    plain cases already show.
    """
    decisions = [decision for decision in OPEN_DECISIONS if decision != FINITE_FILL[0] or _is_fill_open(declared)]
    mistake = dict(way for way in cause.items() if way not in OPEN_DECISIONS.get(way[0], ()))
    fits = list(_fits(answers, expected, profiles, (declared.dialect, mistake), decisions))
    whole = _observed(fits, decisions, declared)
    found = {
        tuple(dict.fromkeys(fit.dtype for fit in some)): _observed(some, decisions, declared)
        for some in ([fit for fit in fits if (fit.dtype == NARROW) is narrow] for narrow in (False, True))
        if some
    }
    fill_open = not whole.left_open.keys().isdisjoint(OF_FILL)
    alike = all(each.dialect.get(name) == whole.dialect.get(name) for each in found.values() for name in OF_FILL)
    if alike and not (fill_open and len(found) > 1):
        return whole
    split = replace(whole, split=found)
    is_clear = all(each.varies.keys().isdisjoint(OF_FILL) for each in found.values())
    return split.split_by_dtype() if is_clear and not whole.varies.keys().isdisjoint(OF_FILL) else split


def _observed(fits: list[ObservedFit], decisions: Iterable[str], declared: Declared) -> ObservedDecisions:
    """Return how each decision is made in these calls."""
    dialect: dict[str, str] = {}
    varies: dict[str, Mapping[str, str]] = {}
    left_open: dict[str, tuple[Way, ...]] = {}
    can_fill = any(fit.can_fill for fit in fits)
    for decision in (each for each in decisions if not declared.pins(each)):
        asked = [fit for fit in fits if decision in fit.matters]
        seen = _seen(asked)
        # A finite fill decides what a fully masked row returns, too.
        filled = (FINITE_FILL,) if decision == FULLY_MASKED and can_fill else ()
        if seen is None:
            way = _by_finite_pattern(decision, asked)
            dialect |= _dialect(way)
            left_open[decision] = tuple(dict.fromkeys((way, _most_common(decision, asked), *filled)))
            # Calls in which this decision matters show another mistake, which may look like a further decision. But NaN
            # in a fully masked row is no fill.
            fits = fits if decision == FINITE_FILL[0] else [fit for fit in fits if decision not in fit.matters]
            continue
        common = _common(decision, seen)
        if common is False:
            varies[decision] = _examples(decision, seen)
            occur = (way for way in OPEN_DECISIONS[decision] if _name(decision, way) in varies[decision])
            left_open[decision] = (*occur, *filled)
        way = common or None
        dialect |= _dialect(way)
        fits = [fit.preferring(decision, way) for fit in fits]
    return ObservedDecisions(dialect, varies, left_open=left_open)


class Diagnoses:
    """Diagnoses of the same replies under several dialects, each made once."""

    def __init__(
        self, answers: Answers, expected: Expectations, profiles: Mapping[str, Profile], declared: Declared
    ) -> None:
        """Start with none."""
        self._answers, self._expected, self._profiles, self._declared = answers, expected, profiles, declared.dialect
        self._known: dict[Hashable, Diagnosis] = {}

    def under(self, observed: ObservedDecisions, among: Sequence[str] = ()) -> Diagnosis:
        """Return the diagnosis of all replies, or of those in some dtypes, under observed decisions."""
        asked = [each for each in self._answers if not among or each[0].case.dtype in among]
        dtypes = dict.fromkeys(cell.case.dtype for cell, _ in asked)
        dialects = {each: {**self._declared, **observed.under(each)} for each in dtypes}
        key = tuple((each, frozenset(dialect.items())) for each, dialect in dialects.items())
        if key not in self._known:
            under = {each: (dialects[each], self._profiles[each]) for each in dtypes}
            self._known[key] = diagnose([self._expected.evidence(*each, *under[each[0].case.dtype]) for each in asked])
        return self._known[key]


def decided(observed: ObservedDecisions, diagnoses: Diagnoses) -> ObservedDecisions:
    """
    Return the best way for each decision that is left open: the one under which the fewest bits describe all replies.

    For example, a mistake may be why a decision varies: a row that a finite fill hides is not fully masked. If the
    decision varies under the best way too, this way costs as much as a mistake.
    """
    settled = observed.left_open.keys().isdisjoint(OF_FILL)
    if not observed.split or (settled and not _tells(diagnoses.under(observed), OF_FILL)):
        return _best_ways(observed, diagnoses.under)
    parts = {some: _best_ways(part, partial(diagnoses.under, among=some)) for some, part in observed.split.items()}
    split = _best_ways(replace(observed, split=parts).split_by_dtype(), diagnoses.under)
    return min(_best_ways(observed, diagnoses.under), split, key=lambda each: diagnoses.under(each).bits)


def _best_ways(observed: ObservedDecisions, diagnosed: Callable[[ObservedDecisions], Diagnosis]) -> ObservedDecisions:
    """Return the decisions with the best way for each one that is left open."""
    for decision, ways in observed.left_open.items():
        observed = _with_best(observed, decision, ways, diagnosed)
        if FINITE_FILL in ways and decision == FULLY_MASKED:
            # Beside a fill, an additive mask can still add -inf.
            filled = FINITE_FILL in observed.dialect.items()
            other = [way for way in ways if way != FINITE_FILL] if filled else (None, FINITE_FILL)
            observed = _with_best(observed, decision if filled else FINITE_FILL[0], other, diagnosed)
    return observed


def _with_best(
    observed: ObservedDecisions,
    decision: str,
    ways: Sequence[Way],
    diagnosed: Callable[[ObservedDecisions], Diagnosis],
) -> ObservedDecisions:
    """Return the decisions with the best of the ways of one of them, if another than the first one is better."""
    others = {name: way for name, way in observed.dialect.items() if name != decision}
    concerned = {decision, *(way[0] for way in ways if way is not None)}
    best, least = observed, inf
    for way in ways if len(ways) > 1 else ():
        tried = replace(observed, dialect=others | _dialect(way))
        diagnosis = diagnosed(tried)
        if diagnosis.has_unknown_mistake:
            return best
        bits = diagnosis.bits + (_of_varying(way, diagnosis, concerned) if way else 0.0)
        if bits < least:
            best, least = tried, bits
        if not _tells(diagnosis, concerned):
            break
    return replace(best, dialect={name: best.dialect[name] for name in OPEN_DECISIONS if name in best.dialect})


def _of_varying(way: tuple[str, str], diagnosis: Diagnosis, concerned: Collection[str]) -> float:
    """
    Return what a way costs in addition if a cause says that its decision is made differently in some calls.

    A cause that undoes a way has no prior cost. But then the way itself could be the mistake, under the opposite
    condition, so it costs as much as that.
    """
    undone = [cause for cause in diagnosis.causes if any(each in concerned for each, _ in cause.candidate.change)]
    return of_change([way]) + sum(cause.condition_bits for cause in undone) if undone else 0.0


def _names(diagnosis: Diagnosis, decisions: Collection[str]) -> bool:
    """Return whether a cause is about one of these decisions."""
    return any(decision in decisions for cause in diagnosis.causes for decision, _ in cause.candidate.change)


def _tells(diagnosis: Diagnosis, decisions: Collection[str]) -> bool:
    """Return whether another way of these decisions may explain more: a cause is about them, or a call has no cause."""
    return bool(diagnosis.unexplained) or _names(diagnosis, decisions)


def _seen(asked: list[ObservedFit]) -> list[ObservedFit] | None:
    """
    Return the replies that are explained, or None if too few are.

    If the cause explains enough of them, a reply that it does not explain shows another mistake, and is left out.
    """
    caused = [fit for fit in asked if fit.with_cause]
    explained = [fit for fit in asked if fit.alone or fit.with_cause]
    return next((found for found in (caused, explained) if len(found) >= MIN_EXPLAINED * len(asked)), None)


def is_accepted(declared: Declared, way: tuple[str, str]) -> bool:
    """Return whether a deviation is one that is accepted unless its decision is declared."""
    if declared.pins(way[0]) or (way == FINITE_FILL and not _is_fill_open(declared)):
        return False
    return way in OPEN_DECISIONS.get(way[0], ())


def _is_fill_open(declared: Declared) -> bool:
    """
    Return whether a finite fill is accepted.

    It makes a fully masked row the mean of the values, so it is not if another result of such a row is declared.
    """
    return not declared.pins(FULLY_MASKED) or declared.dialect.get(FULLY_MASKED) == "uniform"


def _fits(
    answers: Answers,
    expected: Expectations,
    profiles: Mapping[str, Profile],
    dialects: tuple[Dialect, Dialect],
    decisions: list[str],
) -> Iterator[ObservedFit]:
    """Yield a fit for each open case; dialects: the declared dialect and the cause."""
    declared, cause = dialects
    for cell, outcome in answers:
        problem, profile = cell.route.problem, profiles[cell.case.dtype]
        if not is_open(cell.case, problem):
            continue
        plain = expected.judge.expectation(cell.case.id, problem, {}, profile)
        # Under the cause as well: if it swaps key and value, NaN in a key is NaN in a value.
        under = [plain, *([replace(plain, dialect=cause, reply=_reply(problem, cause, profile))] if cause else [])]
        matters = [each for each in decisions if any(_matters(problem, one, each, profile) for one in under)]
        if matters:
            every = [
                dict(zip(matters, ways, strict=True)) for ways in product(*(OPEN_DECISIONS[each] for each in matters))
            ]
            suspected = expected.reply(cell, outcome, {}, profile).suspect()
            others = {decision: name for decision, name in declared.items() if decision not in matters}
            others |= _result_dtype(suspected)
            alone = _explaining(suspected, every, others)
            with_cause = _explaining(suspected, every, {**others, **cause}) if cause else ()
            yield ObservedFit(
                cell.case.id, cell.case.dtype, frozenset(matters), alone, with_cause, partial(_finite, suspected, every)
            )


def _result_dtype(suspected: Suspect) -> Dialect:
    """Return the mistake that all results have one other dtype, if they have; it hides no decision."""
    expected = {each.dtype for each in suspected.declared.reply.values()}
    actual = {suspected.actual[name].dtype for name in suspected.declared.reply}
    return {OF_RESULTS: actual.pop()} if len(actual) == 1 and actual != expected and actual <= UNIT.keys() else {}


def _explaining(suspected: Suspect, every: Iterable[Combination], dialect: Dialect) -> tuple[Combination, ...]:
    """
    Return the combinations that explain the reply together with a dialect.

    Many combinations give the same expected reply, so a bound is derived only for the first of them.
    """
    explains: dict[Hashable, bool] = {}
    found = []
    for each in every:
        composed = {**suspected.declared.dialect, **dialect, **_composed(each)}
        key = tuple((name, expected.values.tobytes()) for name, expected in suspected.reply(composed).items())
        if key not in explains:
            explains[key] = suspected.loosely_conforms_under(composed)
        if explains[key]:
            found.append(each)
    return tuple(found)


def _finite(suspected: Suspect, every: Iterable[Combination]) -> tuple[Combination, ...]:
    """Return the combinations with the finite pattern of the reply; none if a value is finite that must not be."""
    for name, each in suspected.declared.reply.items():
        got = suspected.actual[name].float64()
        if got.shape != each.values.shape or np.any(np.isfinite(got) & ~np.isfinite(each.values)):
            return ()
    return tuple(each for each in every if _is_finite_as(suspected, _composed(each)))


def _by_finite_pattern(decision: str, asked: list[ObservedFit]) -> Way:
    """Return the most canonical way that gives the finite pattern of most replies, of those that some way gives."""
    found = [{combination[decision] for combination in fit.finite()} for fit in asked]
    ways = [each for each in found if each]
    enough = (way for way in OPEN_DECISIONS[decision] if sum(way in each for each in ways) >= MIN_EXPLAINED * len(ways))
    return next(enough, None)


def _most_common(decision: str, asked: list[ObservedFit]) -> Way:
    """Return the way that explains most replies; of several, the most canonical one."""
    return max(OPEN_DECISIONS[decision], key=lambda way: sum(way in fit.ways(decision) for fit in asked))


def _is_finite_as(suspected: Suspect, dialect: Dialect) -> bool:
    """Return whether a reply has finite values exactly where it has them under a dialect."""
    declared = {**suspected.declared.dialect, **dialect}
    reply = _reply(suspected.problem, declared, suspected.profile)
    return all(
        np.array_equal(np.isfinite(each.values), np.isfinite(suspected.actual[name].float64()))
        for name, each in reply.items()
    )


def _matters(problem: Problem, expected: Expectation, decision: str, profile: Profile) -> bool:
    """Return whether some way of a decision changes an expected reply beyond its bounds, if they have its shape."""
    others = (
        _reply(problem, {**expected.dialect, **_dialect(way)}, profile)
        for way in OPEN_DECISIONS[decision]
        if way is not None
    )
    return any(
        bound.hard.shape == expected.reply[name].values.shape and differs(expected.reply[name], other[name], bound)
        for other in others
        for name, bound in expected.bounds.items()
    )


def _reply(problem: Problem, dialect: Dialect, profile: Profile) -> Reply:
    return evaluate(problem, dialect, profile.score).reply


def _dialect(way: Way) -> dict[str, str]:
    return {} if way is None else dict([way])


def _composed(combination: Combination) -> dict[str, str]:
    return dict(way for way in combination.values() if way is not None)


def _common(decision: str, seen: list[ObservedFit]) -> Way | Literal[False]:
    """
    Return the way that explains all fits; else False.

    Ways that explain all of them together with the cause come first, and of these the first one. Else, and for NaN at
    masked keys, it is the way that explains most replies without the cause: under some causes, such as a finite fill,
    every way lets this NaN through.
    """
    common = [way for way in OPEN_DECISIONS[decision] if all(way in fit.ways(decision) for fit in seen)]
    caused = [{combination[decision] for combination in fit.with_cause} for fit in seen]
    certain = [way for way in common if all(way in ways for ways in caused)]
    if certain and decision not in OF_MASKED_NAN:
        return certain[0]
    alone = [fit.ways(decision, alone=True) for fit in seen]
    return max(certain or common, key=lambda way: sum(way in ways for ways in alone), default=False)


def _name(decision: str, way: Way) -> str:
    return CANONICAL_NAMES[decision] if way is None else way[1]


def _examples(decision: str, seen: list[ObservedFit]) -> dict[str, str]:
    """Return an example case of each way that occurs."""
    examples: dict[str, str] = {}
    for fit in seen:
        examples.setdefault(_name(decision, fit.ways(decision)[0]), fit.case)
    return examples
