"""What could be the cause of failing cells: single deviations, solved numbers, pairs, coarser arithmetic."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import inf

import numpy as np

from conformance.bridge.profile import UNIT
from conformance.deviations.catalogue import compose, has_row, in_order
from conformance.deviations.deviation import Deviation, Dialect
from conformance.deviations.evaluate import evaluate_deviations
from conformance.deviations.measured import MEASURED, Measured
from conformance.deviations.names import USUAL_BITS
from conformance.diagnosis.coarser_arithmetic import Arithmetic, tightest
from conformance.diagnosis.conditions import Condition
from conformance.diagnosis.cost import SECOND_DEVIATION, UNEXPLAINED, of_change
from conformance.diagnosis.evidence import Change, Evidence
from conformance.diagnosis.explanation import CANONICAL, Way, ways
from conformance.diagnosis.suspect import Suspect
from conformance.spec.problem import Array, Problem

# At most so many steps from each guess.
STEPS = 12
# So many of the guesses are refined: those under which the reply is nearest.
BEST = 2
# How often a step that leads away is halved.
HALVINGS = 6
# A number is told with so many digits at most.
DIGITS = 6
# The part of a number by which it is moved to see what that changes.
STEP = 1e-6
# A step of a smaller part of the number is the last.
CLOSE = 1e-10
# Errors of so many tolerances are told apart no further: their squares are numbers.
FAR = 1e100


def solved(suspect: Suspect) -> Iterator[Way]:
    """The decisions that explain a failing reply when they are taken by some number, with the plainest such number."""
    for kind in MEASURED:
        if kind.concerns(suspect.problem) and (way := solve(kind, suspect)) is not None:
            yield way


def solve(kind: Measured, suspect: Suspect) -> Way | None:
    """The decision with the plainest number under which the reply lies within its bound; None where none does."""
    fit = _Fit(kind, suspect)
    if not fit.matters():
        return None
    ranked = sorted((fit.error(guess), place, guess) for place, guess in enumerate(kind.guesses))
    for error, _, guess in ranked:
        if error < fit.still and fit.explains(guess):
            return kind.decision, kind.name(guess)
    if kind.whole:
        return None
    nearer = [guess for error, _, guess in ranked if error < fit.still][:BEST]
    for guess in [*nearer, *([kind.neutral] if math.isfinite(kind.neutral) else [])]:
        number = fit.refined(guess)
        for digits in range(1, DIGITS + 1):
            plain = float(f"{number:.{digits}g}")
            if fit.explains(plain):
                return kind.decision, kind.name(plain)
    return None


class _Fit:
    """One kind of number, fitted to one reply."""

    def __init__(self, kind: Measured, suspect: Suspect) -> None:
        self._kind, self._suspect = kind, suspect
        self._rest = {name: way for name, way in suspect.declared.dialect.items() if name != kind.decision}
        self._others = compose(self._rest)
        self._actual = {name: each.float64() for name, each in suspect.actual.items()}
        floor = {name: np.max(each.tolerance, initial=0.0) or 1.0 for name, each in suspect.declared.bounds.items()}
        self._tolerance = {
            name: np.where(each.tolerance > 0, each.tolerance, floor[name])
            for name, each in suspect.declared.bounds.items()
        }
        self.still = self._size(self._residual(self._others))

    def matters(self) -> bool:
        """Whether the reply could come near: it has the shape and the dtype that are expected."""
        declared = self._suspect.declared.reply
        return all(
            name in self._actual
            and self._actual[name].shape == each.values.shape
            and self._suspect.actual[name].dtype == each.dtype
            for name, each in declared.items()
        )

    def explains(self, number: float) -> bool:
        """Whether the reply lies within its bound under this number, as it is written."""
        return self._suspect.explained_by({**self._rest, self._kind.decision: self._kind.name(number)})

    def error(self, number: float) -> float:
        """How far off the reply is under this number, in tolerances: the root mean square."""
        return self._size(self._at(number))

    def refined(self, number: float) -> float:
        """The number near a guess under which the reply is nearest."""
        here = self._at(number)
        for _ in range(STEPS):
            step = self._step(number, here)
            for _ in range(HALVINGS):
                there = self._at(number + step)
                if self._size(there) < self._size(here):
                    break
                step /= 2
            else:
                return number
            number, here = number + step, there
            if abs(step) < CLOSE * abs(number):
                break
        return number

    def _step(self, number: float, here: Array | None) -> float:
        """By how much the number is off, to first order."""
        moved = STEP * (abs(number) or 1.0)
        there = self._at(number + moved)
        if here is None or there is None:
            return 0.0
        slope = (there - here) / moved
        square = float(slope @ slope)
        step = -float(slope @ here) / square if square > 0.0 else 0.0
        most = 2.0 * (abs(number) or 1.0)
        return float(np.clip(step, -most, most))

    def _at(self, number: float) -> Array | None:
        return self._residual(in_order((self._kind.deviation(number), *self._others)))

    def _residual(self, deviations: tuple[Deviation, ...]) -> Array | None:
        """What the reply is off, in tolerances; None where numbers stand in other places."""
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

    @staticmethod
    def _size(residual: Array | None) -> float:
        return float("inf") if residual is None else float(np.sqrt(np.mean(residual**2)))


# So many of the smallest cells without an explanation are searched for single decisions.
MAX_SEARCHED_CELLS = 12
# So many pairs that explain one cell are tried on all: those that explain most of the smallest.
MAX_KEPT_PAIRS = 8
# So many of the simplest cells of a kind are asked for a number,
MAX_SOLVED = 2
# and so many in all.
MAX_PAIRS = 12
# So many of the simplest cells with other mask arguments, or in another dtype, are searched for pairs.
MAX_PAIRED_CELLS = 8
# From so many cells it is read which arithmetic it is.
MAX_MEASURED = 5


# Some ways in which a call could be taken otherwise than declared.
ExplanationsOf = Callable[[Problem, Dialect], Iterable[Way]]


@dataclass(frozen=True)
class Candidate:
    """What could be the cause: decisions taken otherwise, or else coarser arithmetic."""

    change: Change = ()
    arithmetic: Arithmetic | None = None

    def explains(self, cell: Evidence) -> bool:
        """Whether a failing cell lies within its bound under it."""
        return self.arithmetic.explains(cell) if self.arithmetic else cell.explained_by(self.change)

    @property
    def bits(self) -> float:
        """What it costs, without a condition."""
        return of_change(self.change, coarser=self.arithmetic is not None)

    def contradicts(self, cell: Evidence, taken: "Candidate | None" = None) -> bool:
        """Whether a cell that conforms, by itself or under `taken`, would not under this."""
        if self.arithmetic:
            return taken is None and self.arithmetic.contradicts(cell)
        return cell.contradicts(self.change, taken.change if taken else ())


@dataclass(frozen=True)
class Cause:
    """
    A candidate with the condition under which it shows, and the failing cells that it explains, the simplest first.

    guards: the smallest conditions that fit, the plainest first; one that always holds where no cell speaks against
    it. ties: other candidates, each with its guards, that explain the same cells as well.
    """

    candidate: Candidate
    guards: tuple[Condition, ...]
    cells: tuple[Evidence, ...]
    ties: tuple["Cause", ...] = ()

    @property
    def bits(self) -> float:
        """What it costs, without its condition."""
        return self.candidate.bits


def different(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Each once; two decisions are the same pair in either order."""
    found: dict[tuple[frozenset[Way], Arithmetic | None], Candidate] = {}
    for each in candidates:
        found.setdefault((frozenset(each.change), each.arithmetic), each)
    return list(found.values())


def singles(
    cells: Iterable[Evidence], ways_of: Callable[[Problem, Dialect], Iterable[Way]] = ways
) -> Iterator[Candidate]:
    """The single decisions that explain some of these cells: of all that each call can take, or of others."""
    for cell in cells:
        for way in ways_of(cell.problem, cell.declared.dialect):
            if cell.explained_by((way,)):
                yield Candidate((way,))


def numbers(cells: Sequence[Evidence]) -> Iterator[Candidate]:
    """The decisions that explain some of these cells when a number is put in, with the number, each once."""
    told: dict[Way, None] = {}
    for cell in _most_informative(cells):
        told |= dict.fromkeys(way for way in _solved(cell) if way not in cell.found)
    yield from (Candidate((way,)) for way in told)


def _solved(cell: Evidence) -> tuple[Way, ...]:
    return cell.of_reply.once("solved", lambda: tuple(solved(cell.suspect())))


def _most_informative(cells: Sequence[Evidence]) -> list[Evidence]:
    """Some of the simplest cells with the same mask arguments, of the finest dtypes first: they tell a number best."""
    finest = sorted(cells, key=lambda cell: UNIT[cell.facts.dtype])
    kinds: dict[object, list[Evidence]] = {}
    for cell in finest:
        kinds.setdefault(_arguments(cell), []).append(cell)
    found = {cell for same in kinds.values() for cell in same[:MAX_SOLVED]}
    return [cell for cell in finest if cell in found][:MAX_PAIRS]


def _arguments(cell: Evidence) -> object:
    """Which mask arguments a call uses, and how: two mistakes about two of them do not show in the same calls."""
    return frozenset((mask.slot, mask.element == "float") for mask in cell.facts.masks)


def pairs(cells: Sequence[Evidence], taken: Sequence[Change]) -> Iterator[Candidate]:
    """
    Pairs of decisions that explain some of these cells: with one that was found before, else of any two.

    Beside causes that were found before, only pairs that are shorter than all of these cells.
    """
    known = dict.fromkeys(way for change in taken for way in change)
    most = UNEXPLAINED * len(cells) if taken else inf
    simplest = {(_arguments(cell), cell.facts.operator, cell.facts.dtype): cell for cell in reversed(cells)}
    for cell in sorted(simplest.values(), key=cells.index)[:MAX_PAIRED_CELLS]:
        cost = {way: of_change((way,)) for way in ways(cell.problem, cell.declared.dialect)}
        every = [way for way in cost if SECOND_DEVIATION + cost[way] < most]
        single = [
            way for way in every if USUAL_BITS + SECOND_DEVIATION + cost[way] < most and cell.tells_apart((way,), ())
        ]
        more = (pair for one in known for pair in combined_with(cell, one, [*dict.fromkeys((one, *every))]))
        twos = (pair for pair in combinations(single, 2) if sum(cost[way] for way in pair) + SECOND_DEVIATION < most)
        for among in (more, twos):
            found = (pair for pair in among if pair[0][0] != pair[1][0] and cell.explained_by(pair))
            likely = sorted(
                found, key=lambda pair: -sum(each.explained_by(pair) for each in cells[:MAX_SEARCHED_CELLS])
            )
            yield from (Candidate(pair) for pair in likely[:MAX_KEPT_PAIRS])
            if likely:
                break


def combined_with(cell: Evidence, one: Way, every: Sequence[Way]) -> Iterator[Change]:
    """The pairs with a decision that was found before that explain a cell, and are another answer than it alone."""
    taken = one in every or (one[1] != CANONICAL and not has_row(*one))
    others = (other for other in every if taken and other[0] != one[0])
    explaining = ((one, other) for other in others if cell.explained_by((one, other)))
    return (pair for pair in explaining if cell.tells_apart(pair, (one,)))


def arithmetic(cells: Sequence[Evidence], conforming: Sequence[Evidence]) -> Iterator[Candidate]:
    """
    The least coarse arithmetic that explains, in each dtype, most of the simplest of these and the furthest off.

    Of what no conforming cell of the dtype speaks against, if there is any such arithmetic.
    """
    for dtype in dict.fromkeys(cell.facts.dtype for cell in cells):
        same = [cell for cell in cells if cell.facts.dtype == dtype]
        furthest = max(same, key=lambda cell: cell.excess)
        measured = [*same[:MAX_MEASURED], furthest]
        passing = [cell for cell in conforming if cell.facts.dtype == dtype]
        yield from (Candidate(arithmetic=each) for each in tightest(measured, passing))
