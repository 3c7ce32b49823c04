"""Rows of the logits that have a name: by the place of their query, item or head, and by what they attend."""

from collections.abc import Callable, Iterator

import numpy as np

from conformance.oracle.other_tiles import BLOCKS
from conformance.spec.problem import Array

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
        yield from _about_blocks(block)


def _about_blocks(block: int) -> Iterator[tuple[str, Rows]]:
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
