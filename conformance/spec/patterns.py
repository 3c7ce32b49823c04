"""
Named patterns of attention masks over the axes that a mask spans; True = attend.

A pattern is a function of the sizes of the mask's axes, a mapping such as {"b": 3, "k": 7} in the order b h q k.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from conformance.spec import streams

Array = np.ndarray[Any, Any]
Sizes = Mapping[str, int]

# All patterns. `leading` is padding at the start and is made from lengths; the others are made from sizes only.
Name = Literal[
    "all",
    "none",
    "holes",
    "random",
    "diagonal",
    "first_key",
    "last_key",
    "leading",
    "checkerboard",
    "block",
    "one_fully_masked_row",
    "one_fully_masked_batch",
    "all_masked",
]

LEADING = "leading"
NAMES: tuple[str, ...] = get_args(Name)


@dataclass(frozen=True)
class Pattern:
    """A pattern: its function of sizes, seed and stream name, the axes that it needs, and whether it is random."""

    make: Callable[[Sizes, int, str], Array]
    needs: tuple[str, ...] = ("k",)
    random: bool = False


def index(sizes: Sizes, axis: str) -> Array:
    """Return the positions along one axis, broadcastable to the mask."""
    names = list(sizes)
    return np.arange(sizes[axis]).reshape([-1 if name == axis else 1 for name in names])


def shape(sizes: Sizes) -> tuple[int, ...]:
    """Return the shape of a mask of these sizes."""
    return tuple(sizes.values())


def full(sizes: Sizes, attended: Array | bool) -> Array:  # noqa: FBT001 - a mask's content, not a switch
    """Broadcast `attended` to the whole mask."""
    return np.broadcast_to(np.asarray(attended), shape(sizes)).copy()


def holes(sizes: Sizes, seed: int, name: str) -> Array:
    """Attend 5/8 of the keys at random; every row has an attended key and, with two or more keys, a masked one."""
    keys, of_eight = sizes["k"], 5
    attended = streams.below(seed, name, shape(sizes), 8) < of_eight
    rows = (*shape(sizes)[:-1], 1)
    kept = streams.below(seed, f"{name}/kept", rows, keys)
    if keys > 1:
        hole = (kept + 1 + streams.below(seed, f"{name}/hole", rows, keys - 1)) % keys
        np.put_along_axis(attended, hole, values=False, axis=-1)
    np.put_along_axis(attended, kept, values=True, axis=-1)
    return attended


def random(sizes: Sizes, seed: int, name: str) -> Array:
    """Attend every position with probability 1/2; rows may be fully masked."""
    return np.asarray(streams.below(seed, name, shape(sizes), 2) == 1)


def checkerboard(sizes: Sizes, _seed: int, _name: str) -> Array:
    """Attend positions whose indices have an even sum."""
    return np.asarray(sum(index(sizes, axis) for axis in sizes) % 2 == 0)


def block(sizes: Sizes, _seed: int, _name: str) -> Array:
    """Attend from each half of the queries to the same half of the keys; the first half is the longer one."""
    second = [index(sizes, axis) >= (sizes[axis] + 1) // 2 for axis in ("q", "k")]
    return full(sizes, second[0] == second[1])


PATTERNS: dict[str, Pattern] = {  # all but leading
    "all": Pattern(lambda sizes, *_: full(sizes, attended=True)),
    "none": Pattern(lambda sizes, *_: full(sizes, attended=False)),
    "holes": Pattern(holes, random=True),
    "random": Pattern(random, random=True),
    "diagonal": Pattern(lambda sizes, *_: full(sizes, index(sizes, "q") == index(sizes, "k")), ("q", "k")),
    "first_key": Pattern(lambda sizes, *_: full(sizes, index(sizes, "k") == 0)),
    "last_key": Pattern(lambda sizes, *_: full(sizes, index(sizes, "k") == sizes["k"] - 1)),
    "checkerboard": Pattern(checkerboard),
    "block": Pattern(block, ("q", "k")),
    "one_fully_masked_row": Pattern(lambda sizes, *_: full(sizes, index(sizes, "q") != sizes["q"] // 2), ("q", "k")),
    "one_fully_masked_batch": Pattern(lambda sizes, *_: full(sizes, index(sizes, "b") != sizes["b"] - 1), ("b", "k")),
    "all_masked": Pattern(lambda sizes, *_: full(sizes, attended=False)),
}


def make(name: str, sizes: Sizes, seed: int, stream: str) -> Array:
    """Make the named pattern; `stream` makes the random masks of one case differ."""
    return PATTERNS[name].make(sizes, seed, stream)


def from_lengths(
    sizes: Sizes, lengths: tuple[int, ...], lengths_q: tuple[int, ...] | None = None, *, leading: bool = False
) -> Array:
    """
    Attend the first (leading: last) lengths[b] keys of batch element b, from its first (last) lengths_q[b] queries.

    The result has the shape of sizes, which must contain b and k, and q if lengths_q is given.
    """
    attended = _within(sizes, "k", lengths, leading=leading)
    if lengths_q is not None:
        attended = attended & _within(sizes, "q", lengths_q, leading=leading)
    return full(sizes, attended)


def _within(sizes: Sizes, axis: str, lengths: tuple[int, ...], *, leading: bool) -> Array:
    limits = np.asarray(lengths).reshape([-1 if name == "b" else 1 for name in sizes])
    positions = index(sizes, axis)
    return positions >= sizes[axis] - limits if leading else positions < limits
