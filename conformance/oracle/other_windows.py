"""Variations that take the sides of a window for something else."""

from collections.abc import Callable

from conformance.oracle.other_masks import Edges, each_group, with_edges
from conformance.oracle.variation import ProblemMap, Variation, problem_row
from conformance.spec.problem import Group, Problem


def _sides(other: Callable[[Edges, int], Edges]) -> ProblemMap:
    """Other sides, from those that are asked for and the length of the past, which the places of keys count on from."""

    def moved(problem: Problem, group: Group) -> Group:
        return group if group.window is None else with_edges(problem, group, other(group.window, problem.past))

    return each_group(moved)


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


def _row(name: str, sentence: str, problem: ProblemMap) -> Variation:
    return problem_row("window_edges", name, sentence, "pass the mask", problem)


ROWS: tuple[Variation, ...] = (
    _row("to_query", "ends a window at the query itself, whatever its right side is", _right(lambda _: 0)),
    _row(
        "from_last_key", "counts a window from the last key, at which the last query stands", each_group(_from_last_key)
    ),
    _row("left_for_both", "takes the left side of a window for both", _one_for_both(left=True)),
    _row("right_for_both", "takes the right side of a window for both", _one_for_both(left=False)),
    _row(
        "unbounded_ends_at_query",
        "ends a window at the query itself where it has no bound on the right",
        _sides(_to_query_unless_bounded),
    ),
    _row(
        "zero_is_unbounded",
        "takes a side of 0 of a window for no bound",
        _sides(lambda edges, past: _left_unbounded(_right_unbounded(edges, past), past)),
    ),
)
