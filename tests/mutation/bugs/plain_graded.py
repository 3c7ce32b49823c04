"""What a grader planted and the table had no word for: limits of their own, positions without a sign, tiles skipped."""

import numpy as np

from .pieces import Array, hide, past, scores, softmax


def exponent_held_to_thirty(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, scale: float | None = None
) -> Array:
    """
    The exponential is held to what it can take, and no maximum is subtracted.

    Right: logit_limit=30
    """
    powers = np.exp(np.minimum(np.maximum(scores(query, key, scale), -30), 30))
    kept = powers if mask is None else np.where(mask, powers, 0)
    total = kept.sum(axis=-1, keepdims=True)
    return np.asarray((kept / np.where(total == 0, 1, total)) @ value)


def biased_logits_clamped(query: Array, key: Array, value: Array, bias: Array | None = None) -> Array:
    """
    Clamped after the bias is added: where there is none, or a small one, it is the same as before.

    Right: logit_limit=100_after_bias or logit_limit=100
    """
    logits = scores(query, key)
    hidden = False if bias is None else bias == -np.inf
    clamped = np.clip(logits if bias is None else logits + bias, -100, 100)
    return np.asarray(softmax(np.where(hidden, -np.inf, clamped)) @ value, query.dtype)


def window_of_unsigned_places(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    *,
    window: tuple[int | None, int | None] | None = None,
) -> Array:
    """
    The first key of a window is a size, which has no sign: before key 0 it is a very large one.

    Right: fail
    """
    logits = hide(scores(query, key), mask)
    left, right = window or (None, None)
    for row in range(query.shape[-2]):
        first = 0 if left is None else (row - left) % 2**32
        last = key.shape[-2] if right is None else row + right + 1
        logits[..., row, :first] = -np.inf
        logits[..., row, last:] = -np.inf
    return np.asarray(softmax(logits) @ value)


def window_left_at_the_end(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    *,
    window: tuple[int | None, int | None] | None = None,
) -> Array:
    """
    A window that does not lie within the keys is taken for no window, on the right.

    Right: fail
    """
    logits = hide(scores(query, key), mask)
    left, right = window or (None, None)
    apart = np.arange(key.shape[-2]) - np.arange(query.shape[-2])[:, None]
    seen = np.ones(apart.shape, bool)
    if left is not None:
        seen &= apart >= -left
    if right is not None:
        seen &= apart <= right
        seen |= np.arange(query.shape[-2])[:, None] + right > key.shape[-2] - 1
    return np.asarray(softmax(hide(logits, seen)) @ value)


def tiles_without_a_row_skipped(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    A table says which tiles of 8 by 8 to visit: those of which each row has something, where any row would do.

    Right: fail
    """
    logits = hide(scores(query, key), mask)
    rows, keys = logits.shape[-2:]
    for top in range(0, rows, 8):
        for start in range(0, keys, 8):
            tile = logits[..., top : top + 8, start : start + 8]
            visited = (tile > -np.inf).any(axis=-1).all(axis=-1)
            tile[~visited] = -np.inf
    return np.asarray(softmax(logits) @ value)


def tiles_of_the_diagonal(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, is_causal: bool = False
) -> Array:
    """
    The number of the row of tiles ends the loop over keys, though tiles are half as wide as they are high.

    Right: causal_loop=16x8_count_up_masked or causal_loop=16x8_count_from_first_key_up_masked
    """
    logits = hide(scores(query, key), mask)
    if is_causal:
        logits = hide(logits, past(logits))
        for tile in range(-(-query.shape[-2] // 16)):
            logits[..., 16 * tile : 16 * (tile + 1), 8 * (tile + 1) :] = -np.inf
    return np.asarray(softmax(logits) @ value)


def one_vote_for_a_tile(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Sixteen queries vote whether their sums are worth rescaling; the maximum that is subtracted next rises anyway.

    Right: fail
    """
    logits = hide(scores(query, key), mask)
    peaks = np.full((*logits.shape[:-1], 1), -np.inf, query.dtype)
    totals, sums = np.zeros_like(peaks), np.zeros((*logits.shape[:-1], value.shape[-1]), query.dtype)
    with np.errstate(invalid="ignore"):
        for start in range(0, key.shape[-2], 32):
            tile = logits[..., start : start + 32]
            risen = np.maximum(peaks, tile.max(axis=-1, keepdims=True))
            for top in range(0, query.shape[-2], 16):
                rows = (..., slice(top, top + 16), slice(None))
                worth = ((risen - peaks)[rows] * np.log2(np.e) > 8).any(axis=(-2, -1), keepdims=True)
                shrunk = np.nan_to_num(np.where(worth, np.exp(peaks[rows] - risen[rows]), 1), nan=1)
                totals[rows] *= shrunk
                sums[rows] *= shrunk
            kept = np.exp(tile - np.where(np.isfinite(risen), risen, 0))
            totals, sums = totals + kept.sum(axis=-1, keepdims=True), sums + kept @ value[..., start : start + 32, :]
            peaks = risen
    return np.asarray(sums / np.where(totals == 0, 1, totals), query.dtype)


def tiles_seen_by_the_first(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Tiles of 16 by 16 are listed once, for the first item and head; in those that are listed each has its own mask.

    Right: fail
    """
    logits = hide(scores(query, key), mask)
    if mask is not None:
        first = np.broadcast_to(mask, logits.shape)[0, 0]
        for row, column in np.ndindex(-(-first.shape[0] // 16), -(-first.shape[1] // 16)):
            tile = np.s_[..., row * 16 : row * 16 + 16, column * 16 : column * 16 + 16]
            if not first[tile].any():
                logits[tile] = -np.inf
    return np.asarray(softmax(logits) @ value)
