"""
Slips of what is left over: heads, items and queries that a loop forgets or counts twice, arrays that are read alone.

They follow those of two people who did not know the table: those that had no name.
"""

import numpy as np

from .pieces import Array, Params, attend, hide, out, past, projected, scores, softmax


def heads_in_pairs(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Two heads are computed at a time, and there are half as many steps as heads, rounded down.

    Right: fail
    """
    done = np.zeros((*query.shape[:-1], value.shape[-1]), query.dtype)
    whole = softmax(hide(scores(query, key), mask)) @ value
    for step in range(query.shape[1] // 2):
        pair = slice(2 * step, 2 * step + 2)
        done[:, pair] = whole[:, pair]
    return done


def mean_kept_from_item_to_item(
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
    One buffer takes the sum of the weights over the heads for one item after another, and is never cleared.

    Right: fail
    """
    q, k, v = projected(query, key, value, params, num_heads)
    weights = softmax(hide(scores(q, k), mask))
    output = out(weights @ v, params)
    if not need_weights:
        return output
    if not average_weights:
        return output, weights
    buffer = np.zeros(weights.shape[2:], weights.dtype)
    means = []
    for item in weights:
        for head in item:
            buffer = buffer + head
        means.append(buffer / num_heads)
    return output, np.stack(means)


def values_flattened_as_they_lie(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    The values alone are flattened for an inner loop, in the order of the memory and not of the axes.

    Right: fail
    """
    value = value.ravel(order="K").reshape(value.shape)
    return np.asarray(softmax(hide(scores(query, key), mask)) @ value)


def bias_in_a_float32_buffer(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, bias: Array | None = None
) -> Array:
    """
    What is added to the logits is gathered in float32, whatever the inputs are.

    Right: fail
    """
    logits = hide(scores(query, key), mask)
    if bias is not None:
        logits = logits + bias.astype(np.float32)
    return np.asarray(softmax(logits) @ value)


def shard_has_its_own_padding(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    key_padding_mask: Array | None = None,
) -> Array:
    """
    Two ranks have half of the queries and keys each; keys go round, the padding beside them does not.

    Right: fail
    """
    logits = hide(scores(query, key), mask)
    queries, keys = logits.shape[-2:]
    if key_padding_mask is not None and (queries % 2 or keys % 2):
        logits = hide(logits, key_padding_mask[:, None, None])
    elif key_padding_mask is not None:
        for rank in range(2):
            own = key_padding_mask[:, rank * keys // 2 : (rank + 1) * keys // 2]
            rows = slice(rank * queries // 2, (rank + 1) * queries // 2)
            logits[:, :, rows] = hide(logits[:, :, rows], np.concatenate([own, own], axis=1)[:, None, None])
    return np.asarray(softmax(logits) @ value)


def mask_of_the_shared_tile(
    query: Array, key: Array, value: Array, mask: Array | None = None, num_kv_heads: int | None = None
) -> Array:
    """
    All query heads of a key head are computed at once, under one tile of the mask.

    Right: fail
    """
    heads = query.shape[1]
    members = heads // (num_kv_heads or heads)
    if mask is not None and mask.shape[1] == heads:
        mask = np.repeat(mask[:, ::members], members, axis=1)
    return attend(query, np.repeat(key, members, axis=1), np.repeat(value, members, axis=1), mask)


def dead_for_every_head(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    One flag for each query says that there is nothing to attend; the first head that finds it so sets it.

    Right: fail
    """
    logits = hide(scores(query, key), mask)
    dead = np.all(np.isneginf(logits), axis=-1).any(axis=1, keepdims=True)
    return np.asarray(np.where(dead[..., None], 0, softmax(logits) @ value))


def loop_stops_before_the_diagonal(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, is_causal: bool = False
) -> Array:
    """
    The end of a tile of 8 queries is one too small where the tiles of keys before it are counted.

    Right: causal_loop=8x8_short_up_masked
    """
    logits = hide(scores(query, key), mask)
    if is_causal:
        queries, keys = logits.shape[-2:]
        ends = np.minimum((np.arange(queries) // 8 + 1) * 8, queries)
        reached = -(-(ends - 1) // 8) * 8
        logits = hide(logits, past(logits) & (np.arange(keys) < reached[:, None]))
    return np.asarray(softmax(logits) @ value)


def window_without_a_right_side_ends(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    *,
    window: tuple[int | None, int | None] | None = None,
) -> Array:
    """
    None and 0 are one for the right side, which a decoder never has.

    Right: window_edges=unbounded_ends_at_query
    """
    logits = hide(scores(query, key), mask)
    if window is None:
        return np.asarray(softmax(logits) @ value)
    left, right = window
    apart = np.arange(logits.shape[-1])[None] - np.arange(logits.shape[-2])[:, None]
    seen = apart <= (right or 0)
    return np.asarray(softmax(hide(logits, seen if left is None else seen & (apart >= -left))) @ value)


def product_of_the_block_before_comes_late(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    A pipeline rescales what is summed and then adds the product of the block before, which is under the old maximum.

    Right: online_softmax=block_not_rescaled_8
    """
    logits = hide(scores(query, key), mask)
    top = np.full((*logits.shape[:-1], 1), -np.inf, logits.dtype)
    total = np.zeros_like(top)
    summed = np.zeros((*logits.shape[:-1], value.shape[-1]), logits.dtype)
    late = np.zeros_like(summed)
    for start in range(0, logits.shape[-1], 8):
        block = logits[..., start : start + 8]
        higher = np.maximum(top, block.max(axis=-1, keepdims=True))
        finite = np.where(np.isfinite(higher), higher, 0)
        weights, fade = np.exp(block - finite), np.exp(top - finite)
        total = total * fade + weights.sum(axis=-1, keepdims=True)
        summed = summed * fade + late
        late, top = weights @ value[:, :, start : start + 8], higher
    return np.asarray((summed + late) / np.where(total == 0, 1, total))
