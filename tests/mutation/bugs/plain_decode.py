"""
Slips of kernels that answer one query after another from a cache of keys, and of those that fill it.

They follow those of somebody who did not know the table: those that had no name, or a wrong one.
"""

import numpy as np

from .pieces import Array, Params, hide, out, past, projected, scores, softmax


def parts_that_count_alike(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Parts of 8 keys are attended one by one, and the mean of what they return is taken.

    Right: fail
    """
    logits = hide(scores(query, key), mask)
    starts = range(0, key.shape[-2], 8)
    parts = [softmax(logits[..., start : start + 8]) @ value[..., start : start + 8, :] for start in starts]
    return np.asarray(np.mean(parts, axis=0), query.dtype)


def four_sinks_before_the_window(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    *,
    window: tuple[int | None, int | None] | None = None,
) -> Array:
    """
    The cache never drops its first four keys, and whatever is in the cache is attended.

    Right: fail
    """
    logits = hide(scores(query, key), mask)
    if window is not None:
        behind = np.arange(query.shape[-2])[:, None] - np.arange(key.shape[-2])
        if window[0] is not None:
            dropped = behind > window[0]
            dropped[:, :4] = False
            logits = hide(logits, ~dropped)
        if window[1] is not None:
            logits = hide(logits, behind >= -window[1])
    return np.asarray(softmax(logits) @ value)


def sum_of_half_the_lanes(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Sums of 16 lanes are halved three times, where four would leave one sum and not those of two lanes.

    Right: fail
    """
    logits = hide(scores(query, key), mask)
    peak = logits.max(-1, keepdims=True)
    weights = np.exp(logits - np.where(np.isfinite(peak), peak, 0))
    filled = np.pad(weights, [(0, 0), (0, 0), (0, 0), (0, -key.shape[-2] % 16)])
    lanes = filled.reshape(*weights.shape[:3], -1, 16).sum(-2)
    for half in (8, 4, 2):
        lanes = lanes[..., :half] + lanes[..., half:]
    total = lanes[..., :1]
    return np.asarray(weights / np.where(total == 0, np.inf, total).astype(query.dtype) @ value)


def position_after_whole_pages(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    *,
    is_causal: bool = False,
    causal_alignment: str = "top_left",
) -> Array:
    """
    The first query stands where the pages of 8 that the cache holds leave room for all queries.

    Right: fail
    """
    logits = hide(scores(query, key), mask)
    if is_causal:
        pages = (key.shape[-2] + 7) // 8
        first = pages * 8 - query.shape[-2] if causal_alignment == "bottom_right" else 0
        logits = hide(logits, past(logits, first))
    return np.asarray(softmax(logits) @ value)


def kinds_of_tiles_made_once(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    A table says of every tile of 8 by 8 whether to skip it, to mask it or neither; it has no axes for items and heads.

    Right: fail
    """
    logits = scores(query, key)
    if mask is None:
        return np.asarray(softmax(logits) @ value)
    whole = np.broadcast_to(mask, logits.shape)
    for row, column in np.ndindex(-(-logits.shape[-2] // 8), -(-logits.shape[-1] // 8)):
        tile = np.s_[..., row * 8 : row * 8 + 8, column * 8 : column * 8 + 8]
        told = whole[0, 0][tile]
        if not told.any():
            logits[tile] = -np.inf
        elif not told.all():
            logits[tile] = hide(logits[tile], whole[tile])
    return np.asarray(softmax(logits) @ value)


def values_of_the_block_before(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Keys come in blocks of 16; from the second block on the buffer still holds the values of the one before.

    Right: fail
    """
    places = np.arange(key.shape[-2])
    stale = value[..., np.where(places < 16, places, places - 16), :]
    return np.asarray(softmax(hide(scores(query, key), mask)) @ stale)


def mean_over_lanes_of_heads(
    query: Array,
    key: Array,
    value: Array,
    params: Params,
    num_heads: int,
    mask: Array | None = None,
    *,
    need_weights: bool = False,
    average_weights: bool = False,
) -> Array | tuple[Array, Array]:
    """
    Eight heads are taken at once; where there are fewer, zeros count in the mean of the weights.

    Right: fail
    """
    q, k, v = projected(query, key, value, params, num_heads)
    weights = softmax(hide(scores(q, k), mask))
    output = out(weights @ v, params)
    if not need_weights:
        return output
    lanes = (num_heads + 7) // 8 * 8
    return output, weights.sum(axis=1) / lanes if average_weights else weights


def output_rows_counted_by_the_key(
    query: Array, key: Array, value: Array, params: Params, num_heads: int, mask: Array | None = None
) -> Array:
    """
    The rows of wo of a head are found by the width of its keys; a slice that would be too far is moved back.

    Right: weight_orientation=wo_by_head_dim
    """
    q, k, v = projected(query, key, value, params, num_heads)
    context = softmax(hide(scores(q, k), mask)) @ v
    width, wo, bo = v.shape[-1], params["wo"], params["bo"]
    assert wo is not None
    total = np.zeros(wo.shape[1]) if bo is None else bo
    for head in range(num_heads):
        begin = min(head * q.shape[-1], wo.shape[0] - width)
        total = total + context[:, head] @ wo[begin : begin + width]
    return np.asarray(total, query.dtype)
