"""Places and rows of the logits that have a name: by position, by blocks, by tiles of a mask, by what is attended."""

from collections.abc import Callable, Iterator

import numpy as np

from conformance.deviations.tiles import BLOCKS
from conformance.spec.problem import Array

Places = Callable[[Array], Array]
"""Which places are meant, by what may be attended (batch, num_heads, seq_len_q, seq_len_k); broadcastable to that."""

Positions = Callable[[Array, Array, int, int], Array]
"""The same by positions of queries (seq_len_q, 1) and keys (seq_len_k), and by how many of each there are."""


def named_places() -> Iterator[tuple[str, Places]]:
    """Every name with its places, the plainest first."""
    yield from plain_places()
    for block in BLOCKS:
        yield from _about_blocks(block)
    for block in BLOCKS:
        for part in (each for each in BLOCKS if each < block):
            yield from _about_parts(block, part)


def plain_places() -> Iterator[tuple[str, Places]]:
    """The names that speak of no block."""
    yield "every key", _at(lambda _q, key, *_: key >= 0)
    yield "the first key", _at(lambda _q, key, *_: key == 0)
    yield "the last key", _at(lambda _q, key, _queries, keys: key == keys - 1)
    yield "the key at the query's own place", _at(lambda query, key, *_: key == query)
    yield "keys behind the query", _at(lambda query, key, *_: key > query)
    yield "keys before the query", _at(lambda query, key, *_: key < query)
    yield "keys other than the one at the query's own place", _at(lambda query, key, *_: key != query)
    yield "the key at the query's own place from the end", _at(_from_end(np.equal))
    yield "keys behind the query, both counted from the end", _at(_from_end(np.greater))
    yield "keys before the query, both counted from the end", _at(_from_end(np.less))
    yield "keys behind the first", _at(lambda _q, key, *_: key > 0)
    yield "keys before the last", _at(lambda _q, key, _queries, keys: key < keys - 1)
    yield "every other key", _at(lambda _q, key, *_: key % 2 == 1)
    yield "every other key, from the first on", _at(lambda _q, key, *_: key % 2 == 0)


def mask_tiles() -> Iterator[tuple[str, Places]]:
    """Tiles of queries and keys by what some query of them may attend."""
    for queries in BLOCKS:
        for keys in BLOCKS:
            tile = f"tiles of {queries} queries and {keys} keys of which"
            for which, place in (("first", 0), ("last", -1)):
                yield f"{tile} the {which} query attends none", _tiles(queries, keys, place, np.any, wanted=False)
                yield f"{tile} the {which} query attends all", _tiles(queries, keys, place, np.all, wanted=True)
                yield f"{tile} the {which} query attends some", _tiles(queries, keys, place, np.any, wanted=True)


def _about_blocks(block: int) -> Iterator[tuple[str, Places]]:
    yield f"the first {block} keys", _at(lambda _q, key, *_: key < block)
    yield f"keys behind the first {block}", _at(lambda _q, key, *_: key >= block)
    yield f"the last {block} keys", _at(lambda _q, key, _queries, keys: key >= keys - block)
    yield (
        f"keys after the last whole block of {block}",
        _at(lambda _q, key, _queries, keys: key >= keys // block * block),
    )
    yield (
        f"those of the last {block} keys that are in a whole block of {block}",
        _at(lambda _q, key, _queries, keys: (key >= keys - block) & (key < keys // block * block)),
    )
    own = f"the query's own block of {block}"
    yield f"keys of {own}", _at(lambda query, key, *_: key // block == query // block)
    yield f"keys behind {own}", _at(lambda query, key, *_: key // block > query // block)
    yield f"keys before {own}", _at(lambda query, key, *_: key // block < query // block)
    yield f"keys outside of {own}", _at(lambda query, key, *_: key // block != query // block)
    yield (
        f"keys behind the query in its own block of {block}",
        _at(lambda query, key, *_: (key // block == query // block) & (key > query)),
    )
    yield f"the first key of each block of {block}", _at(lambda _q, key, *_: key % block == 0)
    yield f"the last key of each block of {block}", _at(lambda _q, key, *_: key % block == block - 1)
    yield f"every other block of {block} keys", _at(lambda _q, key, *_: key // block % 2 == 1)


def _about_parts(block: int, part: int) -> Iterator[tuple[str, Places]]:
    own = f"the query's own block of {block}"
    yield (
        f"keys of {own} behind its first {part}",
        _at(lambda query, key, *_: (key // block == query // block) & (key % block >= part)),
    )
    yield (
        f"the first {part} keys of {own}",
        _at(lambda query, key, *_: (key // block == query // block) & (key % block < part)),
    )
    yield f"keys behind the first {part} of {own}", _at(lambda query, key, *_: key >= query // block * block + part)


def _at(chosen: Positions) -> Places:
    """Places by their position alone."""

    def places(attended: Array) -> Array:
        queries, keys = attended.shape[-2:]
        found = chosen(np.arange(queries)[:, None], np.arange(keys), queries, keys)
        return np.broadcast_to(found, (queries, keys))

    return places


def _from_end(compared: Callable[[Array, Array], Array]) -> Positions:
    return lambda query, key, queries, keys: compared(key - keys, query - queries)


def _tiles(queries: int, keys: int, place: int, of: Callable[..., Array], *, wanted: bool) -> Places:
    """Tiles of which the first (0) or last (-1) query may attend any or all keys, or may not."""

    def places(attended: Array) -> Array:
        found = np.zeros(attended.shape, dtype=bool)
        for query in range(0, attended.shape[-2], queries):
            row = attended[..., query : query + queries, :][..., place, :]
            for key in range(0, attended.shape[-1], keys):
                meant = of(row[..., key : key + keys], axis=-1) == wanted
                found[..., query : query + queries, key : key + keys] = meant[..., None, None]
        return found

    return places


Rows = Callable[[Array], Array]
"""Which rows are meant (batch, num_heads, seq_len_q), by what may be attended (the same, and seq_len_k)."""


def named_rows() -> Iterator[tuple[str, Rows]]:
    """Every name with its rows, the plainest first."""
    yield "of the first query", _placed(2, lambda place, _: place == 0)
    yield "of the last query", _placed(2, lambda place, count: place == count - 1)
    yield "that attend nothing", lambda attended: ~np.any(attended, axis=-1)
    yield "that attend one key", lambda attended: attended.sum(axis=-1) == 1
    yield "that attend every key", lambda attended: np.all(attended, axis=-1)
    yield "from which the key at their own place is hidden", _own_hidden
    yield "from which the first key is hidden", _first_hidden(1)
    yield "from which the last key is hidden", lambda attended: ~attended[..., -1]
    yield "from which some key is hidden", lambda attended: ~np.all(attended, axis=-1)
    yield "of queries that attend nothing in some head", _beside_dead(1)
    yield "of heads in which some query attends nothing", _beside_dead(2)
    yield "of items in which some query attends nothing", _beside_dead((1, 2))
    yield "of queries behind the first", _placed(2, lambda place, _: place > 0)
    for axis, what in ((0, "item"), (1, "head")):
        yield f"of the first {what}", _placed(axis, lambda place, _: place == 0)
        yield f"of the last {what}", _placed(axis, lambda place, count: place == count - 1)
        yield f"of {what}s behind the first", _placed(axis, lambda place, _: place > 0)
        for block in (2, 4, 8):
            yield f"of {what}s behind the last whole {block}", _behind_whole(axis, block)
    yield "of queries behind the last whole 2", _behind_whole(2, 2)
    for axis, what in enumerate(("items", "heads", "queries")):
        yield f"of every other of the {what}", _placed(axis, lambda place, _: place % 2 == 1)
        yield f"of every other of the {what}, from the first on", _placed(axis, lambda place, _: place % 2 == 0)
    for block in BLOCKS:
        yield from _rows_about_blocks(block)


def _rows_about_blocks(block: int) -> Iterator[tuple[str, Rows]]:
    yield f"from which the first {block} keys are hidden", _first_hidden(block)
    yield f"of the first {block} queries", _placed(2, lambda place, _: place < block)
    yield f"of queries behind the first {block}", _placed(2, lambda place, _: place >= block)
    yield f"of queries behind the last whole block of {block}", _behind_whole(2, block)


def _placed(axis: int, chosen: Callable[[Array, int], Array]) -> Rows:
    """Rows by their place along an axis of themselves, told how long that is."""

    def rows(attended: Array) -> Array:
        places = np.indices(attended.shape[:-1])[axis]
        return chosen(places, attended.shape[axis])

    return rows


def _beside_dead(axes: int | tuple[int, ...]) -> Rows:
    """Rows of which one, along these axes, attends nothing."""

    def rows(attended: Array) -> Array:
        dead = ~np.any(attended, axis=-1)
        return np.broadcast_to(np.any(dead, axis=axes, keepdims=True), dead.shape)

    return rows


def _behind_whole(axis: int, block: int) -> Rows:
    """What is left where so many are taken at once."""
    return _placed(axis, lambda place, count: place >= count // block * block)


def _own_hidden(attended: Array) -> Array:
    both = np.arange(min(attended.shape[-2:]))
    hidden = np.zeros(attended.shape[:-1], dtype=bool)
    hidden[..., both] = ~attended[..., both, both]
    return hidden


def _first_hidden(count: int) -> Rows:
    """Not where there are no more keys than these."""

    def rows(attended: Array) -> Array:
        hidden = ~np.any(attended[..., :count], axis=-1)
        return hidden if attended.shape[-1] > count else np.zeros_like(hidden)

    return rows
