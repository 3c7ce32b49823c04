"""
Separates causes with several deviations into causes with one deviation each, if that is the shorter description.

A function with two mistakes shows both in some calls and one of them in others. The search finds one cause for each
combination. A user looks for the mistakes: each deviation, the condition under which it shows, and all its calls.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from conformance.diagnosis.candidates import Candidate, Cause
from conformance.diagnosis.condition_fit import ConditionFit, Guards
from conformance.diagnosis.evidence import Change, Evidence
from conformance.diagnosis.explanation import Way

# Maximum number of conditions under which one deviation is reported.
MAX_CONDITIONS_PER_DEVIATION = 2


def separated(cells: Sequence[Evidence], guards: Guards, causes: Sequence[Cause]) -> tuple[Cause, ...]:
    """
    The causes with one deviation each, and the causes that are coarser arithmetic; () if `causes` cost fewer bits.

    cells: all cells of the subject; guards: their conditions. A cell is among the cells of every deviation that it
    needs. The result is also () if no condition describes where a deviation shows.
    """
    if all(len(cause.candidate.change) <= 1 for cause in causes):
        return ()
    separation = _Separation(cells, guards, causes)
    found = [*separation.entries(), *(cause for cause in causes if not cause.candidate.change)]
    before, after = (sum(each.candidate.bits + each.condition_bits for each in some) for some in (causes, found))
    return tuple(found) if separation.is_complete and after <= before else ()


class _Separation:
    """Which deviations each explained cell needs. is_complete: whether a condition was found for every deviation."""

    def __init__(self, cells: Sequence[Evidence], guards: Guards, causes: Sequence[Cause]) -> None:
        self._cells, self._guards, self._causes = cells, guards, causes
        self._conforming = [n for n, cell in enumerate(cells) if cell.actual is None]
        number = {cell: n for n, cell in enumerate(cells)}
        counts = Counter(way for cause in causes for way in cause.candidate.change for _ in cause.cells)
        self._ways = [way for way, _ in counts.most_common()]
        self._needed = {
            number[cell]: needed(cell, sorted(cause.candidate.change, key=self._ways.index))
            for cause in causes
            for cell in cause.cells
        }
        self.is_complete = True

    def entries(self) -> Iterable[Cause]:
        """A cause for each deviation and condition, those with the most cells first."""
        found = [cause for way in self._ways for cause in self._entries(way)]
        self.is_complete = self.is_complete and self._agrees(found)
        return sorted(found, key=lambda cause: -len(cause.cells))

    def _entries(self, way: Way) -> Iterable[Cause]:
        shows = sorted(
            (n for n, change in self._needed.items() if way in change), key=lambda n: self._cells[n].simplicity
        )
        against = [n for n in self._conforming if self._cells[n].contradicts((way,))]
        against += [n for n, change in self._needed.items() if way not in change and self._lacks(n, change, way)]
        for _ in range(MAX_CONDITIONS_PER_DEVIATION):
            fit = self._guards.search(shows, against) if shows else ConditionFit()
            if fit.shows:
                yield self._cause(way, fit)
            shows = [n for n in shows if n not in fit.shows]
        self.is_complete = self.is_complete and not shows

    def _lacks(self, number: int, change: Change, way: Way) -> bool:
        """Whether a cell that `change` explains contradicts one more deviation."""
        cell = self._cells[number]
        return cell.contradicts((way,), change) and not explains(cell, (*change, way))

    def _cause(self, way: Way, fit: ConditionFit) -> Cause:
        cells = tuple(self._cells[n] for n in fit.shows)
        ties = tuple(tie for tie in self._ties(way) if all(self._explains_instead(n, way, tie) for n in fit.shows))
        return Cause(Candidate((way,)), fit.guards, cells, ties, condition_bits=fit.bits)

    def _ties(self, way: Way) -> Iterable[Cause]:
        alone = (cause for cause in self._causes if cause.candidate.change == (way,))
        return next((cause.ties for cause in alone), ())

    def _explains_instead(self, number: int, way: Way, tie: Cause) -> bool:
        rest = tuple(each for each in self._needed[number] if each != way)
        return bool(tie.candidate.change) and explains(self._cells[number], (*rest, *tie.candidate.change))

    def _agrees(self, found: Sequence[Cause]) -> bool:
        """Whether every cell is explained by all deviations whose conditions it meets."""
        return all(explains(self._cells[n], self._met(n, found)) for n in self._needed if self._needed[n])

    def _met(self, number: int, found: Sequence[Cause]) -> Change:
        cell = self._cells[number]
        met = [
            way
            for cause in found
            if cause.holds(cell)
            for way in cause.candidate.change
            if not any(way[0] == needed[0] and way != needed for needed in self._needed[number])
        ]
        return tuple(dict(met).items())


def explains(cell: Evidence, change: Change) -> bool:
    """Whether a change explains a failing cell, even if the answers hardly differ."""
    return cell.explained_by(change) or cell.loosely_conforms_under(change)


def needed(cell: Evidence, change: Sequence[Way]) -> Change:
    """The deviations of a change that a cell needs to be explained; of two that are enough alone, the first."""
    found = tuple(change)
    for way in reversed(change):
        rest = tuple(each for each in found if each != way)
        if rest and explains(cell, rest):
            found = rest
    return found
