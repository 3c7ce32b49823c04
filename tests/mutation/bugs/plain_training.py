"""
Slips of kernels that train models: heads filled up or cut off, states that go on, passes that are made again.

They follow twenty-eight of somebody who did not know the table: those that had no name, or one that is not exact.
"""

import numpy as np

from .pieces import Array, Params, attend, hide, out, past, projected, scores, softmax


def scale_of_the_block_of_a_head(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, scale: float | None = None
) -> Array:
    """
    A head lies in a block of 16, 32, 64, ... numbers, whose width gives the scale.

    Right: scale=is_0.25 when {scaled: false, sizes_up_to: {head_dim: 16}}
    Right: scale=padded_to_power_of_two when {sizes_above: {head_dim: 8}}
    Right: in_float16 when {dtype: [float16]}
    """
    block = 16
    while block < query.shape[-1]:
        block *= 2
    return attend(query, key, value, mask, block**-0.5 if scale is None else scale)


def product_of_whole_blocks(
    query: Array, key: Array, value: Array, params: Params, num_heads: int, mask: Array | None = None
) -> Array:
    """
    The product of query and key has as many steps of 8 numbers as fit into a head, which may be none.

    Right: fail
    """
    q, k, v = projected(query, key, value, params, num_heads)
    whole = q.shape[-1] // 8 * 8
    return out(attend(q[..., :whole], k[..., :whole], v, mask, q.shape[-1] ** -0.5), params)


def output_as_wide_as_the_query(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    The output is written for head_dim numbers of every row, into a buffer for all.

    Right: fail
    """
    result = np.zeros((*query.shape[:-1], value.shape[-1]), query.dtype)
    width = query.shape[-1]
    result[..., :width] = attend(query, key, value[..., :width], mask)
    return result


def rows_of_a_group_as_positions(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    *,
    is_causal: bool = False,
    num_kv_heads: int | None = None,
) -> Array:
    """
    The heads of a group become rows beside each other, and the flag is made for as many rows.

    Right: fail
    """
    batch, heads, queries = query.shape[:3]
    shared, keys = num_kv_heads or heads, key.shape[-2]
    group = heads // shared

    def rows(array: Array) -> Array:
        apart = array.reshape(batch, shared, group, queries, array.shape[-1])
        return apart.swapaxes(2, 3).reshape(batch, shared, queries * group, array.shape[-1])

    logits = scores(rows(query), key)
    if mask is not None:
        logits = hide(logits, rows(np.broadcast_to(mask, (batch, heads, queries, keys))))
    if is_causal:
        logits = hide(logits, past(logits))
    result = (softmax(logits) @ value).reshape(batch, shared, queries, group, -1)
    return result.swapaxes(2, 3).reshape(batch, heads, queries, -1)


def mask_of_the_shared_head(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, num_kv_heads: int | None = None
) -> Array:
    """
    The number of the shared head is worked out once for each head, and used for whatever has an axis of heads.

    Right: mask_axes[mask]=kv_head
    """
    heads = query.shape[1]
    place = np.arange(heads) * (num_kv_heads or heads) // heads
    if mask is not None and mask.shape[1] > 1:
        mask = mask[:, place]
    return attend(query, key[:, place], value[:, place], mask)


def parts_in_base_two(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Parts of 16 keys tell log2 of their sums, which are taken for natural logarithms.

    Right: online_softmax=parts_by_exp_of_log2_16
    """
    logits = hide(scores(query, key), mask)
    sums, results = [], []
    for start in range(0, key.shape[-2], 16):
        part = logits[..., start : start + 16]
        peak = part.max(-1, keepdims=True)
        with np.errstate(divide="ignore"):
            total = np.exp(part - np.where(np.isfinite(peak), peak, 0)).sum(-1, keepdims=True)
            sums.append(np.log2(total) + peak / np.log(2).astype(peak.dtype))
        results.append(softmax(part) @ value[..., start : start + 16, :])
    counts = softmax(np.concatenate(sums, -1))
    return np.asarray(np.einsum("...qp,p...qe->...qe", counts, np.stack(results)), query.dtype)


def natural_parts_in_powers_of_two(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Parts of 8 keys tell their logsumexp, and powers of two put them together.

    Right: online_softmax=parts_by_exp2_of_log_8
    """
    logits = hide(scores(query, key), mask)
    top = logits.max(-1, keepdims=True)
    weights = np.exp(logits - np.where(np.isfinite(top), top, 0))
    total, result = np.zeros_like(top), np.zeros((*query.shape[:-1], value.shape[-1]), query.dtype)
    for start in range(0, key.shape[-2], 8):
        part = weights[..., start : start + 8]
        own = part.sum(-1, keepdims=True)
        count = own ** np.log(2).astype(own.dtype)
        result += count * (part / np.where(own == 0, 1, own)) @ value[..., start : start + 8, :]
        total += count
    return np.asarray(result / np.where(total == 0, 1, total), query.dtype)


def rises_of_eight_forgotten(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    What was summed of blocks of 16 keys before is rescaled where the maximum rises by more than 8, no matter how often.

    Right: online_softmax=lazily_rescaled_up_to_8_16
    """
    logits = hide(scores(query, key), mask)
    total, result = np.zeros((*query.shape[:-1], 1), query.dtype), np.zeros_like(query[..., :1] * value[..., :1, :])
    top = np.full_like(total, -np.inf)
    for start in range(0, key.shape[-2], 16):
        part = logits[..., start : start + 16]
        risen = np.maximum(top, part.max(-1, keepdims=True))
        anchor = np.where(np.isfinite(risen), risen, 0)
        weights = np.exp(part - anchor)
        keep = np.where(anchor - top > 8, np.exp(top - anchor), np.asarray(1, query.dtype))
        total = total * keep + weights.sum(-1, keepdims=True)
        result = result * keep + weights @ value[..., start : start + 16, :]
        top = risen
    return np.asarray(result / np.where(total == 0, 1, total), query.dtype)


def tiles_of_the_first_head(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    A list of the tiles of 8 by 8 in which there is anything to see is made from the mask of one head.

    Right: fail
    """
    logits = np.array(hide(scores(query, key), mask))
    if mask is not None and mask.shape[1] > 1:
        first = hide(scores(query[:, :1], key[:, :1]), mask[:, :1]) > -np.inf
        for row in range(0, logits.shape[-2], 8):
            for column in range(0, logits.shape[-1], 8):
                tile = np.s_[..., row : row + 8, column : column + 8]
                empty = ~first[tile].any((-1, -2), keepdims=True)
                logits[tile] = np.where(empty, -np.inf, logits[tile])
    return np.asarray(softmax(logits) @ value)


def zeros_left_to_the_flag(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, is_causal: bool = False
) -> Array:
    """
    The last 16 keys are filled up with zeros; under the flag it is not looked up how many there are.

    Right: fail
    """
    if not is_causal:
        return attend(query, key, value, mask)
    keys = key.shape[-2]
    behind = [(0, 0), (0, 0), (0, -keys % 16), (0, 0)]
    key, value = np.pad(key, behind), np.pad(value, behind)
    logits = scores(query, key)
    if mask is not None:
        seen = np.ones((*mask.shape[:3], key.shape[-2]), bool)
        seen[..., :keys] = mask
        logits = hide(logits, seen)
    return np.asarray(softmax(hide(logits, past(logits))) @ value)


def sum_of_the_tile_before(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    One loop runs over items, heads and tiles of 16 queries; it clears the result, and not what that is divided by.

    Right: fail
    """
    logits = hide(scores(query, key), mask)
    output = np.zeros((*query.shape[:-1], value.shape[-1]), query.dtype)
    top, total = np.full((16, 1), -np.inf, query.dtype), np.zeros((16, 1), query.dtype)
    for item, head in np.ndindex(*query.shape[:2]):
        for start in range(0, query.shape[-2], 16):
            tile = logits[item, head, start : start + 16]
            rows = np.s_[: len(tile)]
            risen = np.maximum(top[rows], tile.max(-1, keepdims=True))
            anchor = np.where(np.isfinite(risen), risen, 0)
            weights = np.exp(tile - anchor)
            total[rows] = total[rows] * np.exp(top[rows] - anchor) + weights.sum(-1, keepdims=True)
            top[rows] = risen
            divisor = np.where(total[rows] == 0, 1, total[rows])
            output[item, head, start : start + 16] = weights @ value[item, head] / divisor
    return output


def _with_weights(
    logits: Array, seen: Array, again: Array, value: Array, *, need_weights: bool
) -> Array | tuple[Array, Array]:
    """The output under `seen`, weights by its logsumexp under `again`."""
    hidden = hide(logits, seen)
    output = softmax(hidden) @ value
    if not need_weights:
        return output
    with np.errstate(divide="ignore", invalid="ignore"):
        peak = hidden.max(-1, keepdims=True)
        logsumexp = peak + np.log(np.exp(hidden - peak).sum(-1, keepdims=True))
        return output, np.where(np.isfinite(logsumexp) & again, np.exp(logits - logsumexp), 0).astype(logits.dtype)


def weights_made_again_without_the_flag(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    *,
    is_causal: bool = False,
    need_weights: bool = False,
) -> Array | tuple[Array, Array]:
    """
    A second kernel makes the weights, and has no argument for the flag.

    Right: fail
    """
    logits = scores(query, key)
    allowed = np.ones(logits.shape, bool) if mask is None else mask & np.ones(logits.shape, bool)
    seen = allowed & past(logits) if is_causal else allowed
    return _with_weights(logits, seen, allowed, value, need_weights=need_weights)


def weights_made_again_without_the_mask(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    *,
    need_weights: bool = False,
) -> Array | tuple[Array, Array]:
    """
    And here none for the mask.

    Right: fail
    """
    logits = scores(query, key)
    every = np.ones(logits.shape, bool)
    return _with_weights(logits, every if mask is None else mask & every, every, value, need_weights=need_weights)
