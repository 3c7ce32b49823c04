"""Columns of the output of heads that have a name: by their place among the value's numbers."""

from collections.abc import Callable, Iterator

import numpy as np

from conformance.deviations.tiles import BLOCKS
from conformance.spec.problem import Array

Columns = Callable[[int, int], Array]
"""Which columns are meant (value_dim), by value_dim and head_dim."""


def named_columns() -> Iterator[tuple[str, Columns]]:
    """Every name with its columns, the plainest first."""
    yield "at the first position", _placed(lambda place, *_: place == 0)
    yield "at the last position", _placed(lambda place, count, _: place == count - 1)
    yield "after head_dim", _placed(lambda place, _, head_dim: place >= head_dim)
    for block in BLOCKS:
        yield f"after the first {block}", _placed(lambda place, *_, n=block: place >= n)
        yield f"of the first {block}", _placed(lambda place, *_, n=block: place < n)
        yield f"after the last full {block}", _placed(lambda place, count, _, n=block: place >= count // n * n)
        yield (
            f"of the last {block} that are also in a full {block}",
            _placed(lambda place, count, _, n=block: (place >= count - n) & (place < count // n * n)),
        )
    yield "at every second position", _placed(lambda place, *_: place % 2 == 1)
    yield "at every second position, starting with the first", _placed(lambda place, *_: place % 2 == 0)


def _placed(chosen: Callable[..., Array]) -> Columns:
    return lambda value_dim, head_dim: chosen(np.arange(value_dim), value_dim, head_dim)
