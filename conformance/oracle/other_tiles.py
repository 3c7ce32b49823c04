"""Variations that are slips of a kernel which finds out by whole tiles of queries and keys what a mask lets it see."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from conformance.oracle.other_masks import each_group
from conformance.oracle.variation import ProblemMap, Variation, problem_row
from conformance.spec.problem import Array, Group, Problem

BLOCKS = (4, 8, 16, 32, 64, 128)
"""Keys, or queries, that are taken at once."""

Places = Callable[[Array, int, int], Array]
"""Places 0, 1, 2, ..., the length of a tile and how many places there are -> the places that are taken for them."""


def first_of_tile(places: Array, tile: int, _: int) -> Array:
    """The first place of the same tile."""
    return np.asarray(places // tile * tile)


def last_of_tile(places: Array, tile: int, length: int) -> Array:
    """The last place of the same tile, which the end may cut off."""
    return np.asarray(np.minimum(places // tile * tile + tile, length) - 1)


def _end_of_tile(places: Array, tile: int, _: int) -> Array:
    """Where the same tile would end if nothing cut it off."""
    return np.asarray(places // tile * tile + tile - 1)


def _in_tile(places: Array, tile: int, _: int) -> Array:
    return np.asarray(places % tile)


def changed(group: Group, values: Array) -> Group:
    """The group with other values; the same group where they are no others."""
    return group if np.array_equal(values, group.values) else replace(group, values=values)


def _queries_at(places: Places, tile: int) -> ProblemMap:
    """A causal flag that compares other places of the queries, be there such a query or not."""

    def moved(problem: Problem, group: Group) -> Group:
        if group.offset is None:
            return group
        rows = places(np.arange(problem.seq_len_q), tile, problem.seq_len_q)
        return changed(group, (np.arange(problem.seq_len_k) <= rows[:, None] + group.offset)[None, None])

    return each_group(moved)


def _keys_at(places: Places, tile: int) -> ProblemMap:
    """A causal flag that shows a key where it shows another, and hides it where there is none."""

    def moved(problem: Problem, group: Group) -> Group:
        if group.offset is None:
            return group
        keys = places(np.arange(problem.seq_len_k), tile, problem.seq_len_k)
        there = keys < problem.seq_len_k
        return changed(group, group.values[..., np.where(there, keys, 0)] & there)

    return each_group(moved)


def _row_for_first(tile: int) -> ProblemMap:
    """A mask with one row for all queries has none for those after the first tile, which go without it."""

    def cut(problem: Problem, group: Group) -> Group:
        if group.element == "flag" or group.values.shape[2] > 1:
            return group
        late = np.arange(problem.seq_len_q)[:, None] >= tile
        return replace(group, values=np.where(late, group.element != "float", group.values)) if late.any() else group

    return each_group(cut)


def _row_of_first(tile: int) -> ProblemMap:
    """A mask with rows of its own for queries begins again with its first row in every tile of queries."""

    def again(problem: Problem, group: Group) -> Group:
        queries = problem.seq_len_q
        if group.element == "flag" or group.values.shape[2] == 1 or queries <= tile:
            return group
        return changed(group, group.values[:, :, np.arange(queries) % tile])

    return each_group(again)


def _family(
    decision: str, name: str, sentence: str, remedy: str, change: Callable[[int], ProblemMap]
) -> list[Variation]:
    """One row for each length of a tile, which stands for N in the sentence."""
    return [
        problem_row(
            decision,
            f"{name}_{tile}",
            sentence.replace("N", str(tile)),
            remedy.replace("N", str(tile)),
            change(tile),
        )
        for tile in BLOCKS
    ]


def _queries(name: str, sentence: str, places: Places) -> list[Variation]:
    return _family("causal_query_tile", name, sentence, "pass the mask", lambda tile: _queries_at(places, tile))


def _keys(decision: str, name: str, sentence: str, places: Places) -> list[Variation]:
    return _family(decision, name, sentence, "pass the mask", lambda tile: _keys_at(places, tile))


ROWS: tuple[Variation, ...] = (
    *_queries(
        "first",
        "gives every query of a tile of N the causal mask of the first of them",
        first_of_tile,
    ),
    *_queries(
        "last",
        "gives every query of a tile of N the causal mask of the last of them",
        last_of_tile,
    ),
    *_queries(
        "restarts",
        "counts queries for the causal flag anew in every tile of N",
        _in_tile,
    ),
    *_keys(
        "causal_key_tile",
        "shown",
        "shows a tile of N keys whole where the causal flag shows the first of them",
        first_of_tile,
    ),
    *_keys(
        "causal_key_tile",
        "hidden",
        "hides a tile of N keys whole where the causal flag hides the last of them",
        _end_of_tile,
    ),
    Variation(
        "mask_rows",
        "first_1",
        "applies a mask with one row for all queries to the first query alone",
        "write the mask out for every query",
        "problem",
        problem=_row_for_first(1),
        concerns=lambda problem: problem.seq_len_q > 1,
    ),
    *_family(
        "mask_rows",
        "first",
        "applies a mask with one row for all queries to the first N queries alone",
        "write the mask out for every query",
        _row_for_first,
    )[:5],
    *_family(
        "mask_rows",
        "again",
        "gives every N queries the rows that a mask has for the first N",
        "call once for every N queries",
        _row_of_first,
    )[:5],
)
