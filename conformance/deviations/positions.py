"""Named sets of logit positions and rows: by position, by block, by tile of a mask, by attended keys."""

from collections.abc import Callable, Iterator

import numpy as np

from conformance.deviations.tiles import BLOCKS
from conformance.spec.problem import Array

# Attended positions (batch, num_heads, seq_len_q, seq_len_k) -> the set of positions, broadcastable to that shape.
PositionsOf = Callable[[Array], Array]

# Query positions, key positions, their numbers and the lengths of blocks -> the set of positions.
Positions = Callable[..., Array]


def named_positions() -> Iterator[tuple[str, PositionsOf]]:
    """Yield all names with their positions, the simplest first."""
    yield from plain_positions()
    for block in BLOCKS:
        yield from _named(OF_BLOCKS, block)
    for block in BLOCKS:
        for part in (each for each in BLOCKS if each < block):
            yield from _named(OF_PARTS, block, part)


def plain_positions() -> Iterator[tuple[str, PositionsOf]]:
    """Yield the names that do not refer to blocks."""
    return _named(PLAIN)


def mask_tiles() -> Iterator[tuple[str, PositionsOf]]:
    """Yield sets of tiles of queries and keys, by what the first or last query of a tile may attend."""
    for queries in BLOCKS:
        for keys in BLOCKS:
            tile = f"tiles of {queries} queries and {keys} keys in which"
            for which, row in (("first", 0), ("last", -1)):
                yield f"{tile} the {which} query attends no key", _tiles(queries, keys, row, np.any, wanted=False)
                yield f"{tile} the {which} query attends every key", _tiles(queries, keys, row, np.all, wanted=True)
                yield f"{tile} the {which} query attends some key", _tiles(queries, keys, row, np.any, wanted=True)


# Sets by query positions q (seq_len_q, 1), key positions k (seq_len_k), and the numbers of queries and keys.
PLAIN: tuple[tuple[str, Positions], ...] = (
    ("every key", lambda _q, k, *_: k >= 0),
    ("the first key", lambda _q, k, *_: k == 0),
    ("the last key", lambda _q, k, _queries, keys: k == keys - 1),
    ("the key at the query's own position", lambda q, k, *_: k == q),
    ("keys after the query", lambda q, k, *_: k > q),
    ("keys before the query", lambda q, k, *_: k < q),
    ("keys other than the one at the query's own position", lambda q, k, *_: k != q),
    ("the key at the query's own position from the end", lambda q, k, queries, keys: k - keys == q - queries),
    ("keys after the query, both counted from the end", lambda q, k, queries, keys: k - keys > q - queries),
    ("keys before the query, both counted from the end", lambda q, k, queries, keys: k - keys < q - queries),
    ("keys after the first", lambda _q, k, *_: k > 0),
    ("keys before the last", lambda _q, k, _queries, keys: k < keys - 1),
    ("every second key", lambda _q, k, *_: k % 2 == 1),
    ("every second key, starting with the first", lambda _q, k, *_: k % 2 == 0),
)

# The same, also by the length n of a block.
OF_BLOCKS: tuple[tuple[str, Positions], ...] = (
    ("the first {0} keys", lambda _q, k, _queries, _keys, n: k < n),
    ("keys after the first {0}", lambda _q, k, _queries, _keys, n: k >= n),
    ("the last {0} keys", lambda _q, k, _queries, keys, n: k >= keys - n),
    ("keys after the last full block of {0}", lambda _q, k, _queries, keys, n: k >= keys // n * n),
    (
        "those of the last {0} keys that are in a full block of {0}",
        lambda _q, k, _queries, keys, n: (k >= keys - n) & (k < keys // n * n),
    ),
    ("keys of the query's own block of {0}", lambda q, k, _queries, _keys, n: k // n == q // n),
    ("keys after the query's own block of {0}", lambda q, k, _queries, _keys, n: k // n > q // n),
    ("keys before the query's own block of {0}", lambda q, k, _queries, _keys, n: k // n < q // n),
    ("keys outside of the query's own block of {0}", lambda q, k, _queries, _keys, n: k // n != q // n),
    (
        "keys after the query in its own block of {0}",
        lambda q, k, _queries, _keys, n: (k // n == q // n) & (k > q),
    ),
    ("the first key of each block of {0}", lambda _q, k, _queries, _keys, n: k % n == 0),
    ("the last key of each block of {0}", lambda _q, k, _queries, _keys, n: k % n == n - 1),
    ("every second block of {0} keys", lambda _q, k, _queries, _keys, n: k // n % 2 == 1),
)

# The same, also by the length n of a block and the length of a part of it.
OF_PARTS: tuple[tuple[str, Positions], ...] = (
    (
        "keys of the query's own block of {0} after its first {1}",
        lambda q, k, _queries, _keys, n, part: (k // n == q // n) & (k % n >= part),
    ),
    (
        "the first {1} keys of the query's own block of {0}",
        lambda q, k, _queries, _keys, n, part: (k // n == q // n) & (k % n < part),
    ),
    (
        "keys after the first {1} of the query's own block of {0}",
        lambda q, k, _queries, _keys, n, part: k >= q // n * n + part,
    ),
)


def _named(table: tuple[tuple[str, Positions], ...], *lengths: int) -> Iterator[tuple[str, PositionsOf]]:
    return ((words.format(*lengths), _at(chosen, *lengths)) for words, chosen in table)


def _at(chosen: Positions, *lengths: int) -> PositionsOf:
    """Make a set that depends only on positions, not on what is attended."""

    def positions(attended: Array) -> Array:
        queries, keys = attended.shape[-2:]
        members = chosen(np.arange(queries)[:, None], np.arange(keys), queries, keys, *lengths)
        return np.broadcast_to(members, (queries, keys))

    return positions


def _tiles(queries: int, keys: int, row: int, of: Callable[..., Array], *, wanted: bool) -> PositionsOf:
    """Make the set of tiles in which `of` (any or all) of what the first (0) or last (-1) query attends is `wanted`."""

    def positions(attended: Array) -> Array:
        members = np.zeros(attended.shape, dtype=bool)
        for query in range(0, attended.shape[-2], queries):
            own = attended[..., query : query + queries, :][..., row, :]
            for key in range(0, attended.shape[-1], keys):
                chosen = of(own[..., key : key + keys], axis=-1) == wanted
                members[..., query : query + queries, key : key + keys] = chosen[..., None, None]
        return members

    return positions


# Attended positions (batch, num_heads, seq_len_q, seq_len_k) -> the set of rows (batch, num_heads, seq_len_q).
Rows = Callable[[Array], Array]


def named_rows() -> Iterator[tuple[str, Rows]]:
    """Yield all names with their rows, the simplest first."""
    yield "of the first query", _by_index(2, lambda index, _: index == 0)
    yield "of the last query", _by_index(2, lambda index, count: index == count - 1)
    yield "that are fully masked", lambda attended: ~np.any(attended, axis=-1)
    yield "that attend to one key", lambda attended: attended.sum(axis=-1) == 1
    yield "that attend to every key", lambda attended: np.all(attended, axis=-1)
    yield "in which the key at the position of the query is masked", _own_hidden
    yield "in which the first key is masked", _first_hidden(1)
    yield "in which the last key is masked", lambda attended: ~attended[..., -1]
    yield "in which some key is masked", lambda attended: ~np.all(attended, axis=-1)
    yield "of queries that are fully masked in some head", _next_to_fully_masked(1)
    yield "of heads with a fully masked query", _next_to_fully_masked(2)
    yield "of batch elements with a fully masked query", _next_to_fully_masked((1, 2))
    yield "of queries after the first", _by_index(2, lambda index, _: index > 0)
    for axis, what in ((0, "batch element"), (1, "head")):
        yield f"of the first {what}", _by_index(axis, lambda index, _: index == 0)
        yield f"of the last {what}", _by_index(axis, lambda index, count: index == count - 1)
        yield f"of {what}s after the first", _by_index(axis, lambda index, _: index > 0)
        yield f"of {what}s before the last", _by_index(axis, lambda index, count: index < count - 1)
        for block in (2, 4, 8):
            yield f"of {what}s after the last full block of {block}", _after_whole(axis, block)
    yield "of queries after the last full block of 2", _after_whole(2, 2)
    for axis, what in enumerate(("batch element", "head", "query")):
        yield f"of every second {what}", _by_index(axis, lambda index, _: index % 2 == 1)
        yield f"of every second {what}, starting with the first", _by_index(axis, lambda index, _: index % 2 == 0)
    for block in BLOCKS:
        yield f"in which the first {block} keys are masked", _first_hidden(block)
        yield f"of the first {block} queries", _by_index(2, lambda index, _, n=block: index < n)
        yield f"of queries after the first {block}", _by_index(2, lambda index, _, n=block: index >= n)
        yield f"of queries after the last full block of {block}", _after_whole(2, block)
        yield f"of the first query of each block of {block}", _of_several(lambda index, n=block: index % n == 0)
        yield f"of the last query of each block of {block}", _of_several(lambda index, n=block: index % n == n - 1)
        yield f"of every second block of {block} queries", _of_several(lambda index, n=block: index // n % 2 == 1)


def _by_index(axis: int, chosen: Callable[..., Array]) -> Rows:
    """Make a set of rows by their index along an axis; `chosen` gets the indices and the length of the axis."""

    def rows(attended: Array) -> Array:
        indices = np.indices(attended.shape[:-1])[axis]
        return chosen(indices, attended.shape[axis])

    return rows


def _of_several(chosen: Callable[..., Array]) -> Rows:
    """Make a set of rows by their query; empty for a single query, which a name for several fits only by chance."""

    def rows(attended: Array) -> Array:
        queries = chosen(np.arange(attended.shape[2]))
        return np.broadcast_to(queries & (np.sum(queries) > 1), attended.shape[:-1])

    return rows


def _next_to_fully_masked(axes: int | tuple[int, ...]) -> Rows:
    """Make the set of rows for which some row along these axes is fully masked."""

    def rows(attended: Array) -> Array:
        fully_masked = ~np.any(attended, axis=-1)
        return np.broadcast_to(np.any(fully_masked, axis=axes, keepdims=True), fully_masked.shape)

    return rows


def _after_whole(axis: int, block: int) -> Rows:
    """Make the set of rows after the last full block along an axis."""
    return _by_index(axis, lambda index, count: index >= count // block * block)


def _own_hidden(attended: Array) -> Array:
    both = np.arange(min(attended.shape[-2:]))
    hidden = np.zeros(attended.shape[:-1], dtype=bool)
    hidden[..., both] = ~attended[..., both, both]
    return hidden


def _first_hidden(count: int) -> Rows:
    """Make the set of rows whose first `count` keys are masked; empty if there are no further keys."""

    def rows(attended: Array) -> Array:
        hidden = ~np.any(attended[..., :count], axis=-1)
        return hidden if attended.shape[-1] > count else np.zeros_like(hidden)

    return rows
