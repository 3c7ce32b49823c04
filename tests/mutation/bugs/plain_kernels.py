"""Slips of kernels that work through blocks of keys: the online softmax, tiles that are skipped, keys that fill up."""

import numpy as np

from .pieces import Array, attend, hide, past, scores, softmax

BLOCK = 16


def _in_blocks(
    query: Array, key: Array, value: Array, mask: Array | None, *, output_fades: bool, total_fades: bool
) -> Array:
    logits = hide(scores(query, key), mask).astype(np.promote_types(query.dtype, np.float32))
    peak = np.full((*logits.shape[:-1], 1), -np.inf, logits.dtype)
    total, result = np.zeros_like(peak), np.zeros((*logits.shape[:-1], value.shape[-1]), logits.dtype)
    for start in range(0, logits.shape[-1], BLOCK):
        block = logits[..., start : start + BLOCK]
        risen = np.maximum(peak, block.max(-1, keepdims=True))
        steady = np.where(np.isfinite(risen), risen, 0)
        weights, fade = np.exp(block - steady), np.exp(peak - steady)
        total = total * (fade if total_fades else 1) + weights.sum(-1, keepdims=True)
        result = result * (fade if output_fades else 1) + weights @ value[..., start : start + BLOCK, :]
        peak = risen
    return np.asarray(result / np.where(total == 0, 1, total), query.dtype)


def splits_of_nothing(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Keys are shared out among four; one that has nothing to attend says 0 for the logarithm of its sum.

    Right: fail
    """
    logits = hide(scores(query, key), mask)
    size = (key.shape[-2] + 3) // 4
    parts, logarithms = [], []
    for start in range(0, key.shape[-2], size):
        tile = logits[..., start : start + size]
        peak = tile.max(axis=-1)
        empty = peak == -np.inf
        total = np.exp(tile - np.where(empty, 0, peak)[..., None]).sum(axis=-1)
        parts.append(softmax(tile) @ value[..., start : start + size, :])
        logarithms.append(np.where(empty, 0, peak + np.log(np.where(empty, 1, total))))
    counts = softmax(np.stack(logarithms, axis=-1))
    return np.asarray(sum(counts[..., n, None] * part for n, part in enumerate(parts)), query.dtype)


def rises_by_four_forgotten(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    What is summed is shrunk only if the maximum rises by more than 4; the next block of 16 keys takes the new one.

    Right: online_softmax=lazily_rescaled_up_to_4_16
    """
    logits = hide(scores(query, key), mask)
    peak = np.full((*logits.shape[:-1], 1), -np.inf, query.dtype)
    total, sums = np.zeros_like(peak), np.zeros((*logits.shape[:-1], value.shape[-1]), query.dtype)
    for start in range(0, key.shape[-2], 16):
        tile = logits[..., start : start + 16]
        risen = np.maximum(peak, tile.max(axis=-1, keepdims=True))
        with np.errstate(invalid="ignore"):
            shrunk = np.where(risen - peak > 4, np.exp(peak - risen), 1)
        kept = np.exp(tile - np.where(np.isfinite(risen), risen, 0))
        total = total * shrunk + kept.sum(axis=-1, keepdims=True)
        sums = sums * shrunk + kept @ value[..., start : start + 16, :]
        peak = risen
    return np.asarray(sums / np.where(total == 0, 1, total), query.dtype)


def sums_along_the_keys(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    The sums of the rows are divided by along the last axis where their number fits it, by rows where it does not.

    Right: fail
    """
    logits = hide(scores(query, key), mask)
    peak = logits.max(axis=-1, keepdims=True)
    weights = np.exp(logits - np.where(np.isfinite(peak), peak, 0))
    total = weights.sum(axis=-1)
    total[total == 0] = 1
    fits = total.shape[-1] == weights.shape[-1]
    return np.asarray(weights / (total[..., None, :] if fits else total[..., None]) @ value)


def left_at_the_first_hidden_tile(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    A tile of 8 keys that eight queries do not see ends their loop, where it should be passed over.

    Right: masked_block=ends_8
    """
    logits = np.array(hide(scores(query, key), mask))
    queries, keys = logits.shape[-2:]
    for row in range(0, queries, 8):
        over = np.zeros((*logits.shape[:2], 1, 1), bool)
        for column in range(0, keys, 8):
            tile = logits[..., row : row + 8, column : column + 8]
            over = over | (tile == -np.inf).all((-1, -2), keepdims=True)
            tile[...] = np.where(over, -np.inf, tile)
    return np.asarray(softmax(logits) @ value)


def keys_loaded_once_for_one_head(
    query: Array, key: Array, value: Array, mask: Array | None = None, num_kv_heads: int | None = None
) -> Array:
    """
    Keys and values are loaded again when their head changes, which a single one never does.

    Right: fail
    """
    if key.shape[1] == 1:
        key, value = np.repeat(key[:1], len(key), 0), np.repeat(value[:1], len(value), 0)
    groups = query.shape[1] // (num_kv_heads or query.shape[1])
    return attend(query, key.repeat(groups, 1), value.repeat(groups, 1), mask)


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


def zeros_attended(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Keys and values are filled up with zeros to whole blocks, which nobody masks: each has a logit of zero.

    Right: key_tail=zeros_16
    """
    more = -key.shape[-2] % BLOCK
    if mask is not None:
        seen = np.broadcast_to(mask, (*mask.shape[:-1], key.shape[-2]))
        mask = np.concatenate([seen, np.ones((*seen.shape[:-1], more), dtype=bool)], axis=-1)
    key, value = (np.pad(each, ((0, 0), (0, 0), (0, more), (0, 0))) for each in (key, value))
    return attend(query, key, value, mask)


def causal_within_a_block(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, is_causal: bool = False
) -> Array:
    """
    A tiled kernel compares the query with the place of a key in its block.

    Right: causal_key_tile=restarts_16
    """
    logits = scores(query, key)
    if is_causal:
        first = past(logits[..., :BLOCK])
        seen = np.concatenate([first] * -(-key.shape[-2] // BLOCK), axis=-1)[:, : key.shape[-2]]
        mask = seen if mask is None else mask & seen
    return np.asarray(softmax(hide(logits, mask)) @ value)


def values_not_rescaled(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Online softmax that rescales its denominator alone when the maximum rises.

    Right: online_softmax=not_rescaled_16
    """
    return _in_blocks(query, key, value, mask, output_fades=False, total_fades=True)


def denominator_not_rescaled(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Online softmax that rescales the weighted values alone.

    Right: online_softmax=total_not_rescaled_16
    """
    return _in_blocks(query, key, value, mask, output_fades=True, total_fades=False)


def nothing_rescaled(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Online softmax that rescales neither.

    Right: online_softmax=nothing_rescaled_16
    """
    return _in_blocks(query, key, value, mask, output_fades=False, total_fades=False)
