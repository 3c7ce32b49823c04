"""What a mask argument can be misread as by a kernel that packs it, or looks at its tiles."""

from collections.abc import Callable

import numpy as np

from conformance.oracle.misread_axes import on_slot
from conformance.oracle.other_tiles import changed, first_of_tile, last_of_tile, over_runs, over_tiles
from conformance.oracle.variation import Variation
from conformance.spec.problem import Array, Group, Problem

BYTE = 8
CORNERS = (4, 8, 64)
"""Lengths of tiles that are judged by their corners: few, since masks tell little else apart."""

SKIPPED = ((1, 4), (1, 8), (1, 16), (4, 4), (8, 8), (16, 16))
"""Queries and keys of tiles that are skipped, where other heads would see something of them."""

EMPTY = (4, 8, 16)
"""Lengths of tiles that are skipped, in every item and head, where the first of them would see nothing of them."""

ENDS = (first_of_tile, last_of_tile)
"""Where the corners of a tile lie along an axis."""


def _bits_reversed(problem: Problem, group: Group) -> Group:
    """The first of eight keys reads the last of them; what lies behind the last key is masked."""
    if group.element in ("float", "flag"):
        return group
    places = np.arange(problem.seq_len_k)
    other = places // BYTE * BYTE + BYTE - 1 - places % BYTE
    there = other < problem.seq_len_k
    whole = np.broadcast_to(group.values, (*group.values.shape[:-1], problem.seq_len_k))
    return changed(group, np.where(there, whole[..., np.where(there, other, 0)], 0).astype(whole.dtype))


def _by_corners(tile: int) -> Callable[[Problem, Group], Group]:
    """A tile counts as attended, or as masked, where its four corners are."""

    def judged(problem: Problem, group: Group) -> Group:
        if group.element in ("float", "flag"):
            return group
        seen = np.broadcast_to(group.values, (*group.values.shape[:2], problem.seq_len_q, problem.seq_len_k)) != 0
        corners = np.stack([_cut(seen, tile, rows, keys) for rows in ENDS for keys in ENDS])
        judged = (seen | corners.all(axis=0)) & corners.any(axis=0)
        return group if np.array_equal(judged, seen) else changed(group, judged.astype(group.values.dtype))

    return judged


def _map_of_first_item(tile: int, *, full: bool, head: bool = False) -> Callable[[Problem, Group], Group]:
    """
    A tile is skipped where that of the first item is masked whole.

    full: and not masked where it is attended whole. head: of the first item and its first head.
    """

    def judged(problem: Problem, group: Group) -> Group:
        if group.element in ("float", "flag") or (group.values.shape[0] == 1 and not head):
            return group
        seen = np.broadcast_to(group.values, (*group.values.shape[:2], problem.seq_len_q, problem.seq_len_k)) != 0
        first = seen[:1, :1] if head else seen[:1]
        some, every = (over_tiles(first, tile, over) for over in (np.logical_or, np.logical_and))
        judged = (seen | every) & some if full else seen & some
        return group if np.array_equal(judged, seen) else changed(group, judged.astype(group.values.dtype))

    return judged


def _skipped_as_in_first_head(queries: int, keys: int) -> Callable[[Problem, Group], Group]:
    """A tile is skipped in every head where that of the first head of the item is masked whole."""

    def judged(problem: Problem, group: Group) -> Group:
        if group.element in ("float", "flag") or group.values.shape[1] == 1:
            return group
        seen = np.broadcast_to(group.values, (*group.values.shape[:2], problem.seq_len_q, problem.seq_len_k)) != 0
        rows = over_runs(seen[:, :1], queries, np.logical_or, axis=-2)
        judged = seen & over_runs(rows, keys, np.logical_or, axis=-1)
        return group if np.array_equal(judged, seen) else changed(group, judged.astype(group.values.dtype))

    return judged


def _cut(
    seen: Array, tile: int, rows: Callable[[Array, int, int], Array], keys: Callable[[Array, int, int], Array]
) -> Array:
    """What stands in one corner of the tile of every position."""
    queries, length = seen.shape[-2:]
    at_rows, at_keys = rows(np.arange(queries), tile, queries), keys(np.arange(length), tile, length)
    return seen[..., at_rows[:, None], at_keys]


def tile_variations(slot: str) -> tuple[Variation, ...]:
    """Every way in which a kernel can misread the argument `slot`."""

    def row(name: str, sentence: str, change: Callable[..., Group | None]) -> Variation:
        return Variation(f"mask_axes[{slot}]", name, sentence, "", "problem", problem=on_slot(slot, change))

    return (
        row("bits_reversed", f"reads {slot} with every eight keys in reverse order, as bits of a byte", _bits_reversed),
        *(
            row(
                f"corners_{tile}",
                f"judges tiles of {tile} queries and keys of {slot} by their corners",
                _by_corners(tile),
            )
            for tile in CORNERS
        ),
        *(
            row(
                f"map_of_first_item_{tile}",
                f"finds out by {slot} of the first item which tiles of {tile} are masked whole, and which not at all",
                _map_of_first_item(tile, full=True),
            )
            for tile in CORNERS
        ),
        *(
            row(
                f"map_of_first_head_{tile}",
                f"finds out by {slot} of the first item and head which tiles of {tile} are masked whole, "
                "and which not at all",
                _map_of_first_item(tile, full=True, head=True),
            )
            for tile in CORNERS
        ),
        row(
            "empty_tiles_of_first_item_4",
            f"finds out by {slot} of the first item which tiles of 4 are masked whole",
            _map_of_first_item(4, full=False),
        ),
        *(
            row(
                f"empty_tiles_of_first_item_and_head_{tile}",
                f"finds out by {slot} of the first item and head which tiles of {tile} are masked whole",
                _map_of_first_item(tile, full=False, head=True),
            )
            for tile in EMPTY
        ),
        *(
            row(
                f"empty_tiles_of_first_head_{queries}x{keys}",
                f"finds out by {slot} of the first head which tiles of {queries} by {keys} are masked whole",
                _skipped_as_in_first_head(queries, keys),
            )
            for queries, keys in SKIPPED
        ),
    )
