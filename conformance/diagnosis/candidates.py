"""Candidate causes of failing cells: single deviations, fitted numbers, pairs of deviations, coarser arithmetic."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import combinations, islice
from math import inf, prod

import numpy as np

from conformance.bounds.bound import Bound
from conformance.bridge.profile import UNIT
from conformance.deviations.catalogue import compose, evaluate_deviations, has_row, in_order
from conformance.deviations.deviation import Deviation, Dialect
from conformance.deviations.measured import EXACT, Measured, find_measured, kinds_for
from conformance.deviations.names import DIGITS, USUAL_BITS
from conformance.diagnosis.coarser_arithmetic import CoarserArithmetic, tightest
from conformance.diagnosis.conditions import Condition
from conformance.diagnosis.evidence import Change, Evidence
from conformance.diagnosis.explanation import CANONICAL, MAX_EXTRA_COST, UNEXPLAINED, Way, of_change, taking, ways
from conformance.diagnosis.suspect import Suspect
from conformance.spec.materialise import HALF
from conformance.spec.problem import Array, Problem

# Maximum number of steps from each guess.
STEPS = 12
# Maximum number of guesses that are refined: those under which the reply is nearest.
BEST = 2
# Maximum number of times that a step which increases the error is halved.
HALVINGS = 6
# Relative change of a number for its numerical derivative.
STEP = 1e-6
# Relative step size below which the search stops.
CLOSE = 1e-10
# The same where a step hardly reduces the error, by less than the factor SLOW, to more than HOPELESS tolerances: near
# the right number, a step removes nearly all of the error. After a larger step the search goes on: it may cross a flat
# region.
STALLED = 0.1
SLOW = 0.97
HOPELESS = 3.0
# A number that may be this many times smaller is not determined.
MAX_SMALLER = 1e6
# A number this many times smaller than the smallest guess counts as extreme.
EXTREME = 100.0
# Maximum change of an element, in tolerances, that counts as none under extreme numbers,
UNMOVED = 0.1
# and the maximum error of such an element, in tolerances, in a reply that some number may explain.
MAX_UNMOVED_ERROR = 3.0
# Number of significant digits that a fit determines in float64, where few digits do not explain the reply.
FITTED_DIGITS = 12
# Maximum relative difference of two numbers that are the same one, measured more precisely.
SAME = 1e-4
# Maximum error, in tolerances; larger ones are clipped so that their squares stay finite.
FAR = 1e100


def solved(cell: Evidence, limit: float = inf, beside: Change = ()) -> Iterator[Way]:
    """
    The deviations with a fitted number that explain a failing reply; each kind of number is fitted once.

    limit: in bits; kinds of numbers that cost as much or more are not fitted. beside: deviations that are assumed.
    """
    assumed = {decision for decision, _ in beside}
    for kind in kinds_for(cell.problem):
        if kind.least_bits < limit and kind.decision not in assumed:
            question = ("solve", kind.decision, kind.pattern, beside)
            numbers = cell.of_reply.once(question, partial(solve, kind, cell.suspect(), beside))
            yield from ((kind.decision, kind.name(number)) for number in numbers)


def solve(kind: Measured, suspect: Suspect, beside: Change = ()) -> list[float]:
    """
    The numbers under which the reply is within its bound: guesses, or else the simplest other number.

    These are all guesses if `kind.every`, else the nearest. beside: deviations that are assumed.
    """
    fit = _Fit((kind,), suspect, beside)
    if not fit.errors.matter() or not fit.could_explain():
        return []
    ranked = sorted((fit.error((guess,)), index, guess) for index, guess in enumerate(kind.guesses))
    explaining = (guess for error, _, guess in ranked if error < fit.unchanged and fit.explains((guess,)))
    if found := list(explaining if kind.every else islice(explaining, 1)):
        return found
    if kind.whole:
        return []
    # Guesses with the same error have the same effect: -100 and -1000 both remove a masked key.
    nearer = {error: guess for error, _, guess in reversed(ranked) if error < fit.unchanged}
    nearest = sorted(nearer)[:BEST]
    for guess in [*(nearer[error] for error in nearest), *([kind.neutral] if math.isfinite(kind.neutral) else [])]:
        if (simplest := fit.simplest(fit.refined((guess,)))) is not None:
            return [*simplest]
    return []


def solved_together(suspect: Suspect) -> Iterator[Change]:
    """
    Pairs of deviations with fitted numbers that together explain a failing reply.

    One of the two brings the reply much nearer alone.
    """
    kinds = _fittable(suspect)
    for fit, numbers in _nearest_fits(suspect, kinds, MAX_NEAR_ERROR):
        for second in (kind for kind in kinds if kind.decision != fit.kinds[0].decision):
            both = _Fit((*fit.kinds, second), suspect, ())
            if found := both.simplest(both.refined((*numbers, both.nearest_guess(*numbers)))):
                yield tuple((kind.decision, kind.name(number)) for kind, number in zip(both.kinds, found, strict=True))


def nearest_numbers(suspect: Suspect, most: float) -> Iterator[Way]:
    """The few deviations with a fitted number under which a reply is nearest; most: as in `nearest`."""
    for fit, (number,) in _nearest_fits(suspect, _fittable(suspect), most):
        (kind,) = fit.kinds
        yield kind.decision, kind.name(float(f"{number:.{DIGITS}g}"))


def _fittable(suspect: Suspect) -> list[Measured]:
    """The kinds of numbers that change continuously."""
    return [kind for kind in kinds_for(suspect.problem) if not kind.whole]


def _nearest_fits(suspect: Suspect, kinds: Iterable[Measured], most: float) -> Iterator[tuple["_Fit", "Numbers"]]:
    """A few fits of one number each and their numbers, the nearest first; most: the maximum share of the error left."""
    alone = [fit for kind in kinds if (fit := _Fit((kind,), suspect, ())).errors.matter()]
    best = [(fit, fit.refined((fit.nearest_guess(),))) for fit in alone]
    near = sorted((fit.error(numbers), index) for index, (fit, numbers) in enumerate(best))[:MAX_NEAREST]
    yield from (best[index] for error, index in near if error < most * best[index][0].unchanged)


class _Errors:
    """The errors of one reply against the answers under deviations."""

    def __init__(self, suspect: Suspect) -> None:
        self._suspect = suspect
        self._actual = {name: each.float64() for name, each in suspect.actual.items()}
        floor = {name: np.max(each.tolerance, initial=0.0) or 1.0 for name, each in suspect.declared.bounds.items()}
        self._tolerance = {
            name: np.where(each.tolerance > 0, each.tolerance, floor[name])
            for name, each in suspect.declared.bounds.items()
        }

    def matter(self) -> bool:
        """Whether the reply has the expected shapes and dtypes."""
        declared = self._suspect.declared.reply
        return all(
            name in self._actual
            and self._actual[name].shape == each.values.shape
            and self._suspect.actual[name].dtype == each.dtype
            for name, each in declared.items()
        )

    def under(self, deviations: tuple[Deviation, ...]) -> Array | None:
        """All errors under sorted deviations, in tolerances; None if shapes or non-finite positions differ."""
        answer = evaluate_deviations(self._suspect.problem, deviations, self._suspect.profile.score)
        parts = []
        for name, tolerance in self._tolerance.items():
            expected, actual = answer.reply[name].values, self._actual[name]
            if expected.shape != actual.shape or not np.array_equal(np.isfinite(expected), np.isfinite(actual)):
                return None
            with np.errstate(invalid="ignore"):
                off = np.where(np.isfinite(actual), expected - actual, 0.0) / tolerance
            parts.append(np.clip(off, -FAR, FAR).ravel())
        return np.concatenate(parts)

    def sized(self, bounds: Mapping[str, Bound]) -> Array:
        """The tolerances of all elements under other bounds, in the declared tolerances."""
        parts = (bounds[name].tolerance / tolerance for name, tolerance in self._tolerance.items())
        return np.concatenate([part.ravel() for part in parts])

    def size(self, change: Change) -> float:
        """The root mean square error under a change of the declared dialect, in tolerances."""
        return _size(self.under(compose(reduce(taking, change, self._suspect.declared.dialect))))


def _size(errors: Array | None) -> float:
    return float("inf") if errors is None else float(np.sqrt(np.mean(errors**2)))


# A number of each kind.
Numbers = tuple[float, ...]


class _Fit:
    """Numbers of some kinds, fitted to one reply, beside assumed deviations. unchanged: the error without them."""

    def __init__(self, kinds: tuple[Measured, ...], suspect: Suspect, beside: Change) -> None:
        self.kinds, self._suspect, self.errors = kinds, suspect, _Errors(suspect)
        assumed = reduce(taking, beside, suspect.declared.dialect)
        fitted = {kind.decision for kind in kinds}
        self._rest = {name: way for name, way in assumed.items() if name not in fitted}
        self._others = compose(self._rest)
        self._known: dict[Numbers, Array | None] = {}
        self._before = self.errors.under(self._others)
        self.unchanged = _size(self._before)

    def could_explain(self) -> bool:
        """
        Whether the reply is right wherever no number of the only kind changes the answer; else none explains the reply.

        The answer is compared under extreme numbers, which change it wherever any number does.
        """
        (kind,) = self.kinds
        if kind.whole or self._before is None:
            return True
        least = min(abs(guess) for guess in kind.guesses if guess) / EXTREME
        extremes = [self._at((number,)) for number in (min(kind.guesses), max(kind.guesses), least)]
        moved = [np.abs(each - self._before) > UNMOVED for each in extremes if each is not None]
        if len(moved) < len(extremes):
            return True
        wrong = np.abs(self._before) > MAX_UNMOVED_ERROR
        wrong &= ~np.any(moved, axis=0)
        if wrong.any() and self._rest != self._suspect.declared.dialect:
            # The assumed deviations may give larger numbers than are declared, so their own tolerances count.
            wrong &= np.abs(self._before) > MAX_UNMOVED_ERROR * self.errors.sized(self._suspect.bounds(self._rest))
        return not wrong.any()

    def explains(self, numbers: Numbers) -> bool:
        """Whether all numbers change something, and the reply is within its bound under them, as in their names."""
        each = list(zip(self.kinds, numbers, strict=True))
        if any(number == kind.neutral for kind, number in each):
            return False
        return self._suspect.explained_by({**self._rest, **{kind.decision: kind.name(number) for kind, number in each}})

    def simplest(self, numbers: Numbers) -> Numbers | None:
        """
        The numbers in the fewest digits that explain the reply, or in all that a fit determines; None if none do.

        A number that may be far smaller as well is not told: any small factor explains a reply of zeros.
        """
        more = (FITTED_DIGITS, EXACT) if self._suspect.problem.dtype == "float64" else ()
        digits = (*range(1, DIGITS + 1), *more)
        rounded = (tuple(float(f"{number:.{count}g}") for number in numbers) for count in digits)
        found = next((each for each in rounded if self.explains(each)), None)
        return found if found is not None and self._is_determined(found) else None

    def _is_determined(self, numbers: Numbers) -> bool:
        """Whether no number, unless it is zero, may be far smaller."""
        parts = ((n, number / MAX_SMALLER) for n, number in enumerate(numbers) if number)
        allowed = ((n, smaller) for n, smaller in parts if self.kinds[n].allows(smaller))
        return not any(self.explains((*numbers[:n], smaller, *numbers[n + 1 :])) for n, smaller in allowed)

    def error(self, numbers: Numbers) -> float:
        """The root mean square error of the reply under these numbers, in tolerances."""
        return _size(self._at(numbers))

    def nearest_guess(self, *before: float) -> float:
        """The guess of the last kind under which the reply is nearest. before: numbers of the kinds before it."""
        return min(self.kinds[-1].guesses, key=lambda guess: self.error((*before, guess)))

    def refined(self, numbers: Numbers) -> Numbers:
        """The numbers near these that minimise the error."""
        current = self._at(numbers)
        for _ in range(STEPS):
            step = self._step(numbers, current)
            for _ in range(HALVINGS):
                moved = tuple((np.asarray(numbers) + step).tolist())
                stepped = self._at(moved)
                if _size(stepped) < _size(current):
                    break
                step = step / 2
            else:
                return numbers
            far = _size(stepped) > max(SLOW * _size(current), HOPELESS)
            numbers, current = moved, stepped
            if np.all(np.abs(step) < (STALLED if far else CLOSE) * np.abs(numbers)):
                break
        return numbers

    def _step(self, numbers: Numbers, current: Array | None) -> Array:
        """The Gauss-Newton step from these numbers, given their errors."""
        sizes = np.array([abs(number) or 1.0 for number in numbers])
        moved = np.asarray(numbers) + np.diag(STEP * sizes)
        shifted = [self._at(tuple(each.tolist())) for each in moved]
        reached = [each for each in shifted if each is not None]
        if current is None or len(reached) < len(shifted):
            return np.zeros(len(numbers))
        slopes = (np.array(reached) - current) / (STEP * sizes)[:, None]
        squares = slopes @ slopes.T
        if not np.isfinite(squares).all():
            return np.zeros(len(numbers))
        step = np.linalg.lstsq(squares, -slopes @ current, rcond=None)[0]
        return np.asarray(np.clip(step, -2.0 * sizes, 2.0 * sizes))

    def _at(self, numbers: Numbers) -> Array | None:
        """The errors under these numbers; None if there is no such deviation."""
        if numbers not in self._known:
            each = list(zip(self.kinds, numbers, strict=True))
            is_allowed = all(kind.allows(number) for kind, number in each)
            deviations = (*(kind.deviation(number) for kind, number in each if is_allowed), *self._others)
            self._known[numbers] = self.errors.under(in_order(deviations)) if is_allowed else None
        return self._known[numbers]


# Maximum number of unexplained cells, the simplest first, that are searched for single deviations.
MAX_SEARCHED_CELLS = 12
# Maximum number of pairs from one cell that are tried on all cells: those that explain most of the simplest cells.
MAX_KEPT_PAIRS = 8
# Maximum number of cells with the same mask arguments, the simplest first, to which numbers are fitted,
MAX_SOLVED = 2
# and the maximum number of such cells in total.
MAX_PAIRS = 12
# Maximum number of cells that are searched for pairs; for each combination of arguments and operator, one in half
# precision and one in another dtype.
MAX_PAIRED_CELLS = 8
# Maximum number of logits that the pairs of any two deviations of a cell compute in all; the cheapest pairs come first.
MAX_PAIRED_LOGITS = 10**8
# Maximum number of deviations, those under which a reply is nearest, beside which a number is fitted,
MAX_NEAREST = 3
# and the maximum error under them, in errors under the declared dialect.
MAX_NEAR_ERROR = 0.5
# Maximum number of cells, the simplest first, from which the arithmetic is determined.
MAX_MEASURED = 5


@dataclass(frozen=True)
class Candidate:
    """A candidate cause: one or more deviations, or coarser arithmetic."""

    change: Change = ()
    arithmetic: CoarserArithmetic | None = None

    def explains(self, cell: Evidence) -> bool:
        """Whether a failing cell is within its bound under the candidate."""
        return self.arithmetic.explains(cell) if self.arithmetic else cell.explained_by(self.change)

    @property
    def bits(self) -> float:
        """The cost in bits, without a condition."""
        return of_change(self.change, coarser=self.arithmetic is not None)

    def contradicts(self, cell: Evidence, taken: "Candidate | None" = None) -> bool:
        """Whether a cell that conforms, as declared or under `taken`, would not conform under the candidate."""
        if self.arithmetic:
            return taken is None and self.arithmetic.contradicts(cell)
        return cell.contradicts(self.change, taken.change if taken else ())


@dataclass(frozen=True)
class Cause:
    """
    A candidate with its condition and the failing cells that it explains, the simplest first.

    guards: the smallest conditions that fit, the simplest first; the condition that always holds if no cell contradicts
    the candidate. ties: other candidates, each with its guards, that explain the same cells. condition_bits: the cost
    of the condition.
    """

    candidate: Candidate
    guards: tuple[Condition, ...]
    cells: tuple[Evidence, ...]
    ties: tuple["Cause", ...] = ()
    condition_bits: float = 0.0

    def holds(self, cell: Evidence) -> bool:
        """Whether a call meets the condition."""
        return self.guards[0].holds(cell.facts, cell.problem)


def different(candidates: Iterable[Candidate]) -> list[Candidate]:
    """The candidates without duplicates; a pair of deviations is the same in either order."""
    found: dict[tuple[frozenset[Way], CoarserArithmetic | None], Candidate] = {}
    for each in candidates:
        found.setdefault((frozenset(each.change), each.arithmetic), each)
    return list(found.values())


# The ways that are tried for a call, given its declared dialect.
WaysOf = Callable[[Problem, Dialect], Iterable[Way]]


def singles(cells: Iterable[Evidence], ways_of: WaysOf = ways) -> Iterator[Candidate]:
    """The single deviations that explain some of these cells. ways_of: the ways that are tried for a call."""
    for cell in cells:
        for way in ways_of(cell.problem, cell.declared.dialect):
            if cell.explained_by((way,)):
                yield Candidate((way,))


def numbers(
    cells: Sequence[Evidence], limit: float = inf, known: Callable[[Evidence], float] = lambda _: inf
) -> Iterator[Candidate]:
    """
    The deviations with a fitted number that explain some of these cells, each once.

    The number is fitted again to the first cell in float64 that it does not explain, which may show it more precisely.

    limit: as in `solved`. known: returns the cost in bits of the cheapest known explanation of a cell; only numbers are
    fitted to the cell that cost hardly more.
    """
    found: dict[Way, None] = {}
    for cell in most_informative(cells):
        solutions = solved(cell, min(limit, known(cell) + MAX_EXTRA_COST))
        found |= dict.fromkeys(way for way in solutions if way not in cell.found)
    for way in tuple(found):
        precise = (cell for cell in cells if cell.facts.dtype == "float64" and not cell.explained_by((way,)))
        found |= dict.fromkeys(each for cell in islice(precise, 1) for each in _refitted(way, cell))
    yield from (Candidate((way,)) for way in found)


def _refitted(way: Way, cell: Evidence) -> Iterator[Way]:
    """The way with its number refined so that it explains a cell, if it then is the same number."""
    if (measured := find_measured(*way)) is None or measured[0].whole:
        return
    kind, number = measured
    fit = _Fit((kind,), cell.suspect(), ())
    refined = fit.simplest(fit.refined((number,))) if fit.errors.matter() else None
    if refined is not None and math.isclose(refined[0], number, rel_tol=SAME):
        yield kind.decision, kind.name(refined[0])


def is_same_number(one: Way, other: Way) -> bool:
    """Whether two ways differ only in how precisely their number was measured."""
    first, second = find_measured(*one), find_measured(*other)
    if first is None or second is None or first[0] is not second[0]:
        return False
    return math.isclose(first[1], second[1], rel_tol=SAME)


def most_informative(cells: Sequence[Evidence]) -> list[Evidence]:
    """A few cells for each combination of mask arguments, finest dtypes first: they determine a number best."""
    finest = sorted(cells, key=lambda cell: UNIT[cell.facts.dtype])
    kinds: dict[object, list[Evidence]] = {}
    for cell in finest:
        kinds.setdefault(_arguments(cell), []).append(cell)
    found = {cell for same in kinds.values() for cell in same[:MAX_SOLVED]}
    return [cell for cell in finest if cell in found][:MAX_PAIRS]


def _arguments(cell: Evidence) -> frozenset[object]:
    """The mask arguments that a call uses, and how; mistakes about different arguments show in different calls."""
    return frozenset((mask.slot, mask.element == "float") for mask in cell.facts.masks)


def pairs(cells: Sequence[Evidence], taken: Sequence[Cause], ways_of: WaysOf = ways) -> Iterator[Candidate]:
    """
    Pairs of deviations that explain some of these cells: with one that was found earlier, else any two.

    Any two are tried only for a call that does not meet the condition of an earlier cause. If nothing was found, both
    may show in every call: then also one of the few under which the reply is nearest and a fitted number, else two
    fitted numbers.

    taken: the causes found so far. If there are any, only pairs that cost less than all of these cells are tried.
    ways_of: the ways that are tried for a call.
    """
    known = dict.fromkeys(way for cause in taken for way in cause.candidate.change)
    limit = UNEXPLAINED * len(cells) if taken else inf

    def changes(cell: Evidence) -> Iterator[Iterator[Change]]:
        every = _ways_below(cell, limit, ways_of)
        yield (
            pair
            for one in known
            for pair in combined_with(cell, one, [*dict.fromkeys((one, *_affordable((one,), every, limit)))])
        )
        if any(cause.holds(cell) for cause in taken):
            return
        single = [way for way in every if cell.distinguishes((way,), ())]
        affordable = sorted((pair for pair in combinations(single, 2) if of_change(pair) < limit), key=of_change)
        yield iter(affordable[: MAX_PAIRED_LOGITS // prod(cell.problem.logits_shape)])
        if not taken:
            finest = _finest(cell, cells)
            near = finest.of_reply.once(("nearest", *single), lambda: nearest(finest.suspect(), single))
            yield ((way, number) for way in near for number in solved(finest, beside=(way,)))
            together = finest.of_reply.once(("solved together",), lambda: [*solved_together(finest.suspect())])
            yield iter(together)

    return _explaining(cells, changes)


def _finest(cell: Evidence, cells: Iterable[Evidence]) -> Evidence:
    """The first cell of the finest dtype that has the same operator and mask arguments: it determines numbers best."""
    same = (each for each in cells if _kind(each)[:2] == _kind(cell)[:2])
    return min(same, key=lambda each: UNIT[each.facts.dtype])


def nearest(suspect: Suspect, every: Iterable[Way], most: float = MAX_NEAR_ERROR) -> list[Way]:
    """
    The few ways under which a reply is much nearer than under the declared dialect, the nearest first.

    most: the maximum error, in errors under the declared dialect.
    """
    errors = _Errors(suspect)
    if not errors.matter():
        return []
    limit = most * errors.size(())
    found = sorted((size, index, way) for index, way in enumerate(every) if (size := errors.size((way,))) < limit)
    return [way for _, _, way in found[:MAX_NEAREST]]


def further(cells: Sequence[Evidence], taken: Sequence[Change]) -> Iterator[Candidate]:
    """
    Deviations beside one or two that were found earlier, which together explain some of these cells.

    Beside one, it is a fitted number (`pairs` has the others); beside two that were found together, any.
    """
    ones = dict.fromkeys((way,) for change in taken for way in change)
    twos = [change for change in taken if len(change) > 1]
    limit = UNEXPLAINED * len(cells)

    def changes(cell: Evidence) -> Iterator[Iterator[Change]]:
        every = _ways_below(cell, limit) if twos else []
        yield ((*two, other) for two in twos for other in _affordable(two, every, limit))
        yield ((*each, way) for each in (*ones, *twos) for way in solved(cell, limit, each))

    return _explaining(cells, changes)


def _ways_below(cell: Evidence, limit: float, ways_of: WaysOf = ways) -> list[Way]:
    """The ways that cost less than `limit` as a second deviation."""
    return [way for way in ways_of(cell.problem, cell.declared.dialect) if USUAL_BITS + of_change((way,)) < limit]


def _explaining(
    cells: Sequence[Evidence], changes: Callable[[Evidence], Iterator[Iterator[Change]]]
) -> Iterator[Candidate]:
    """
    Candidates from the first group of changes that explains one of a few different cells.

    Cells with the fewest masks come first. Where no change explains a cell, cells that have the same mask arguments and
    more are not tried (`shows_with_fewer`). The search ends when a change explains all cells.
    """
    simplest = {_kind(cell): cell for cell in reversed(cells)}
    by_masks = sorted(
        simplest.values(), key=lambda cell: (cell.facts.dtype in HALF, len(_arguments(cell)), cells.index(cell))
    )
    fruitless: list[Evidence] = []
    for cell in by_masks[:MAX_PAIRED_CELLS]:
        if shows_with_fewer(cell, fruitless):
            continue
        likely: list[Change] = []
        for group in changes(cell):
            found = (change for change in group if cell.explained_by(change) and _needs_each(cell, change))
            reach = {change: sum(each.explained_by(change) for each in cells[:MAX_SEARCHED_CELLS]) for change in found}
            likely = sorted(reach, key=lambda change: (-reach[change], of_change(change)))
            if likely:
                break
        yield from (Candidate(change) for change in likely[:MAX_KEPT_PAIRS])
        if not likely:
            fruitless.append(cell)
        elif all(each.explained_by(likely[0]) for each in cells):
            return


def _needs_each(cell: Evidence, change: Change) -> bool:
    """
    Whether a change makes each decision once, and gives another answer than without any one of its deviations.

    A deviation that does not change the answer may only make the bound wider.
    """
    rests = (tuple(each for each in change if each != way) for way in change)
    return len(dict(change)) == len(change) and all(cell.distinguishes(change, rest) for rest in rests)


def _kind(cell: Evidence) -> tuple[frozenset[object], str, bool]:
    """The mask arguments, the operator, and whether it is in half precision."""
    return _arguments(cell), cell.facts.operator, cell.facts.dtype in HALF


def shows_with_fewer(cell: Evidence, others: Iterable[Evidence]) -> bool:
    """
    Whether a mistake that shows in some of the other cells should show in this cell as well.

    A mistake that shows without a mask also shows with one. So the other cell has the same operator, the same mask
    arguments or fewer, and no coarser dtype. Calls with non-finite inputs or fully masked rows are left out, because
    they also show how an implementation treats these.
    """
    arguments, operator, half = _kind(cell)
    kinds = ((other, *_kind(other)) for other in others)
    return any(
        operator == same and fewer <= arguments and coarse <= half and is_ordinary(other.problem)
        for other, fewer, same, coarse in kinds
    )


def is_plain(cell: Evidence, *, half: bool = False) -> bool:
    """
    Whether a call has no mask, no dimension of size 1 (it hides mistakes), and finite inputs.

    half: whether it may be in half precision.
    """
    has_one, *_ = cell.simplicity
    return not (has_one or cell.facts.masks or (cell.facts.dtype in HALF and not half)) and is_ordinary(cell.problem)


def is_ordinary(problem: Problem) -> bool:
    """Whether all inputs are finite, and every query may attend to some key."""
    arrays = (problem.query, problem.key, problem.value)
    return all(np.isfinite(each).all() for each in arrays) and bool(problem.attended().any(axis=-1).all())


def _affordable(some: Change, others: Iterable[Way], limit: float) -> Iterator[Way]:
    """The ways that cost less than `limit` when they are combined with `some`, which are paid."""
    return (way for way in others if of_change((*some, way)) - of_change(some) < limit)


def combined_with(cell: Evidence, one: Way, every: Sequence[Way]) -> Iterator[Change]:
    """The pairs with `one` that explain a cell and give a different answer than either alone."""
    taken = one in every or (one[1] != CANONICAL and not has_row(*one))
    others = (other for other in every if taken and other[0] != one[0])
    explaining = ((one, other) for other in others if cell.explained_by((one, other)))
    return (pair for pair in explaining if _needs_each(cell, pair))


def arithmetic(cells: Sequence[Evidence], conforming: Sequence[Evidence]) -> Iterator[Candidate]:
    """
    For each dtype, the least coarse arithmetic that explains most of the measured cells.

    These are the simplest cells and the cell with the largest error. Arithmetic that no conforming cell of the dtype
    contradicts is preferred.
    """
    for dtype in dict.fromkeys(cell.facts.dtype for cell in cells):
        same = [cell for cell in cells if cell.facts.dtype == dtype]
        furthest = max(same, key=lambda cell: cell.excess)
        measured = [*same[:MAX_MEASURED], furthest]
        passing = [cell for cell in conforming if cell.facts.dtype == dtype]
        yield from (Candidate(arithmetic=each) for each in tightest(measured, passing))
