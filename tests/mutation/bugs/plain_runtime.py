"""
Slips of the attention operator of a runtime: chunks, vectors, strides and layouts that are guessed.

They follow what somebody who did not know the table planted in such an operator, and what had no name.
"""

import numpy as np

from .pieces import Array, Params, attend, hide, merge, out, projected, scores, softmax


def chunks_share_the_first_rows_of_the_mask(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Sixteen queries at a time; the mask is cut to the size of the chunk, and not moved on with it.

    Right: mask_rows=again_16
    """
    parts = np.array_split(query, range(16, query.shape[-2], 16), axis=-2)
    own = mask is not None and mask.shape[-2] > 1
    cut = [mask[..., : part.shape[-2], :] if own and mask is not None else mask for part in parts]
    return np.concatenate([attend(part, key, value, seen) for part, seen in zip(parts, cut, strict=True)], axis=-2)


def vectors_of_eight_overlap(
    query: Array, key: Array, value: Array, params: Params, num_heads: int, mask: Array | None = None
) -> Array:
    """
    Each head of the output is summed in vectors of 8; the last one begins 8 before the end of the head.

    Right: fail
    """
    q, k, v = projected(query, key, value, params, num_heads)
    heads = attend(q, k, v, mask)
    rest = heads.shape[-1] % 8
    if heads.shape[-1] > 8 and rest:
        heads[..., -8:-rest] += heads[..., -8:-rest]
    return out(heads, params)


def values_of_items_as_far_apart_as_queries(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    A view of the values with the strides of the query, over memory that goes on with its last number.

    Right: fail
    """
    batch, heads, length, dim = value.shape
    step = heads * query.shape[-2] * dim
    flat = value.reshape(-1)
    memory = np.concatenate([flat, np.full(batch * (step + value[0].size), flat[-1])])
    read = np.stack([memory[item * step :][: value[0].size].reshape(heads, length, dim) for item in range(batch)])
    return attend(query, key, read, mask)


def keys_of_items_as_far_apart_as_queries(
    query: Array, key: Array, value: Array, params: Params, num_heads: int, mask: Array | None = None
) -> Array:
    """
    The same slip with the projected keys, of which all heads of a position lie side by side.

    Right: fail
    """
    q, k, v = projected(query, key, value, params, num_heads)
    rows = merge(k)
    batch, length, width = rows.shape
    memory = np.pad(rows.reshape(-1), (0, batch * width * (length + q.shape[-2])), mode="edge")
    for item in range(batch):
        start = item * q.shape[-2] * width
        own = memory[start : start + length * width].reshape(length, num_heads, -1)
        k[item] = own.swapaxes(0, 1)
    return out(attend(q, k, v, mask), params)


def square_keys_pass_for_transposed(
    query: Array, key: Array, value: Array, mask: Array | None = None, scale: float | None = None
) -> Array:
    """
    Keys whose second last axis is as long as the head go into the product as they are.

    Right: arguments=key_reshaped
    When: {sizes_equal: [[seq_len_k, head_dim]]}
    """
    if key.shape[-2] == query.shape[-1]:
        key = key.swapaxes(-1, -2)
    return attend(query, key, value, mask, scale)


def one_key_needs_no_softmax(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, key_padding_mask: Array | None = None
) -> Array:
    """
    With one key the output is its value, which is so unless that key is masked.

    Right: fail
    """
    if key.shape[-2] == 1:
        return np.repeat(value, query.shape[-2], axis=-2)
    if key_padding_mask is not None:
        padding = key_padding_mask[:, None, None, :]
        mask = padding if mask is None else mask & padding
    return attend(query, key, value, mask)


def exponentials_in_half_before_the_values(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Exponentials are cast to float16 for the product with the values; what they are divided by is summed before.

    NumPy computes in float16 throughout where its inputs are: that is coarser, and needs no other name there.

    Right: weights_in_float16 or in_float16 when {dtype: [float16]}
    """
    logits = hide(scores(query, key), mask)
    peak = logits.max(axis=-1, keepdims=True)
    exponentials = np.exp(logits - np.where(np.isfinite(peak), peak, 0))
    total = exponentials.sum(axis=-1, keepdims=True)
    cast = exponentials.astype(np.float16).astype(value.dtype)
    return np.asarray(cast @ value / np.where(total == 0, 1, total))


def exponential_by_ten_squarings(
    query: Array, key: Array, value: Array, mask: Array | None = None, scale: float | None = None
) -> Array:
    """
    An exponential for small numbers: (1 + x / 1024)^1024, float16 in float32.

    Right: fail
    """
    wide = np.float64 if query.dtype == np.float64 else np.float32
    logits = hide(scores(query.astype(wide), key.astype(wide), scale), mask)
    peak = logits.max(axis=-1, keepdims=True)
    power = np.maximum(1 + (logits - np.where(np.isfinite(peak), peak, 0)) / wide(1024), 0)
    for _ in range(10):
        power *= power
    total = power.sum(axis=-1, keepdims=True)
    weights = power / np.where(total == 0, wide(1), total)
    return np.asarray(weights @ value.astype(wide), query.dtype)


def right_side_of_zero_is_falsy(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    *,
    window: tuple[int | None, int | None] | None = None,
) -> Array:
    """
    `right or seq_len_k` was meant for None; the left side is compared with None.

    Right: window_edges=zero_right_is_unbounded
    """
    logits = hide(scores(query, key), mask)
    if window is not None:
        apart = np.arange(key.shape[-2]) - np.arange(query.shape[-2])[:, None]
        left = key.shape[-2] + query.shape[-2] if window[0] is None else window[0]
        logits = hide(logits, (apart >= -left) & (apart <= (window[1] or key.shape[-2])))
    return np.asarray(softmax(logits) @ value)
