"""
Causes that have no row in the table, since there are too many of them: fitted to a few of the cells that fail.

What each shows is worked out first: many show the same, and only one of these is tried.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import prod

from conformance.judge.candidates import Candidate
from conformance.judge.evidence import Evidence
from conformance.oracle.exchanges import exchange, exchanges
from conformance.oracle.key_loops import key_loop, key_loops
from conformance.oracle.key_ranges import key_range, key_ranges
from conformance.oracle.variation import Variation
from conformance.spec.problem import Problem

TRIED = 3
"""So many of the simplest cells and of the largest are tried."""
PLACES = 2**15
"""Logits of a cell that is not too large for that."""
KEPT = 6
"""So many of those that explain most are tried on all cells: the plainest."""

Shown = Callable[[Problem], bytes]
Kinds = Iterable[tuple[str, Variation, Shown]]
"""
Variations, the plainest first, each with its kind and what it makes of a call, nothing where that is as without it. Of
those of one kind that show the same the plainest is tried.
"""


def fitted(cells: Sequence[Evidence]) -> Iterator[Candidate]:
    """Of each family those that explain the most of some cells: loops under causal flags, ranges of keys, exchanges."""
    small = [cell for cell in cells if prod(cell.problem.logits_shape) <= PLACES]
    flagged = [cell for cell in small if any(group.offset is not None for group in cell.problem.groups)]
    yield from _best(flagged, (_attended(each.kind, key_loop(each)) for each in key_loops()))
    yield from _best(small, (_attended(each.kind, key_range(each)) for each in key_ranges()))
    yield from _best(small, ((each.kind, exchange(each), each.shown) for each in exchanges()))


def _attended(kind: str, row: Variation) -> tuple[str, Variation, Shown]:
    """What shows of a variation of masks is what every query attends under it."""

    def shown(problem: Problem) -> bytes:
        masked = row.problem(problem) if row.problem else problem
        return b"" if masked is problem else b"".join(group.values.tobytes() for group in masked.groups)

    return kind, row, shown


def _best(cells: Sequence[Evidence], kinds: Kinds) -> Iterator[Candidate]:
    by_size = sorted(cells, key=lambda cell: prod(cell.problem.logits_shape))
    found = _different([*dict.fromkeys([*cells[:TRIED], *by_size[-TRIED:]])], kinds)
    explained = {each: sum(fits) for each, fits in found.items() if any(fits)}
    most = [each for each, count in explained.items() if count == max(explained.values())]
    yield from most[:KEPT]


def _different(cells: Sequence[Evidence], kinds: Kinds) -> dict[Candidate, list[bool]]:
    """Each variation and which cells it explains; not one that shows the same in all as a plainer of its kind."""
    found: dict[tuple[str, tuple[bytes, ...]], Candidate] = {}
    for kind, row, shows in kinds if cells else ():
        shown = tuple(shows(cell.problem) for cell in cells)
        if any(shown):
            found.setdefault((kind, shown), Candidate(((row.decision, row.name),)))
    fits: dict[tuple[int, bytes], bool] = {}
    for (_, shown), candidate in found.items():
        for place in enumerate(shown):
            if place not in fits:
                fits[place] = bool(place[1]) and candidate.explains(cells[place[0]])
    return {candidate: [fits[place] for place in enumerate(shown)] for (_, shown), candidate in found.items()}
