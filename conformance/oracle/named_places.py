"""Places of the logits, a query and a key each, that have a name: by their position, by blocks, by tiles of a mask."""

from collections.abc import Callable, Iterator

import numpy as np

from conformance.oracle.other_tiles import BLOCKS
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
