"""
Causes that have no row in the table, since there are too many of them: fitted to a few of the cells that fail.

What each shows is worked out first: many show the same, and only one of these is tried.
"""

from collections.abc import Iterable, Iterator, Sequence
from math import prod

from conformance.judge.candidates import Candidate
from conformance.judge.evidence import Evidence
from conformance.oracle.key_loops import key_loop, key_loops
from conformance.oracle.key_ranges import key_range, key_ranges
from conformance.oracle.variation import Variation

TRIED = 3
"""So many of the simplest cells and of the largest are tried."""
PLACES = 2**15
"""Logits of a cell that is not too large for that."""
KEPT = 6
"""So many of those that explain most are tried on all cells: the plainest."""

Kinds = Iterable[tuple[str, Variation]]
"""Variations, the plainest first, each with its kind: of those of one kind that show the same the plainest is tried."""


def fitted(cells: Sequence[Evidence]) -> Iterator[Candidate]:
    """Loops that explain the most of the cells under a causal flag, and ranges of keys that explain the most of all."""
    small = [cell for cell in cells if prod(cell.problem.logits_shape) <= PLACES]
    flagged = [cell for cell in small if any(group.offset is not None for group in cell.problem.groups)]
    yield from _best(flagged, ((each.kind, key_loop(each)) for each in key_loops()))
    yield from _best(small, ((each.kind, key_range(each)) for each in key_ranges()))


def _best(cells: Sequence[Evidence], kinds: Kinds) -> Iterator[Candidate]:
    by_size = sorted(cells, key=lambda cell: prod(cell.problem.logits_shape))
    found = _different([*dict.fromkeys([*cells[:TRIED], *by_size[-TRIED:]])], kinds)
    explained = {each: sum(fits) for each, fits in found.items() if any(fits)}
    most = [each for each, count in explained.items() if count == max(explained.values())]
    yield from most[:KEPT]


def _different(cells: Sequence[Evidence], kinds: Kinds) -> dict[Candidate, list[bool]]:
    """Each variation and which cells it explains; not one that shows the same in all as a plainer of its kind."""
    found: dict[tuple[str, tuple[bytes, ...]], Candidate] = {}
    for kind, each in kinds if cells else ():
        shown = tuple(_shown(cell, each) for cell in cells)
        if any(shown):
            found.setdefault((kind, shown), Candidate(((each.decision, each.name),)))
    fits: dict[tuple[int, bytes], bool] = {}
    for (_, shown), candidate in found.items():
        for place in enumerate(shown):
            if place not in fits:
                fits[place] = bool(place[1]) and candidate.explains(cells[place[0]])
    return {candidate: [fits[place] for place in enumerate(shown)] for (_, shown), candidate in found.items()}


def _shown(cell: Evidence, variation: Variation) -> bytes:
    """What every query of a cell attends under a variation; nothing where that is as without it."""
    problem = variation.problem(cell.problem) if variation.problem else cell.problem
    return b"" if problem is cell.problem else b"".join(group.values.tobytes() for group in problem.groups)
