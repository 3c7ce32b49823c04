"""
Why a subject fails, over all of its cells: as few causes as possible, that no conforming cell contradicts.

Single decisions that were seen when cells were judged come first, then those of a few more cells, then pairs, then
coarser arithmetic. A cause that conforming cells contradict needs a guard: the smallest condition that keeps them out.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from conformance.judge.arithmetic import Arithmetic, tightest
from conformance.judge.conditions import Condition
from conformance.judge.diagnose import ways
from conformance.judge.evidence import Change, Evidence
from conformance.judge.guards import Fit, Guards

SEARCHED = 12
"""So many of the smallest cells without an explanation are searched for single decisions."""
KEPT = 8
"""So many pairs that explain one cell are tried on all: those that explain most of the smallest."""
MEASURED = 5
"""From so many cells it is read which arithmetic it is."""
MOST = 0.5
"""Arithmetic that explains a smaller part of the cells that fail where it shows is no cause."""
PRICE = 0.1
"""A condition must gain so much more of the cells."""


@dataclass(frozen=True)
class Candidate:
    """What could be the cause: decisions taken otherwise, or else coarser arithmetic."""

    change: Change = ()
    arithmetic: Arithmetic | None = None

    def explains(self, cell: Evidence) -> bool:
        """Whether a failing cell lies within its bound under it."""
        return self.arithmetic.explains(cell) if self.arithmetic else cell.explained_by(self.change)

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


@dataclass(frozen=True)
class Diagnosis:
    """Causes in the order in which they were found, and the failing cells that nothing explains."""

    causes: tuple[Cause, ...]
    unexplained: tuple[Evidence, ...]


def diagnose(cells: Sequence[Evidence]) -> Diagnosis:
    """Look for the causes of the failing cells among all judged cells of one subject."""
    search = _Search(cells)
    search.take(Candidate((way,)) for cell in search.open_cells() for way in cell.found)
    search.take(_singles(search.open_cells()[:SEARCHED]))
    search.take(_pairs(search.open_cells(), [cause.candidate.change for cause in search.causes]))
    search.take(_arithmetic(search.open_cells()))
    return Diagnosis(tuple(search.causes), tuple(search.open_cells()))


def _singles(cells: Iterable[Evidence]) -> Iterator[Candidate]:
    """The single decisions that explain some of these cells."""
    for cell in cells:
        for way in ways(cell.problem, cell.declared.dialect):
            if cell.explained_by((way,)):
                yield Candidate((way,))


def _pairs(cells: Sequence[Evidence], taken: Sequence[Change]) -> Iterator[Candidate]:
    """Pairs of decisions that explain some of these cells: with one that was found before, else of any two."""
    known = [change[0] for change in taken if len(change) == 1]
    simplest = {(bool(cell.facts.masks), cell.facts.operator): cell for cell in reversed(cells)}
    for cell in simplest.values():
        every = ways(cell.problem, cell.declared.dialect)
        single = [way for way in every if cell.tells_apart((way,), ())]
        # what shows only beside a known cause is no answer of its own
        beside = ((one, other) for one in known if one in single for other in every)
        for pairs in (beside, combinations(single, 2)):
            found = (pair for pair in pairs if pair[0][0] != pair[1][0] and cell.explained_by(pair))
            likely = sorted(found, key=lambda pair: -sum(each.explained_by(pair) for each in cells[:SEARCHED]))
            yield from (Candidate(pair) for pair in likely[:KEPT])
            if likely:
                break


def _arithmetic(cells: Sequence[Evidence]) -> Iterator[Candidate]:
    """The least coarse arithmetic that explains, in each dtype, most of the simplest of these and the furthest off."""
    for dtype in dict.fromkeys(cell.facts.dtype for cell in cells):
        same = [cell for cell in cells if cell.facts.dtype == dtype]
        furthest = max(same, key=lambda cell: cell.excess)
        yield from (Candidate(arithmetic=each) for each in tightest([*same[:MEASURED], furthest]))


@dataclass(frozen=True)
class _Rated:
    """A candidate with the open cells that it explains, and the guards under which nothing contradicts it."""

    candidate: Candidate
    shows: tuple[int, ...]
    fit: Fit

    @property
    def worth(self) -> float:
        """How many cells it explains, less what it forfeits."""
        return len(self.shows) * (1.0 - PRICE * self.fit.depth)

    def like(self, other: "_Rated") -> bool:
        """Whether nothing tells the two apart."""
        return self.shows == other.shows and self.worth == other.worth


@dataclass
class _Search:
    """The cells of a subject, and what of the failing ones is explained so far."""

    cells: Sequence[Evidence]
    causes: list[Cause] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._guards = Guards(self.cells)
        by_size = sorted(range(len(self.cells)), key=lambda n: self.cells[n].simplicity)
        self._open = [n for n in by_size if self.cells[n].actual is not None]
        self._conforming = [n for n in by_size if self.cells[n].actual is None]
        self._taken: dict[int, Candidate] = {}
        self._against: dict[Candidate, list[int]] = {}

    def open_cells(self) -> list[Evidence]:
        """Failing cells without a cause, the simplest first."""
        return [self.cells[n] for n in self._open]

    def take(self, candidates: Iterable[Candidate]) -> None:
        """Take the best of the candidates as a cause, again and again, until none explains another cell."""
        found = {each: self._explained(each) for each in dict.fromkeys(candidates)}
        while rated := self._rated(found):
            best = max(rated, key=lambda each: each.worth)
            self._accept(best, [each for each in rated if each is not best and each.like(best)])

    def _explained(self, candidate: Candidate) -> frozenset[int]:
        return frozenset(n for n in self._open if candidate.explains(self.cells[n]))

    def _rated(self, found: dict[Candidate, frozenset[int]]) -> list[_Rated]:
        """The candidates that are causes, looked at from the one that explains most, as far as it takes."""
        shows = {each: tuple(n for n in self._open if n in cells) for each, cells in found.items()}
        rated: list[_Rated] = []
        for each in sorted(shows, key=lambda each: -len(shows[each])):
            best = max((one.worth for one in rated), default=0.0)
            if not shows[each] or len(shows[each]) < best:
                continue
            fit = self._guards.search(shows[each], self._contradicting(each, found[each]))
            if fit.guards and self._explains_most(each, fit.shows, fit.guards[0]):
                rated.append(_Rated(each, fit.shows, fit))
        return rated

    def _explains_most(self, candidate: Candidate, shows: Sequence[int], guard: Condition) -> bool:
        """Whether arithmetic explains most of what fails under its guard: a wide bound covers something anywhere."""
        if candidate.arithmetic is None:
            return True
        cells = [self.cells[n] for n in self._open]
        there = sum(guard.holds(cell.facts, cell.problem) for cell in cells if candidate.arithmetic.of(cell.profile))
        return len(shows) >= MOST * there

    def _contradicting(self, candidate: Candidate, explained: frozenset[int]) -> list[int]:
        """The conforming cells that speak against a candidate, and those explained otherwise."""
        if candidate not in self._against:
            self._against[candidate] = [n for n in self._conforming if candidate.contradicts(self.cells[n])]
        others = [
            n
            for n, taken in self._taken.items()
            if n not in explained
            and candidate.contradicts(self.cells[n], taken)
            and not candidate.explains(self.cells[n])
        ]
        return self._against[candidate] + others

    def _accept(self, best: _Rated, ties: Sequence[_Rated]) -> None:
        best, absorbed = self._with_parts(best)
        cells = tuple(self.cells[n] for n in best.shows)
        others = tuple(Cause(each.candidate, each.fit.guards, cells) for each in ties)
        self.causes = [cause for cause in self.causes if cause not in absorbed]
        self.causes.append(Cause(best.candidate, best.fit.guards, cells, others))
        self._taken |= dict.fromkeys(best.shows, best.candidate)
        self._open = [n for n in self._open if n not in best.shows]

    def _with_parts(self, best: _Rated) -> tuple[_Rated, list[Cause]]:
        """A pair, and the causes before it that are one of the two: where only that one shows, it is the pair still."""
        parts = [cause for cause in self.causes if set(cause.candidate.change) < set(best.candidate.change)]
        cells = {cell for cause in parts for cell in cause.cells}
        more = [n for n, taken in self._taken.items() if self.cells[n] in cells]
        if not more or not all(best.candidate.explains(self.cells[n]) for n in more):
            return best, []
        shows = tuple(sorted({*best.shows, *more}, key=lambda n: self.cells[n].simplicity))
        fit = self._guards.search(shows, self._contradicting(best.candidate, frozenset(shows)))
        return (_Rated(best.candidate, shows, fit), parts) if fit.shows == shows else (best, [])
