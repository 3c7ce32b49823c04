"""
Slips of tiled kernels: tiles whose mask is not looked at, tails and parts of keys, the maximum of an online softmax.

They follow thirty of a kernel writer who did not know the table; of these fourteen had no name, three a wrong one.
"""

import numpy as np

from .pieces import Array, attend, hide, past, scores, softmax

TILE = 4
BLOCK = 16


def zeros_where_nothing_masks(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Keys are filled up to whole eights; a mask hides what is filled up, where there is one.

    Right: key_tail=zeros_8
    When: {masks: false}
    """
    if mask is None:
        key, value = (np.pad(each, ((0, 0), (0, 0), (0, -each.shape[-2] % 8), (0, 0))) for each in (key, value))
    return attend(query, key, value, mask)


def full_page_counts_as_empty(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    The length of the last page is a remainder, which is zero where the page is full.

    Right: key_tail=whole_dropped_16
    """
    keys = key.shape[-2]
    seen = np.arange(keys) < (keys - BLOCK if keys % BLOCK == 0 else keys)
    return attend(query, key, value, seen if mask is None else mask & seen)


def _blocks(logits: Array, value: Array, size: int) -> list[tuple[Array, Array, Array]]:
    """Of each block of keys the maximum, the sum of exponentials below it and the values that they weigh."""
    made = []
    for start in range(0, logits.shape[-1], size):
        block = logits[..., start : start + size]
        peak = block.max(-1, keepdims=True)
        weights = np.exp(block - np.where(np.isfinite(peak), peak, 0))
        made.append((peak, weights.sum(-1, keepdims=True), weights @ value[..., start : start + size, :]))
    return made


def _divided(result: Array, total: Array) -> Array:
    return np.asarray(result / np.where(total == 0, 1, total))


def parts_added_up(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Keys are reduced in parts, each below its own maximum, and what comes out is added up.

    Right: online_softmax=parts_without_maxima_32
    """
    wide = np.promote_types(query.dtype, np.float32)
    parts = _blocks(hide(scores(query, key), mask).astype(wide), value.astype(wide), 32)
    _, totals, results = zip(*parts, strict=True)
    return _divided(np.sum(results, axis=0), np.sum(totals, axis=0)).astype(query.dtype)


def small_rises_forgotten(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    What was summed is rescaled where the maximum rises by more than a factor of 256; it moves all the same.

    Right: online_softmax=lazily_rescaled_8
    """
    wide = np.promote_types(query.dtype, np.float32)
    top, total, result = (np.asarray(start, wide) for start in (-np.inf, 0, 0))
    for peak, weights, values in _blocks(hide(scores(query, key), mask).astype(wide), value.astype(wide), 8):
        risen = np.maximum(top, peak)
        steady = np.where(np.isfinite(risen), risen, 0)
        fade, fresh = (np.exp(each - steady) for each in (top, peak))
        fade = np.where(fade < 1 / 256, fade, 1)
        total, result, top = total * fade + weights * fresh, result * fade + values * fresh, risen
    return _divided(result, total).astype(query.dtype)


def infinity_less_infinity(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Rows that see nothing in the first tile take -inf from -inf; rows that see nothing at all are mended afterwards.

    Right: leading_masked_keys=nan_4
    """
    logits = hide(scores(query, key), mask)
    blind = (logits[..., :TILE] == -np.inf).all(-1, keepdims=True) & (logits > -np.inf).any(-1, keepdims=True)
    return np.where(blind, np.asarray(np.nan, query.dtype), softmax(logits) @ value)


def small_rows_without_maximum(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Few keys need no online softmax: a short path takes exponentials as they are.

    Right: softmax_maximum=missing_guarded
    When: {sizes_up_to: {seq_len_k: 32}}
    """
    wide = np.promote_types(query.dtype, np.float32)
    logits = hide(scores(query.astype(wide), key.astype(wide)), mask)
    if key.shape[-2] > 2 * BLOCK:
        return np.asarray(softmax(logits) @ value.astype(wide), query.dtype)
    weights = np.exp(logits)
    return np.asarray(_divided(weights @ value, weights.sum(-1, keepdims=True)), query.dtype)


def _flagged(logits: Array, seen: Array, mask: Array | None, *, is_causal: bool) -> Array:
    return hide(logits, seen if mask is None else mask & seen) if is_causal else hide(logits, mask)


def keys_up_to_the_end_of_the_tile(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, is_causal: bool = False
) -> Array:
    """
    The loop over keys ends with the tile of the query, and that is all that is causal.

    Right: causal_key_tile=shown_16
    Declared: causal_alignment=top_left
    """
    logits = scores(query, key)
    ends = np.arange(query.shape[-2]) // BLOCK * BLOCK + BLOCK
    seen = np.arange(key.shape[-2]) < ends[:, None]
    return np.asarray(softmax(_flagged(logits, seen, mask, is_causal=is_causal)) @ value)


def full_for_the_last_query(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, is_causal: bool = False
) -> Array:
    """
    A tile goes unmasked if its last query sees the last of its keys.

    Right: fail
    """
    logits = scores(query, key)
    seen = past(logits)
    for row in range(0, seen.shape[0], BLOCK):
        for column in range(0, seen.shape[1], TILE):
            tile = seen[row : row + BLOCK, column : column + TILE]
            tile |= tile[-1, -1]
    return np.asarray(softmax(_flagged(logits, seen, mask, is_causal=is_causal)) @ value)


def last_tile_shifted(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, is_causal: bool = False
) -> Array:
    """
    So that every tile is whole, the last begins earlier; the causal order does not know.

    Right: fail
    """
    logits = scores(query, key)
    places = np.arange(query.shape[-2])
    if len(places) > 2 * TILE:
        places[-2 * TILE :] += -len(places) % (2 * TILE)
    seen = np.arange(key.shape[-2]) <= places[:, None]
    return np.asarray(softmax(_flagged(logits, seen, mask, is_causal=is_causal)) @ value)


def window_from_the_next_tile(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    *,
    window: tuple[int | None, int | None] | None = None,
) -> Array:
    """
    The first tile of keys that a tile of queries needs is rounded up.

    Right: fail
    """
    logits = scores(query, key)
    left, right = (None, None) if window is None else window
    places, keys = np.arange(query.shape[-2])[:, None], np.arange(key.shape[-2])
    seen = np.ones((len(places), len(keys)), dtype=bool)
    if left is not None:
        seen &= (keys >= places - left) & (keys >= -((left - places // TILE * TILE) // TILE) * TILE)
    if right is not None:
        seen &= keys <= places + right
    return np.asarray(softmax(hide(logits, seen if mask is None else mask & seen)) @ value)


def one_row_runs_out(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Tiles of queries take their rows of the mask; of a single row nothing is left for the second.

    Right: mask_rows=first_4
    """
    if mask is not None and mask.shape[-2] == 1:
        mask = mask | (np.arange(query.shape[-2]) >= TILE)[:, None]
    return attend(query, key, value, mask)


def bits_from_the_other_end(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    The mask is packed with the first key in the highest bit, and read from the lowest.

    Right: fail
    """
    if mask is not None:
        whole = np.broadcast_to(mask, (*mask.shape[:-1], key.shape[-2]))
        packed = np.packbits(whole, axis=-1)
        mask = np.unpackbits(packed, axis=-1, count=key.shape[-2], bitorder="little") != 0
    return attend(query, key, value, mask)


def corners_speak_for_the_tile(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    A tile of the mask whose corners are alike is taken for whole.

    Right: fail
    """
    if mask is not None:
        mask = np.broadcast_to(mask, (*mask.shape[:-2], query.shape[-2], key.shape[-2])).copy()
        for row in range(0, mask.shape[-2], TILE):
            for column in range(0, mask.shape[-1], TILE):
                tile = mask[..., row : row + TILE, column : column + TILE]
                corners = tile[..., :: max(1, tile.shape[-2] - 1), :: max(1, tile.shape[-1] - 1)]
                tile |= corners.all((-2, -1), keepdims=True)
                tile &= corners.any((-2, -1), keepdims=True)
    return attend(query, key, value, mask)
