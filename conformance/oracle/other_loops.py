"""Variations that are slips of the loop over tiles of keys that a kernel runs for each tile of queries."""

from collections.abc import Callable, Iterator

import numpy as np

from conformance.oracle.other_masks import each_group
from conformance.oracle.other_tiles import changed, first_of_tile, last_of_tile, over_runs, over_tiles
from conformance.oracle.variation import ProblemMap, Variation, problem_row
from conformance.spec.problem import Array, Group, Problem

TILES = tuple((queries, keys) for queries in (8, 16, 32, 64) for keys in (4, 8, 16, 32) if keys < queries)
"""Queries and keys that are taken at once, where several tiles of keys lie beside one of queries."""

SQUARE = tuple((size, size) for size in (4, 8, 16, 32, 64, 128))

LOOP = "loop"
"""What stands for the argument of a mask that nobody gave."""


def _flag(seen: Callable[[Array, Array, Array], Array], queries: int) -> ProblemMap:
    """
    Another causal flag.

    seen: what is attended, from what the flag shows, from where the tile of each query begins (seq_len_q, 1), and from
    the places of the keys as that tile counts them (1, seq_len_k).
    """

    def other(problem: Problem, group: Group) -> Group:
        if group.offset is None:
            return group
        first = first_of_tile(np.arange(problem.seq_len_q)[:, None], queries, problem.seq_len_q)
        return changed(group, seen(group.values, first, np.arange(problem.seq_len_k)[None] - group.offset))

    return each_group(other)


def _ends_early(queries: int, keys: int) -> ProblemMap:
    """The loop ends with the tile of keys that begins where the tile of queries does."""
    return _flag(lambda seen, first, places: seen & (places < first + keys), queries)


def _first_alone(queries: int, keys: int) -> ProblemMap:
    """Only the first tile of keys beside a tile of queries is masked, the others up to its end are seen whole."""
    return _flag(lambda seen, first, places: seen | ((places >= first + keys) & (places < first + queries)), queries)


def _last_alone(queries: int, keys: int) -> ProblemMap:
    """Only the last tile of keys beside a tile of queries is masked, those before it are seen whole."""
    return _flag(lambda seen, first, places: seen | (places < first + queries - keys), queries)


def _window_from_last(queries: int, keys: int) -> ProblemMap:
    """The first tile of keys is that in which the window of the last query of the tile begins."""

    def cut(problem: Problem, group: Group) -> Group:
        if group.window is None or group.window[0] is None:
            return group
        last = last_of_tile(np.arange(problem.seq_len_q), queries, problem.seq_len_q)
        first = (last - group.window[0]) // keys * keys
        return changed(group, group.values & (np.arange(problem.seq_len_k) >= first[:, None]))

    return each_group(cut)


def _window_to_first(queries: int, keys: int) -> ProblemMap:
    """The last tile of keys is that in which the window of the first query of the tile ends."""

    def cut(problem: Problem, group: Group) -> Group:
        if group.window is None or group.window[1] is None:
            return group
        first = first_of_tile(np.arange(problem.seq_len_q), queries, problem.seq_len_q)
        end = -(-(first + group.window[1] + 1) // keys) * keys
        return changed(group, group.values & (np.arange(problem.seq_len_k) < end[:, None]))

    return each_group(cut)


def _ends_where_hidden(tile: int) -> ProblemMap:
    """The loop is left, not continued, at a tile of keys of which no query of the tile attends any."""

    def apply(problem: Problem) -> Problem:
        attended = np.broadcast_to(problem.attended(), problem.logits_shape)
        seen = np.logical_and.accumulate(over_tiles(attended, tile, np.logical_or), axis=-1)
        if np.array_equal(attended & seen, attended):
            return problem
        return problem.but(groups=(*problem.groups, Group(LOOP, (LOOP,), "bool", seen)))

    return apply


def _skips_for_one(queries: int, keys: int) -> ProblemMap:
    """A tile is skipped unless every query of it attends some of its keys; only one without any is to be skipped."""

    def apply(problem: Problem) -> Problem:
        attended = np.broadcast_to(problem.attended(), problem.logits_shape)
        some = over_runs(attended, keys, np.logical_or, axis=-1)
        seen = over_runs(some, queries, np.logical_and, axis=-2)
        if not (attended & ~seen).any():
            return problem
        return problem.but(groups=(*problem.groups, Group(LOOP, (LOOP,), "bool", seen)))

    return apply


def _is_masked(problem: Problem) -> bool:
    return bool(problem.groups)


def _family(
    decision: str,
    name: str,
    sentence: str,
    tiles: tuple[tuple[int, int], ...],
    change: Callable[[int, int], ProblemMap],
) -> Iterator[Variation]:
    """One row for each pair of lengths, which stand for R and C in the sentence."""
    for queries, keys in tiles:
        told = sentence.replace("R", str(queries)).replace("C", str(keys))
        yield problem_row(decision, f"{name}_{queries}x{keys}", told, "pass the mask", change(queries, keys))


ROWS: tuple[Variation, ...] = (
    *_family(
        "causal_query_tile",
        "ends_early",
        "ends the keys of a tile of R queries, under the causal flag, C behind the first of them",
        TILES,
        _ends_early,
    ),
    *_family(
        "causal_query_tile",
        "first_alone",
        "applies the causal flag only to the first C of the keys beside a tile of R queries",
        TILES,
        _first_alone,
    ),
    *_family(
        "causal_query_tile",
        "last_alone",
        "applies the causal flag only to the last C of the keys beside a tile of R queries",
        TILES,
        _last_alone,
    ),
    *_family(
        "window_edges",
        "from_last_query",
        "begins the window of a tile of R queries, in tiles of C keys, where that of the last of them begins",
        (*SQUARE, *TILES),
        _window_from_last,
    ),
    *_family(
        "window_edges",
        "to_first_query",
        "ends the window of a tile of R queries, in tiles of C keys, where that of the first of them ends",
        (*SQUARE, *TILES),
        _window_to_first,
    ),
    *(
        problem_row(
            "leading_masked_keys",
            f"end_loop_{tile}",
            f"ends at the first tile of {tile} keys of which {tile} queries attend none, though they attend later ones",
            "",
            _ends_where_hidden(tile),
        )
        for tile in (4, 8, 16, 32)
    ),
    *(
        Variation(
            "masked_tile",
            f"skipped_for_one_{queries}x{keys}",
            f"skips a tile of {queries} queries and {keys} keys where a query sees none of the keys, though others do",
            "",
            "problem",
            problem=_skips_for_one(queries, keys),
            concerns=_is_masked,
        )
        for queries, keys in (*SQUARE, *TILES)
    ),
)
