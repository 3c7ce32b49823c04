"""
Causes that have no row in the table, since there are too many of them: fitted to a few of the cells that fail.

Of loops over tiles of keys, what each shows is worked out first: many show the same, and only one of these is tried.
"""

from collections.abc import Iterator, Sequence
from math import prod

from conformance.judge.candidates import Candidate
from conformance.judge.evidence import Evidence
from conformance.oracle.key_loops import DECISION, KeyLoop, key_loop, key_loops

TRIED = 3
"""So many of the simplest cells and of the largest are tried."""
PLACES = 2**15
"""Logits of a cell that is not too large for that."""
KEPT = 6
"""So many of those that explain most are tried on all cells: the plainest."""


def fitted(cells: Sequence[Evidence]) -> Iterator[Candidate]:
    """Loops that explain the most of the cells under a causal flag, of the simplest and the largest."""
    causal = [cell for cell in cells if _offsets(cell) and prod(cell.problem.logits_shape) <= PLACES]
    by_size = sorted(causal, key=lambda cell: prod(cell.problem.logits_shape))
    loops = _different([*dict.fromkeys([*causal[:TRIED], *by_size[-TRIED:]])])
    explained = {loop: sum(fits) for loop, fits in loops.items() if any(fits)}
    most = [loop for loop, count in explained.items() if count == max(explained.values())]
    yield from (Candidate(((DECISION, loop.name),)) for loop in most[:KEPT])


def _offsets(cell: Evidence) -> list[int]:
    return [group.offset for group in cell.problem.groups if group.offset is not None]


def _different(cells: Sequence[Evidence]) -> dict[KeyLoop, list[bool]]:
    """Each loop, and which cells it explains; one that shows the same in all as a plainer of its kind is left out."""
    found: dict[tuple[int, int, tuple[bytes, ...]], KeyLoop] = {}
    for loop in key_loops() if cells else ():
        found.setdefault((loop.queries, loop.keys, tuple(_shown(cell, loop) for cell in cells)), loop)
    fits: dict[tuple[int, bytes], bool] = {}
    for (*_, shown), loop in found.items():
        for number, each in enumerate(shown):
            if (number, each) not in fits:
                fits[number, each] = bool(each) and cells[number].explained_by(((DECISION, loop.name),))
    return {loop: [fits[each] for each in enumerate(shown)] for (*_, shown), loop in found.items()}


def _shown(cell: Evidence, loop: KeyLoop) -> bytes:
    """What every query of a cell attends under a loop; nothing where that is as without it."""
    changed = key_loop(loop).problem
    problem = changed(cell.problem) if changed else cell.problem
    return b"" if problem is cell.problem else b"".join(group.values.tobytes() for group in problem.groups)
