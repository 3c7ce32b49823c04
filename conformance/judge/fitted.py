"""
Causes that have no row in the table, since there are too many of them: fitted to a few of the cells that fail.

What each shows is worked out first: of many that show the same only one is tried.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from conformance.judge.candidates import Candidate
from conformance.judge.evidence import Evidence
from conformance.judge.wrong_rows import WITH_ROWS, are_merged, joined, wrong_elements, wrong_rows
from conformance.oracle.exchanges import exchange, exchanges
from conformance.oracle.key_loops import key_loop, key_loops
from conformance.oracle.key_ranges import key_range, key_ranges
from conformance.oracle.place_masks import place_mask, place_masks
from conformance.oracle.row_answers import row_answer, row_answers
from conformance.oracle.variation import Variation
from conformance.spec.problem import Array, Problem

TRIED = 3
"""So many of the simplest cells and of the largest are tried."""
PLACES = 2**15
"""Logits of a cell that is not too large for that."""
KEPT = 6
"""So many of those that explain most are tried on all cells."""
CONTRASTS = 16
"""In so many calls that conform it is seen what tells them apart."""


@dataclass(frozen=True)
class Trial:
    """
    A variation that is tried; of those of one kind that show the same, the plainest.

    shown: what it makes of a call, nothing where that is as without it. rows: those that may have another answer,
    broadcastable to (batch, num_heads, seq_len_q).
    """

    kind: str
    row: Variation
    shown: Callable[[Problem], bytes]
    rows: Callable[[Problem], Array]

    @property
    def candidate(self) -> Candidate:
        """As a cause may be."""
        return Candidate(((self.row.decision, self.row.name),))

    def explains(self, cell: Evidence, wrong: Array | None) -> bool:
        """Whether a failing cell lies within its bound under it; not looked at if other rows are wrong than may be."""
        if wrong is not None:
            merged = are_merged(cell)
            rows = np.broadcast_to(self.rows(cell.problem), cell.problem.logits_shape[:3])
            if np.any(wrong & ~joined(rows, merged=merged)):
                return False
        return self.candidate.explains(cell)


def fitted(cells: Sequence[Evidence], conforming: Sequence[Evidence] = ()) -> Iterator[Candidate]:
    """
    Loops under flags, ranges of keys, places, exchanges, rows: of each those that explain most of some failing cells.

    conforming: of what shows the same where calls fail, that comes first which shows in the fewest of these.
    """
    small = [cell for cell in cells if prod(cell.problem.logits_shape) <= PLACES]
    flagged = [cell for cell in small if any(group.offset is not None for group in cell.problem.groups)]
    beside = _of_each_shape(conforming)
    yield from _best(flagged, beside, (_attended(each.kind, key_loop(each)) for each in key_loops()))
    yield from _best(small, beside, (_attended(each.kind, key_range(each)) for each in key_ranges()))
    masked = [cell for cell in small if cell.problem.groups]
    hidden = (_attended(each.effect, place_mask(each)) for each in place_masks() if masked or each.effect == "hidden")
    yield from _best(small, beside, hidden)
    exchanged = (Trial(each.kind, exchange(each), each.shown, each.rows) for each in exchanges())
    yield from _best(small, beside, exchanged)
    answered = (Trial(each.answer, row_answer(each), each.shown, each.rows) for each in row_answers())
    yield from _best(small, beside, answered)


def _of_each_shape(cells: Sequence[Evidence]) -> list[Problem]:
    """One call of each shape, of the simplest."""
    shapes = {cell.problem.logits_shape: cell.problem for cell in reversed(cells)}
    return sorted(shapes.values(), key=lambda problem: prod(problem.logits_shape))[:CONTRASTS]


def _attended(kind: str, row: Variation) -> Trial:
    """What shows of a variation of masks is what every query attends under it, and that in other rows than before."""

    def masked(problem: Problem) -> Problem:
        return row.problem(problem) if row.problem else problem

    def shown(problem: Problem) -> bytes:
        other = masked(problem)
        return b"" if other is problem else b"".join(group.values.tobytes() for group in other.groups)

    def rows(problem: Problem) -> Array:
        return np.asarray(np.any(masked(problem).attended() != problem.attended(), axis=-1))

    return Trial(kind, row, shown, rows)


def _best(cells: Sequence[Evidence], beside: Sequence[Problem], fits: Iterable[Trial]) -> Iterator[Candidate]:
    by_size = sorted(cells, key=lambda cell: prod(cell.problem.logits_shape))
    found = _explained([*dict.fromkeys([*cells[:TRIED], *by_size[-TRIED:]])], fits)
    most = max((count for _, count in found), default=0)
    plainest: dict[tuple[str, tuple[bytes, ...]], Trial] = {}
    for fit in (fit for fits, count in found if count == most > 0 for fit in fits):
        plainest.setdefault((fit.kind, tuple(fit.shown(problem) for problem in beside)), fit)
    yield from (plainest[each].candidate for each in sorted(plainest, key=lambda each: sum(map(bool, each[1])))[:KEPT])


def _explained(cells: Sequence[Evidence], fits: Iterable[Trial]) -> list[tuple[list[Trial], int]]:
    """Variations that show the same in all cells, those of one kind, and how many of the cells they explain."""
    same: dict[tuple[str, tuple[bytes, ...]], list[Trial]] = {}
    for fit in fits if cells else ():
        shown = tuple(fit.shown(cell.problem) for cell in cells)
        if any(shown):
            same.setdefault((fit.kind, shown), []).append(fit)
    wrong = [_wrong_rows(cell) for cell in cells]
    seen: dict[tuple[int, bytes], bool] = {}
    for (_, shown), (fit, *_) in same.items():
        for place, what in enumerate(shown):
            if (place, what) not in seen:
                seen[place, what] = bool(what) and fit.explains(cells[place], wrong[place])
    return [(fits, sum(seen[each] for each in enumerate(shown))) for (_, shown), fits in same.items()]


def _wrong_rows(cell: Evidence) -> Array | None:
    """The rows in which something is wrong; None where they are not known."""
    wrong = wrong_elements(cell)
    if not wrong or any(each.any() and name not in WITH_ROWS for name, each in wrong.items()):
        return None
    return wrong_rows(wrong, merged=are_merged(cell))
