"""
Loops over tiles of keys under a causal flag, fitted to a few of the cells that fail: there are too many for the table.

What each shows is worked out first: of many that show the same only one is tried.
"""

from collections.abc import Iterator, Sequence
from math import prod

from conformance.deviations.key_loops import DECISION, KeyLoop, is_flag, key_loops
from conformance.judge.candidates import Candidate
from conformance.judge.evidence import Evidence
from conformance.spec.problem import Problem

TRIED = 3
"""So many of the simplest cells and of the largest are tried."""
PLACES = 2**15
"""Logits of a cell that is not too large for that."""
KEPT = 6
"""So many of those that explain most are tried on all cells."""
CONTRASTS = 16
"""In so many calls that conform it is seen what tells them apart."""

Shown = tuple[bytes, ...]
"""What a loop shows of several calls, each as bytes; empty where that is what the flag shows."""


def fitted(cells: Sequence[Evidence], conforming: Sequence[Evidence] = ()) -> Iterator[Candidate]:
    """
    The loops that explain most of some failing cells.

    conforming: of what shows the same where calls fail, that comes first which shows in the fewest of these.
    """
    flagged = [cell for cell in cells if _has_flag(cell.problem) and prod(cell.problem.logits_shape) <= PLACES]
    found = _explained(_tried(flagged))
    most = max((count for _, count in found), default=0)
    plainest: dict[tuple[str, Shown], KeyLoop] = {}
    beside = _of_each_shape(conforming)
    for loop in (loop for loops, count in found if count == most > 0 for loop in loops):
        plainest.setdefault((loop.kind, _shown(loop, beside)), loop)
    fewest_first = sorted(plainest, key=lambda each: sum(map(bool, each[1])))
    yield from (_candidate(plainest[each]) for each in fewest_first[:KEPT])


def _has_flag(problem: Problem) -> bool:
    return any(is_flag(group) for group in problem.groups)


def _tried(cells: Sequence[Evidence]) -> list[Evidence]:
    by_size = sorted(cells, key=lambda cell: prod(cell.problem.logits_shape))
    return [*dict.fromkeys([*cells[:TRIED], *by_size[-TRIED:]])]


def _of_each_shape(cells: Sequence[Evidence]) -> list[Problem]:
    """One call of each shape, of the simplest."""
    shapes = {cell.problem.logits_shape: cell.problem for cell in reversed(cells)}
    return sorted(shapes.values(), key=lambda problem: prod(problem.logits_shape))[:CONTRASTS]


def _explained(cells: Sequence[Evidence]) -> list[tuple[list[KeyLoop], int]]:
    """Loops that show the same in all cells, those of one kind, and how many of the cells they explain."""
    same: dict[tuple[str, Shown], list[KeyLoop]] = {}
    problems = [cell.problem for cell in cells]
    for loop in key_loops() if cells else ():
        if any(shown := _shown(loop, problems)):
            same.setdefault((loop.kind, shown), []).append(loop)
    seen: dict[tuple[int, bytes], bool] = {}
    for (_, shown), (loop, *_) in same.items():
        for place, what in enumerate(shown):
            if (place, what) not in seen:
                seen[place, what] = bool(what) and _candidate(loop).explains(cells[place])
    return [(loops, sum(seen[each] for each in enumerate(shown))) for (_, shown), loops in same.items()]


def _shown(loop: KeyLoop, problems: Sequence[Problem]) -> Shown:
    """What every flag of each call shows under the loop."""
    return tuple(b"".join(_seen(loop, problem)) for problem in problems)


def _seen(loop: KeyLoop, problem: Problem) -> Iterator[bytes]:
    for group in problem.groups:
        if is_flag(group) and (seen := loop.seen(problem, group)).tobytes() != (group.values != 0).tobytes():
            yield seen.tobytes()


def _candidate(loop: KeyLoop) -> Candidate:
    return Candidate(((DECISION, loop.name),))
