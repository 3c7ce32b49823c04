"""Variations that read causal flags and windows otherwise, or combine masks otherwise."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from conformance.oracle.variation import ProblemMap, Variation, problem_row
from conformance.spec.masks import as_bool, is_boolean
from conformance.spec.problem import Array, Group, Problem

Edges = tuple[int | None, int | None]
"""How far a window reaches to the left and to the right of a query, None where it is not bounded."""


def each_group(change: Callable[[Problem, Group], Group]) -> ProblemMap:
    """Change every group; the same problem where no group changes."""

    def apply(problem: Problem) -> Problem:
        groups = tuple(change(problem, group) for group in problem.groups)
        same = all(a is b for a, b in zip(groups, problem.groups, strict=True))
        return problem if same else problem.but(groups=groups)

    return apply


def moved_causal(shift: Callable[[Problem], int]) -> ProblemMap:
    """Move the diagonal of a causal flag by `shift`."""

    def moved(problem: Problem, group: Group) -> Group:
        if group.offset is None or (by := shift(problem)) == 0:
            return group
        offset = group.offset + by
        return replace(group, values=causal(problem.seq_len_q, problem.seq_len_k, offset), offset=offset)

    return each_group(moved)


def _never_negative(problem: Problem, group: Group) -> Group:
    """Places are counted without a sign, or a past is thought of, which is never shorter than nothing."""
    if group.offset is None or group.offset >= 0:
        return group
    return replace(group, values=causal(problem.seq_len_q, problem.seq_len_k, 0), offset=0)


def causal(seq_len_q: int, seq_len_k: int, offset: int) -> Array:
    """True where key <= query + offset, shape (1, 1, seq_len_q, seq_len_k)."""
    return (np.arange(seq_len_k)[None, :] <= np.arange(seq_len_q)[:, None] + offset)[None, None]


def window(seq_len_q: int, seq_len_k: int, left: int | None, right: int | None) -> Array:
    """True where query - left <= key <= query + right, shape (1, 1, seq_len_q, seq_len_k); None is unbounded."""
    apart = np.arange(seq_len_k)[None, :] - np.arange(seq_len_q)[:, None]
    attended = np.ones(apart.shape, dtype=bool)
    if left is not None:
        attended &= apart >= -left
    if right is not None:
        attended &= apart <= right
    return attended[None, None]


def with_edges(problem: Problem, group: Group, edges: Edges) -> Group:
    """A window with these edges in place of its own; the same group where they are the same."""
    if edges == group.window:
        return group
    return replace(group, values=window(problem.seq_len_q, problem.seq_len_k, *edges), window=edges)


def _window(left: int, right: int) -> ProblemMap:
    """Move the edges of a window outwards by so many keys; an unbounded side stays."""

    def moved(problem: Problem, group: Group) -> Group:
        if group.window is None:
            return group
        first, last = group.window
        edges = (None if first is None else first + left, None if last is None else last + right)
        return with_edges(problem, group, edges)

    return each_group(moved)


def _unbounded_is_zero(problem: Problem, group: Group) -> Group:
    """Read no bound on one side of a window as a side of zero."""
    if group.window is None or group.window == (None, None):
        return group
    first, last = group.window
    edges = (-problem.past if first is None else first, problem.past if last is None else last)
    return with_edges(problem, group, edges)


def _window_unshifted(problem: Problem) -> Problem:
    return _window(problem.past, -problem.past)(problem) if problem.past else problem


def _rows(change: Callable[[Array], Array], concerns: Callable[[Problem], bool]) -> ProblemMap:
    """Change what a causal flag allows, where the call is such that it shows."""

    def changed(problem: Problem, group: Group) -> Group:
        if group.offset is None or not concerns(problem):
            return group
        return replace(group, values=change(group.values))

    return each_group(changed)


def _beside_one_row(problem: Problem) -> bool:
    """Whether an array mask does not span the queries."""
    return any(group.offset is None and group.values.shape[2] == 1 for group in problem.groups)


def _opened(values: Array) -> Array:
    """All keys for the last query."""
    return np.concatenate([values[:, :, :-1], np.ones_like(values[:, :, -1:])], axis=2)


def _last_wins(problem: Problem) -> Problem:
    return problem.but(groups=problem.groups[-1:]) if len(problem.groups) > 1 else problem


def _any_allows(problem: Problem) -> Problem:
    """One group in place of all boolean ones: attended where any of them attends."""
    return _either(problem, [group for group in problem.groups if is_boolean(group)])


def _any_array_allows(problem: Problem) -> Problem:
    """The same for masks that are arrays; flags and windows hide as before."""
    return _either(problem, [group for group in problem.groups if is_boolean(group) and group.element != "flag"])


def _either(problem: Problem, booleans: list[Group]) -> Problem:
    if len(booleans) < 2:  # noqa: PLR2004 - it takes two to be combined
        return problem
    values = as_bool(booleans[0]).values
    for group in booleans[1:]:
        values = values | as_bool(group).values
    kinds = tuple(dict.fromkeys(kind for group in booleans for kind in group.kinds))
    either = Group(booleans[0].slot, kinds, "bool", values)
    return problem.but(
        groups=(either, *(group for group in problem.groups if all(group is not one for one in booleans)))
    )


ROWS: tuple[Variation, ...] = (
    problem_row(
        "causal_alignment",
        "bottom_right",
        "aligns the causal flag to the last key",
        "pass the mask",
        moved_causal(lambda p: p.seq_len_k - p.seq_len_q - p.past),
    ),
    problem_row(
        "causal_alignment", "strict", "hides the diagonal of a causal mask", "pass the mask", moved_causal(lambda _: -1)
    ),
    problem_row(
        "causal_alignment",
        "one_ahead",
        "shows one future key to each query",
        "pass the mask",
        moved_causal(lambda _: 1),
    ),
    problem_row(
        "causal_alignment",
        "first_row",
        "gives every query the causal mask of the first where the other mask has one row for all queries",
        "write the other mask out for every query",
        _rows(lambda values: values[:, :, :1], _beside_one_row),
    ),
    problem_row(
        "causal_alignment",
        "last_row_open",
        "does not apply the causal flag to the last query, which matters where there are more keys than queries",
        "pass the mask",
        _rows(_opened, lambda _: True),
    ),
    problem_row(
        "causal_alignment",
        "never_negative",
        "takes zero for a negative offset of the causal flag, so that one aligned to the last key is aligned to the "
        "first where there are more queries than keys",
        "pass the mask",
        each_group(_never_negative),
    ),
    problem_row(
        "causal_with_past",
        "not_shifted",
        "does not shift the causal flag by the length of the past",
        "pass the mask",
        moved_causal(lambda p: -p.past),
    ),
    problem_row(
        "window_with_past",
        "not_shifted",
        "does not shift the window by the length of the past",
        "pass the mask",
        _window_unshifted,
    ),
    problem_row(
        "window_edges",
        "exclusive",
        "counts the query itself into the window, so that it ends one key earlier on either side",
        "ask for one key more on either side",
        _window(-1, -1),
    ),
    problem_row(
        "window_edges",
        "left_shorter",
        "ends the window one key earlier on the left",
        "ask for one key more on the left",
        _window(-1, 0),
    ),
    problem_row(
        "window_edges",
        "left_longer",
        "ends the window one key later on the left",
        "ask for one key less on the left",
        _window(1, 0),
    ),
    problem_row(
        "window_edges",
        "right_shorter",
        "ends the window one key earlier on the right",
        "ask for one key more on the right",
        _window(0, -1),
    ),
    problem_row(
        "window_edges",
        "right_longer",
        "ends the window one key later on the right",
        "ask for one key less on the right",
        _window(0, 1),
    ),
    problem_row(
        "window_edges",
        "unbounded_is_zero",
        "takes an unbounded side of a window for one of 0",
        "give that side as many keys as there are",
        each_group(_unbounded_is_zero),
    ),
    problem_row(
        "mask_combination",
        "last_wins",
        "lets the last mask replace the others",
        "fold all masks into one",
        _last_wins,
    ),
    problem_row(
        "mask_combination",
        "or_of_arrays",
        "attends where any mask that is an array allows it, not where all do",
        "fold all masks into one",
        _any_array_allows,
    ),
    problem_row(
        "mask_combination",
        "or",
        "attends where any mask allows it, not where all do",
        "fold all masks into one",
        _any_allows,
    ),
)
