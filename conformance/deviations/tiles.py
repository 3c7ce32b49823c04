"""Deviations of kernels that find out by whole tiles of queries and keys what a mask lets them see."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from conformance.deviations.deviation import Deviation, ProblemMap, each_group
from conformance.deviations.edges import each_flag
from conformance.spec.problem import Array, Group, Problem

BLOCKS = (4, 8, 16, 32, 64, 128)
"""Keys, or queries, that are taken at once."""

Places = Callable[[Array, int, int], Array]
"""Places 0, 1, 2, ..., the length of a tile and how many places there are -> the places that are taken for them."""


def of_each_block(
    decision: str, name: str, problem: Callable[[int], ProblemMap], blocks: tuple[int, ...] = BLOCKS
) -> Iterator[Deviation]:
    """One deviation for each length of a block."""
    return (Deviation(decision, f"{name}_{block}", problem=problem(block)) for block in blocks)


def changed(group: Group, values: Array) -> Group:
    """The group with other values; the same group where they are no others."""
    return group if np.array_equal(values, group.values) else replace(group, values=values)


def _first_of_tile(places: Array, tile: int, _: int) -> Array:
    return np.asarray(places // tile * tile)


def _last_of_tile(places: Array, tile: int, length: int) -> Array:
    """The last place of the same tile, which the end may cut off."""
    return np.asarray(np.minimum(places // tile * tile + tile, length) - 1)


def _end_of_tile(places: Array, tile: int, _: int) -> Array:
    """Where the same tile would end if nothing cut it off."""
    return np.asarray(places // tile * tile + tile - 1)


def _in_tile(places: Array, tile: int, _: int) -> Array:
    return np.asarray(places % tile)


def _queries_at(places: Places) -> Callable[[int], ProblemMap]:
    """A causal flag that compares other places of the queries, be there such a query or not."""

    def of_tile(tile: int) -> ProblemMap:
        def moved(problem: Problem, group: Group, offset: int) -> Group:
            rows = places(np.arange(problem.seq_len_q), tile, problem.seq_len_q)
            return changed(group, (np.arange(problem.seq_len_k) <= rows[:, None] + offset)[None, None])

        return each_flag(moved)

    return of_tile


def _keys_at(places: Places) -> Callable[[int], ProblemMap]:
    """A causal flag that shows a key where it shows another, and hides it where there is none."""

    def of_tile(tile: int) -> ProblemMap:
        def moved(problem: Problem, group: Group, _: int) -> Group:
            keys = places(np.arange(problem.seq_len_k), tile, problem.seq_len_k)
            there = keys < problem.seq_len_k
            return changed(group, group.values[..., np.where(there, keys, 0)] & there)

        return each_flag(moved)

    return of_tile


def _broadcast_to_first(axis: int) -> Callable[[int], ProblemMap]:
    """A mask with one row for all queries, or one column for all keys, holds for the first of them alone."""

    def of_tile(tile: int) -> ProblemMap:
        def cut(problem: Problem, group: Group) -> Group:
            if group.element == "flag" or group.values.shape[axis] > 1:
                return group
            late = np.arange(problem.logits_shape[axis]) >= tile
            late = late[:, None] if axis == _QUERIES else late
            open_ = group.element != "float"
            return replace(group, values=np.where(late, open_, group.values)) if late.any() else group

        return each_group(cut)

    return of_tile


_QUERIES, _KEYS = 2, 3


def _row_of_first(tile: int) -> ProblemMap:
    """A mask with rows of its own for queries begins again with its first row in every tile of queries."""

    def again(problem: Problem, group: Group) -> Group:
        queries = problem.seq_len_q
        if group.element == "flag" or group.values.shape[2] == 1 or queries <= tile:
            return group
        return changed(group, group.values[:, :, np.arange(queries) % tile])

    return each_group(again)


ROWS: tuple[Deviation, ...] = (
    *of_each_block("causal_query_tile", "first", _queries_at(_first_of_tile)),
    *of_each_block("causal_query_tile", "last", _queries_at(_last_of_tile)),
    *of_each_block("causal_query_tile", "restarts", _queries_at(_in_tile)),
    *of_each_block("causal_key_tile", "shown", _keys_at(_first_of_tile)),
    *of_each_block("causal_key_tile", "hidden", _keys_at(_end_of_tile)),
    Deviation(
        "mask_rows", "first_1", problem=_broadcast_to_first(_QUERIES)(1), concerns=lambda problem: problem.seq_len_q > 1
    ),
    *of_each_block("mask_rows", "first", _broadcast_to_first(_QUERIES), BLOCKS[:5]),
    *of_each_block("mask_rows", "again", _row_of_first, BLOCKS[:5]),
    Deviation(
        "mask_columns", "first_1", problem=_broadcast_to_first(_KEYS)(1), concerns=lambda problem: problem.seq_len_k > 1
    ),
)
