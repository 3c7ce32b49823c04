"""What an assessor planted and the table had no word for: the first item alone, empty splits, sums along the keys."""

import numpy as np

from .pieces import Array, attend, hide, past, scores, softmax


def flag_for_item_zero(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, is_causal: bool = False
) -> Array:
    """
    The loop over items that hides what comes later ends after the first.

    Right: fail
    """
    logits = hide(scores(query, key), mask)
    if is_causal:
        logits[:1] = hide(logits[:1], past(logits))
    return np.asarray(softmax(logits) @ value)


def mask_of_head_zero(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    One head is masked, of as many as there are.

    Right: fail
    """
    logits = scores(query, key)
    if mask is not None:
        logits[:, :1] = hide(logits[:, :1], mask[:, :1])
    return np.asarray(softmax(logits) @ value)


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


def mask_stretched_over_the_tail(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Keys are filled up to eights; what is filled up is hidden, but where there is a mask, whose last column goes on.

    Right: fail
    """
    more = -key.shape[-2] % 8
    if mask is None or more == 0:
        return attend(query, key, value, mask)
    tail = [(0, 0), (0, 0), (0, more), (0, 0)]
    columns = np.broadcast_to(mask, (*mask.shape[:-1], key.shape[-2]))
    stretched = np.concatenate([columns, *[columns[..., -1:]] * more], axis=-1)
    return attend(query, np.pad(key, tail), np.pad(value, tail), stretched)


def rises_by_four_forgotten(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    What is summed is shrunk only if the maximum rises by more than 4; the next block of 16 keys takes the new one.

    Right: fail
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
