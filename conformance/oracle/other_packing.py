"""Variations that are slips of what lies side by side: heads of a group, keys and values, items, padding."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from conformance.oracle.other_masks import each_group
from conformance.oracle.pipeline import Step, Steps, insert_after, replace_step
from conformance.oracle.state import State
from conformance.oracle.variation import ProblemMap, StepsMap, Variation, problem_row, unbounded_row
from conformance.spec.problem import Array, Group, Problem


def _shared(heads_of: Callable[[int, int], Array], *names: str) -> StepsMap:
    """
    Query heads read other heads of these than h // group.

    heads_of: num_heads and num_kv_heads -> which each reads.
    """

    def apply(steps: Steps, _: str) -> Steps:
        def group(state: State) -> State:
            done, problem = ordinary(state), state.problem
            heads = heads_of(problem.num_heads, problem.num_kv_heads)
            return done.but(**{name: getattr(state, name)[:, heads] for name in names})

        ordinary = next(step.apply for step in steps if step.name == "group")
        return replace_step(steps, "group", group)

    return apply


def _in_turn(heads: int, shared: int) -> Array:
    return np.arange(heads) % shared


def _by_count(heads: int, shared: int) -> Array:
    """The number of heads that are shared is taken for the size of a group; what lies behind the last is the last."""
    return np.minimum(np.arange(heads) // shared, shared - 1) if shared < heads else np.arange(heads)


def _kv_by_head(state: State) -> State:
    """The heads of all keys, then those of all values, are read as key and value of every head in turn."""
    if state.key.shape != state.value.shape or state.problem.num_kv_heads == 1:
        return state
    packed = np.concatenate([state.key, state.value], axis=1)
    return state.but(key=packed[:, 0::2], value=packed[:, 1::2])


def _projected_by_head(state: State) -> State:
    """Rows of all queries, then all keys, then all values are read as query, key and value of every head in turn."""
    heads = state.problem.num_heads
    if heads == 1 or not state.query.shape == state.key.shape == state.value.shape:
        return state
    packed = np.concatenate([state.query, state.key, state.value], axis=1)
    return state.but(query=packed[:, 0::3], key=packed[:, 1::3], value=packed[:, 2::3])


def _guessed_layout(state: State) -> State:
    """An array that has as many positions as heads passes for one that is split already."""

    def guessed(array: Array) -> Array:
        return array.swapaxes(1, 2) if array.shape[1] == array.shape[2] else array

    return state.but(query=guessed(state.query), key=guessed(state.key), value=guessed(state.value))


def _after_split(change: Callable[[State], State]) -> StepsMap:
    """Of projected heads alone: sdpa is handed what is split."""

    def apply(steps: Steps, _: str) -> Steps:
        there = any(step.name == "split" for step in steps)
        return insert_after(steps, "split", Step("unpack", change)) if there else steps

    return apply


def _mean_over_items(steps: Steps, _: str) -> Steps:
    """The axis batch * num_heads is unfolded as (num_heads, batch) before the mean over the heads is taken."""

    def mixed(state: State) -> State:
        done = ordinary(state)
        if "weights_mean" not in state.problem.outputs:
            return done
        batch, heads, *rows = done.weights.shape
        return done.but(weights=done.weights.reshape(heads, batch, *rows).swapaxes(0, 1))

    ordinary = next(step.apply for step in steps if step.name == "weights")
    return replace_step(steps, "weights", mixed)


def _causal_among_attended(problem: Problem, group: Group) -> Group:
    """Keys that padding hides are taken out first: a key's place is that among the others."""
    kept = left_by_padding(problem)
    if group.offset is None or kept is None:
        return group
    place = np.cumsum(kept, axis=-1) - 1
    seen = place <= np.arange(problem.seq_len_q)[:, None] + group.offset
    return replace(group, values=seen, offset=None)


def left_by_padding(problem: Problem) -> Array | None:
    """Keys of every item, (batch or 1, 1, 1, seq_len_k), that no padding hides; None where there is none."""
    padding = [each.allowed for each in problem.groups if _is_padding(each)]
    whole = [np.broadcast_to(each, _whole(each, problem)) for each in padding if each is not None]
    return np.asarray(np.logical_and.reduce(whole)) if whole else None


def _is_padding(group: Group) -> bool:
    """Whether a mask hides the same keys from every query of an item."""
    return group.offset is None and group.allowed is not None and group.values.shape[1:3] == (1, 1)


def _whole(values: Array, problem: Problem) -> tuple[int, ...]:
    return (*values.shape[:3], problem.seq_len_k)


def _packed(position: Callable[[Array, Problem], Array]) -> ProblemMap:
    """
    A causal flag for the queries of a group in one tall matrix, head after head.

    position: that of a query, from its row (num_heads // num_kv_heads, seq_len_q) in that matrix.
    """

    def misplaced(problem: Problem, group: Group) -> Group:
        heads, shared = problem.num_heads, problem.num_kv_heads
        if group.offset is None or shared == heads:
            return group
        rows = np.arange(heads // shared * problem.seq_len_q).reshape(heads // shared, problem.seq_len_q)
        places = np.tile(position(rows, problem) + group.offset, (shared, 1))
        return replace(group, values=(np.arange(problem.seq_len_k) <= places[..., None])[None], offset=None)

    return each_group(misplaced)


def _packed_items(problem: Problem, group: Group) -> Group:
    """A causal flag for all items in one long sequence of queries and one of keys: each item moves it further."""
    moved = np.arange(problem.batch) * (problem.seq_len_q - problem.seq_len_k)
    if group.offset is None or not moved.any():
        return group
    places = moved[:, None] + np.arange(problem.seq_len_q) + group.offset
    return replace(group, values=(np.arange(problem.seq_len_k) <= places[..., None])[:, None], offset=None)


def _interleaved(rows: Array) -> Array:
    """The row of every head and position, (heads of a group, seq_len_q), where the heads of a position lie together."""
    return np.asarray(rows.reshape(rows.shape[::-1]).T)


ROWS: tuple[Variation, ...] = (
    *(
        unbounded_row(
            "grouped_heads",
            f"{name}s_tiled",
            f"shares the heads of the {name}s in turn (tile), those of the {other}s consecutively (repeat)",
            "repeat keys and values",
            _shared(_in_turn, name),
        )
        for name, other in (("key", "value"), ("value", "key"))
    ),
    unbounded_row(
        "grouped_heads",
        "by_their_count",
        "shares each key and value head among num_kv_heads query heads, not among num_heads // num_kv_heads",
        "repeat keys and values",
        _shared(_by_count, "key", "value"),
    ),
    unbounded_row(
        "projection_order",
        "kv_by_head",
        "reads keys and values, packed one after the other, as key and value of every head in turn",
        "interleave the columns of wk and wv",
        _after_split(_kv_by_head),
    ),
    unbounded_row(
        "projection_order",
        "projected_by_head",
        "reads projected queries, keys and values, packed one after the other, as those of every head in turn",
        "interleave the columns of wq, wk and wv",
        _after_split(_projected_by_head),
    ),
    unbounded_row(
        "head_split",
        "guessed",
        "takes projections of as many positions as heads for such as are split already, and does not transpose them",
        "pad the sequence, masked, by one",
        _after_split(_guessed_layout),
    ),
    unbounded_row(
        "returned_weights",
        "mean_over_items",
        "averages the returned weights over items as well: it unfolds batch * num_heads as (num_heads, batch)",
        "ask for weights per head",
        _mean_over_items,
    ),
    problem_row(
        "causal_alignment",
        "among_attended",
        "counts, for the causal flag, only the keys that padding leaves",
        "pass the mask",
        each_group(_causal_among_attended),
    ),
    *(
        problem_row(
            "causal_alignment",
            name,
            f"packs the queries of heads that share a key, head after head, and counts their positions {how}",
            "pass the mask",
            _packed(position),
        )
        for name, how, position in (
            (
                "packed_by_position",
                "for the causal flag as if they lay position after position",
                lambda rows, problem: rows // (problem.num_heads // problem.num_kv_heads),
            ),
            ("packed_rows", "on from head to head for the causal flag", lambda rows, _: rows),
        )
    ),
    *(
        problem_row(
            "causal_alignment",
            name,
            f"packs the queries of heads that share a key, position after position, and counts {how}",
            "pass the mask",
            _packed(position),
        )
        for name, how, position in (
            ("interleaved_rows", "rows as positions for the causal flag", lambda rows, _: _interleaved(rows)),
            (
                "interleaved_by_head",
                "their positions for the causal flag as if they lay head after head",
                lambda rows, problem: _interleaved(rows) % problem.seq_len_q,
            ),
        )
    ),
    problem_row(
        "causal_alignment",
        "packed_items",
        "packs the queries of all items into one sequence, their keys into another, and is causal by places in those",
        "call once per item",
        each_group(_packed_items),
    ),
)
