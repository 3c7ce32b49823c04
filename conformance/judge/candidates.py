"""What could be the cause of failing cells: single decisions, pairs of them, coarser arithmetic."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import inf

from conformance.bridge.profile import UNIT
from conformance.deviations.catalogue import has_row
from conformance.deviations.deviation import Dialect
from conformance.deviations.names import USUAL_BITS
from conformance.judge.arithmetic import Arithmetic, tightest
from conformance.judge.bits import BESIDE, UNEXPLAINED, of_change
from conformance.judge.conditions import Condition
from conformance.judge.evidence import Change, Evidence
from conformance.judge.explanation import CANONICAL, Way, ways
from conformance.judge.solving import solved
from conformance.spec.problem import Problem

SEARCHED = 12
"""So many of the smallest cells without an explanation are searched for single decisions."""
KEPT = 8
"""So many pairs that explain one cell are tried on all: those that explain most of the smallest."""
SOLVED = 2
"""So many of the simplest cells of a kind are asked for a number,"""
TELLING = 12
"""and so many in all."""
PAIRED = 8
"""So many of the simplest cells with other mask arguments, or in another dtype, are searched for pairs."""
MEASURED = 5
"""From so many cells it is read which arithmetic it is."""


WaysOf = Callable[[Problem, Dialect], Iterable[Way]]
"""Some ways in which a call could be taken otherwise than declared."""


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
    for cell in _most_telling(cells):
        told |= dict.fromkeys(way for way in _solved(cell) if way not in cell.found)
    yield from (Candidate((way,)) for way in told)


def _solved(cell: Evidence) -> tuple[Way, ...]:
    return cell.of_reply.once("solved", lambda: tuple(solved(cell.suspect())))


def _most_telling(cells: Sequence[Evidence]) -> list[Evidence]:
    """Some of the simplest cells with the same mask arguments, of the finest dtypes first: they tell a number best."""
    finest = sorted(cells, key=lambda cell: UNIT[cell.facts.dtype])
    kinds: dict[object, list[Evidence]] = {}
    for cell in finest:
        kinds.setdefault(_arguments(cell), []).append(cell)
    found = {cell for same in kinds.values() for cell in same[:SOLVED]}
    return [cell for cell in finest if cell in found][:TELLING]


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
    for cell in sorted(simplest.values(), key=cells.index)[:PAIRED]:
        cost = {way: of_change((way,)) for way in ways(cell.problem, cell.declared.dialect)}
        every = [way for way in cost if BESIDE + cost[way] < most]
        single = [way for way in every if USUAL_BITS + BESIDE + cost[way] < most and cell.tells_apart((way,), ())]
        more = (pair for one in known for pair in beside(cell, one, [*dict.fromkeys((one, *every))]))
        twos = (pair for pair in combinations(single, 2) if sum(cost[way] for way in pair) + BESIDE < most)
        for among in (more, twos):
            found = (pair for pair in among if pair[0][0] != pair[1][0] and cell.explained_by(pair))
            likely = sorted(found, key=lambda pair: -sum(each.explained_by(pair) for each in cells[:SEARCHED]))
            yield from (Candidate(pair) for pair in likely[:KEPT])
            if likely:
                break


def beside(cell: Evidence, one: Way, every: Sequence[Way]) -> Iterator[Change]:
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
        measured = [*same[:MEASURED], furthest]
        passing = [cell for cell in conforming if cell.facts.dtype == dtype]
        yield from (Candidate(arithmetic=each) for each in tightest(measured, passing))
