"""Deviations of causal and window arguments: which key is the first or last that a query attends."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from conformance.deviations.deviation import Deviation, ProblemMap, each_operand
from conformance.spec.problem import Array, MaskOperand, Problem

# Number of keys to the left and to the right of a query that a window includes; None is unbounded.
Edges = tuple[int | None, int | None]

# Edges of a causal argument, relative to the position of the query.
CAUSAL: Edges = (None, 0)


def causal(seq_len_q: int, seq_len_k: int, offset: int) -> Array:
    """Return a causal mask: True where key <= query + offset, shape (1, 1, seq_len_q, seq_len_k)."""
    return _distance(seq_len_q, seq_len_k) <= offset


def window(seq_len_q: int, seq_len_k: int, left: int | None, right: int | None) -> Array:
    """
    Return a window: True where query - left <= key <= query + right; None is unbounded.

    Shape (1, 1, seq_len_q, seq_len_k).
    """
    distance = _distance(seq_len_q, seq_len_k)
    attended = np.ones(distance.shape, dtype=bool)
    if left is not None:
        attended &= distance >= -left
    if right is not None:
        attended &= distance <= right
    return attended


def _distance(seq_len_q: int, seq_len_k: int) -> Array:
    """Return key minus query, shape (1, 1, seq_len_q, seq_len_k)."""
    return (np.arange(seq_len_k)[None, :] - np.arange(seq_len_q)[:, None])[None, None]


def each_causal_argument(change: Callable[[Problem, MaskOperand, int], MaskOperand]) -> ProblemMap:
    """Make a map that changes every causal argument; `change` also receives its offset."""

    def changed(problem: Problem, operand: MaskOperand) -> MaskOperand:
        return operand if operand.offset is None else change(problem, operand, operand.offset)

    return each_operand(changed)


def offset_is(offset: Callable[[Problem, int], int]) -> ProblemMap:
    """Make a map that changes the offset of causal arguments, given the problem and the old offset."""

    def moved(problem: Problem, operand: MaskOperand, old: int) -> MaskOperand:
        new = offset(problem, old)
        same = new == old
        return (
            operand if same else replace(operand, values=causal(problem.seq_len_q, problem.seq_len_k, new), offset=new)
        )

    return each_causal_argument(moved)


def moved_causal(shift: Callable[[Problem], int]) -> ProblemMap:
    """Make a map that shifts the diagonal of causal arguments by `shift`."""
    return offset_is(lambda problem, old: old + shift(problem))


def _from_the_first_key(problem: Problem, offset: int) -> int:
    """Return offset 0, whatever alignment is requested: query i attends keys 0 to i; keep the offset of a past."""
    return offset if offset == problem.past else 0


def _of_all_batch_elements(anchor: Callable[[Problem], int]) -> ProblemMap:
    """Make a map that fixes masks which move with the lengths: query i is at i + anchor in all batch elements."""

    def fixed(problem: Problem, operand: MaskOperand) -> MaskOperand:
        if operand.moved is None:
            return operand
        first = anchor(problem)
        edges = _moved(operand.moved, -first, first)
        seen = window(problem.seq_len_q, problem.seq_len_k, *edges)
        if operand.moved == CAUSAL:
            return replace(operand, values=seen, offset=first, moved=None)
        return replace(operand, values=seen, window=edges, moved=None)

    return each_operand(fixed)


def _both_kinds(fixed: ProblemMap, moving: ProblemMap) -> ProblemMap:
    """Apply one map to fixed causal arguments and another to those that move with the lengths."""
    return lambda problem: moving(fixed(problem))


def _past_the_queries(problem: Problem) -> int:
    return problem.seq_len_k - problem.seq_len_q - problem.past


def _turned(first: int) -> ProblemMap:
    """Make a map under which query i attends the keys from i + offset + first on."""

    def turned(problem: Problem, operand: MaskOperand, offset: int) -> MaskOperand:
        seen = _distance(problem.seq_len_q, problem.seq_len_k) >= offset + first
        return replace(operand, values=seen, offset=None)

    return each_causal_argument(turned)


def _of_first_row(problem: Problem, operand: MaskOperand, _: int) -> MaskOperand:
    """Use the causal row of the first query for all queries, if another mask does not span the queries."""
    shows = any(each.offset is None and each.values.shape[2] == 1 for each in problem.mask_operands)
    return replace(operand, values=operand.values[:, :, :1]) if shows else operand


def _last_row_open(_: Problem, operand: MaskOperand, __: int) -> MaskOperand:
    """Let the last query attend all keys."""
    opened = np.concatenate([operand.values[:, :, :-1], np.ones_like(operand.values[:, :, -1:])], axis=2)
    return replace(operand, values=opened)


def _first_key_alone(problem: Problem, operand: MaskOperand, _: int) -> MaskOperand:
    """Attend only the first key if there is a past, as if each query were a call of its own."""
    if not problem.past:
        return operand
    return replace(operand, values=np.broadcast_to(np.arange(problem.seq_len_k) == 0, (1, 1, 1, problem.seq_len_k)))


def _edges(other: Callable[[Edges, Problem], Edges]) -> ProblemMap:
    """Make a map that changes the edges of every window, given the old ones."""

    def moved(problem: Problem, operand: MaskOperand) -> MaskOperand:
        if operand.window is None or (edges := other(operand.window, problem)) == operand.window:
            return operand
        return replace(operand, values=window(problem.seq_len_q, problem.seq_len_k, *edges), window=edges)

    return each_operand(moved)


def _sides(other: Callable[[Edges], Edges]) -> ProblemMap:
    """Like `_edges`, but with edges as the caller counts them: without the shift by the past."""

    def counted(edges: Edges, problem: Problem) -> Edges:
        return _moved(other(_moved(edges, problem.past, -problem.past)), -problem.past, problem.past)

    return _edges(counted)


def _moved(edges: Edges, left: int, right: int) -> Edges:
    """Move the edges outwards by `left` and `right` keys; an unbounded side stays."""
    return (None if edges[0] is None else edges[0] + left, None if edges[1] is None else edges[1] + right)


def _wider(left: int, right: int) -> ProblemMap:
    return _edges(lambda edges, _: _moved(edges, left, right))


def _unbounded_is_zero(edges: Edges) -> Edges:
    return edges if edges == (None, None) else (edges[0] or 0, edges[1] or 0)


def _from_last_key(edges: Edges, problem: Problem) -> Edges:
    """Put the last query at the last key, as if the extra keys were a past."""
    more = _past_the_queries(problem)
    return _moved(edges, -more, more)


def _both(edges: Edges, side: int) -> Edges:
    """Use one side of the window for both; if it is unbounded, both are."""
    return edges[side], edges[side]


def _alignment(name: str, problem: ProblemMap) -> Deviation:
    return Deviation("causal_alignment", name, problem=problem)


def _window(name: str, problem: ProblemMap) -> Deviation:
    return Deviation("window_edges", name, problem=problem)


ROWS: tuple[Deviation, ...] = (
    _alignment("bottom_right", _both_kinds(moved_causal(_past_the_queries), _of_all_batch_elements(_past_the_queries))),
    _alignment("strict", moved_causal(lambda _: -1)),
    _alignment("one_ahead", moved_causal(lambda _: 1)),
    _alignment("first_row", each_causal_argument(_of_first_row)),
    _alignment("last_row_open", each_causal_argument(_last_row_open)),
    _alignment("never_negative", offset_is(lambda _, offset: max(offset, 0))),
    _alignment("wrong_sign", offset_is(lambda _, offset: -offset)),
    _alignment("bottom_right_reversed", moved_causal(lambda problem: -_past_the_queries(problem))),
    _alignment("reversed", _turned(0)),
    _alignment("future", _turned(1)),
    _alignment("always_top_left", _both_kinds(offset_is(_from_the_first_key), _of_all_batch_elements(lambda _: 0))),
    Deviation("causal_with_past", "not_shifted", problem=moved_causal(lambda p: -p.past)),
    Deviation("causal_with_past", "first_key", problem=each_causal_argument(_first_key_alone)),
    Deviation("window_with_past", "not_shifted", problem=_edges(lambda edges, p: _moved(edges, p.past, -p.past))),
    _window("exclusive", _wider(-1, -1)),
    _window("left_shorter", _wider(-1, 0)),
    _window("left_longer", _wider(1, 0)),
    _window("right_shorter", _wider(0, -1)),
    _window("right_longer", _wider(0, 1)),
    _window("unbounded_is_zero", _sides(_unbounded_is_zero)),
    _window("left_only", _edges(lambda edges, _: (edges[0], None))),
    _window("right_only", _edges(lambda edges, _: (None, edges[1]))),
    _window("to_query", _sides(lambda edges: (edges[0], None if edges[1] is None else 0))),
    _window("left_for_both", _sides(lambda edges: _both(edges, 0))),
    _window("right_for_both", _sides(lambda edges: _both(edges, 1))),
    _window("unbounded_ends_at_query", _sides(lambda edges: (edges[0], 0 if edges[1] is None else edges[1]))),
    _window("zero_is_unbounded", _sides(lambda edges: (edges[0] or None, edges[1] or None))),
    _window("zero_right_is_unbounded", _sides(lambda edges: (edges[0], edges[1] or None))),
    _window("sides_exchanged", _edges(lambda edges, _: (edges[1], edges[0]))),
    # After the deviations above, which read the edges as they are counted from the first key.
    Deviation("window_alignment", "bottom_right", problem=_edges(_from_last_key)),
)
