"""Variations that take the sides of a window for something else."""

from collections.abc import Callable

import numpy as np

from conformance.oracle.other_masks import Edges, each_group, window, with_edges
from conformance.oracle.other_tiles import changed
from conformance.oracle.variation import ProblemMap, Variation, problem_row
from conformance.spec.problem import Array, Group, Problem

SINKS = (1, 2, 4, 8)
"""First keys that stay in sight of a window that goes on."""


def _sides(other: Callable[[Edges, int], Edges]) -> ProblemMap:
    """Other sides, from those that are asked for and the length of the past, which the places of keys count on from."""

    def moved(problem: Problem, group: Group) -> Group:
        return group if group.window is None else with_edges(problem, group, other(group.window, problem.past))

    return each_group(moved)


def _left(change: Callable[[int], int]) -> ProblemMap:
    """Another left side, where there is one."""
    return _sides(lambda edges, past: (None if edges[0] is None else change(edges[0] + past) - past, edges[1]))


def _right(change: Callable[[int], int]) -> ProblemMap:
    """Another right side, where there is one."""
    return _sides(lambda edges, past: (edges[0], None if edges[1] is None else change(edges[1] - past) + past))


def _left_unbounded(edges: Edges, past: int) -> Edges:
    """A left side of 0, as the caller counts it, is none."""
    return (None if edges[0] == -past else edges[0], edges[1])


def _right_unbounded(edges: Edges, past: int) -> Edges:
    """And a right one."""
    return (edges[0], None if edges[1] == past else edges[1])


def _to_query_unless_bounded(edges: Edges, past: int) -> Edges:
    """No right side is one of 0, as the caller counts it."""
    return (edges[0], past if edges[1] is None else edges[1])


def _from_query_unless_bounded(edges: Edges, past: int) -> Edges:
    """And no left one."""
    return (-past if edges[0] is None else edges[0], edges[1])


def _from_last_key(problem: Problem, group: Group) -> Group:
    """The last query stands at the last key, as after a past of what the keys are more."""
    if group.window is None:
        return group
    more = problem.seq_len_k - problem.seq_len_q - problem.past
    left, right = group.window
    return with_edges(problem, group, (None if left is None else left - more, None if right is None else right + more))


def _one_for_both(*, left: bool) -> ProblemMap:
    """One side in place of the other, where there are two."""

    def same(edges: Edges, past: int) -> Edges:
        if edges[0] is None or edges[1] is None:
            return edges
        return (edges[0], edges[0] + 2 * past) if left else (edges[1] - 2 * past, edges[1])

    return _sides(same)


def _outside(beyond: Callable[[Array, Edges], Array]) -> ProblemMap:
    """What lies outside of one side, or of both, in place of what lies within; by how far a key is behind the query."""

    def turned(problem: Problem, group: Group) -> Group:
        if group.window is None or group.window == (None, None):
            return group
        apart = np.arange(problem.seq_len_k)[None, :] - np.arange(problem.seq_len_q)[:, None]
        return changed(group, beyond(apart, group.window)[None, None])

    return each_group(turned)


def _before(apart: Array, edges: Edges) -> Array:
    """Before the left side, if there is one; up to the right one."""
    end = np.ones_like(apart, dtype=bool) if edges[1] is None else apart <= edges[1]
    return end if edges[0] is None else end & (apart < -edges[0])


def _behind(apart: Array, edges: Edges) -> Array:
    """Behind the right side, if there is one; from the left one on."""
    begin = np.ones_like(apart, dtype=bool) if edges[0] is None else apart >= -edges[0]
    return begin if edges[1] is None else begin & (apart > edges[1])


def _beyond_either(apart: Array, edges: Edges) -> Array:
    left, right = edges
    before = np.zeros_like(apart, dtype=bool) if left is None else apart < -left
    return before if right is None else before | (apart > right)


def _first_keys_shown(count: int) -> ProblemMap:
    """The first keys are seen from wherever a window begins behind them; its right side holds for them too."""

    def shown(problem: Problem, group: Group) -> Group:
        if group.window is None or group.window[0] is None:
            return group
        unbounded = window(problem.seq_len_q, problem.seq_len_k, None, group.window[1])
        return changed(group, group.values | (unbounded & (np.arange(problem.seq_len_k) < count)))

    return each_group(shown)


def _where_it_leaves(*, left: bool, seen: bool) -> ProblemMap:
    """A query whose window begins before the first key, or ends behind the last, sees nothing, or all keys."""

    def wrapped(problem: Problem, group: Group) -> Group:
        side = None if group.window is None else group.window[0 if left else 1]
        if side is None:
            return group
        queries = np.arange(problem.seq_len_q)[:, None]
        leaves = queries < side if left else queries + side >= problem.seq_len_k
        return changed(group, np.where(leaves, seen, group.values))

    return each_group(wrapped)


def _row(name: str, sentence: str, problem: ProblemMap) -> Variation:
    return problem_row("window_edges", name, sentence, "pass the mask", problem)


ROWS: tuple[Variation, ...] = (
    _row("from_query", "begins a window at the query itself, whatever its left side is", _left(lambda _: 0)),
    _row("to_query", "ends a window at the query itself, whatever its right side is", _right(lambda _: 0)),
    _row(
        "from_last_key", "counts a window from the last key, at which the last query stands", each_group(_from_last_key)
    ),
    _row("left_reversed", "begins a window so many keys behind the query, not before it", _left(lambda side: -side)),
    _row("right_reversed", "ends a window so many keys before the query, not behind it", _right(lambda side: -side)),
    _row("left_for_both", "takes the left side of a window for both", _one_for_both(left=True)),
    _row("right_for_both", "takes the right side of a window for both", _one_for_both(left=False)),
    _row("before", "attends the keys before a window on the left, not those from there on", _outside(_before)),
    _row("behind", "attends the keys behind a window on the right, not those up to there", _outside(_behind)),
    _row(
        "unbounded_ends_at_query",
        "ends a window at the query itself where it has no bound on the right",
        _sides(_to_query_unless_bounded),
    ),
    _row(
        "unbounded_begins_at_query",
        "begins a window at the query itself where it has no bound on the left",
        _sides(_from_query_unless_bounded),
    ),
    _row(
        "zero_is_unbounded",
        "takes a side of 0 of a window for no bound",
        _sides(lambda edges, past: _left_unbounded(_right_unbounded(edges, past), past)),
    ),
    _row("left_zero_is_unbounded", "takes a left side of 0 of a window for no bound", _sides(_left_unbounded)),
    _row("right_zero_is_unbounded", "takes a right side of 0 of a window for no bound", _sides(_right_unbounded)),
    _row("inverted", "attends just the keys outside of a window", _outside(_beyond_either)),
    *(
        _row(
            f"{name}_{result}",
            f"shows a query {what} where its window {where}{why}",
            _where_it_leaves(left=left, seen=seen),
        )
        for name, where, left in (
            ("begins_before_keys", "begins before the first key", True),
            ("ends_behind_keys", "ends behind the last key", False),
        )
        for result, what, why, seen in (
            ("none", "no key", ": its position wraps, or is not clamped", False),
            ("all", "all keys", "", True),
        )
    ),
    *(
        _row(
            f"sinks_{count}",
            f"attends the first {'key' if count == 1 else f'{count} keys'} even before a window (attention sinks)",
            _first_keys_shown(count),
        )
        for count in SINKS
    ),
)
