"""
Bugs of the fourth sets for which the table had no word: what is packed, folded or taken out, and read otherwise.

Three strangers wrote ninety bugs, a third of them for tiled kernels: docs/mutation.md tells what became of them.
"""

import numpy as np

from .pieces import Array, Params, attend, hide, projected, scores, softmax
from .pieces import out as project_out


def values_tiled(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, num_kv_heads: int | None = None
) -> Array:
    """
    The heads of keys are repeated, those of values tiled.

    Right: fail
    """
    times = query.shape[1] // (num_kv_heads or query.shape[1])
    return attend(query, key.repeat(times, axis=1), np.tile(value, (1, times, 1, 1)), mask)


def keys_tiled(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, num_kv_heads: int | None = None
) -> Array:
    """
    And the other way round.

    Right: fail
    """
    times = query.shape[1] // (num_kv_heads or query.shape[1])
    return attend(query, np.tile(key, (1, times, 1, 1)), value.repeat(times, axis=1), mask)


def packed_keys_and_values(
    query: Array, key: Array, value: Array, params: Params, num_heads: int, mask: Array | None = None
) -> Array:
    """
    A buffer of all keys, then all values, is read as if it held a key and a value of every head in turn.

    Right: fail
    """
    q, k, v = projected(query, key, value, params, num_heads)
    if k.shape == v.shape:
        packed = np.concatenate([k, v], axis=1)
        k, v = packed[:, ::2], packed[:, 1::2]
    return project_out(attend(q, k, v, mask), params)


def mean_of_other_items(
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
    Items and heads are one axis; for the average it is taken apart in the wrong order.

    Right: fail
    """
    q, k, v = projected(query, key, value, params, num_heads)
    weights = softmax(hide(scores(q, k), mask))
    output = project_out(weights @ v, params)
    if not need_weights:
        return output
    if average_weights:
        items, heads, *rows = weights.shape
        weights = weights.reshape(heads, items, *rows).mean(axis=0)
    return output, weights


def scale_of_the_filled_head(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, scale: float | None = None
) -> Array:
    """
    Heads are filled up to a multiple of 16, and the scale is taken from what came of it.

    In most cases that is a power of two, so that float16 has no rounding here that would tell how NumPy computes in it.

    Right: scale=padded_16
    """
    width = -(-query.shape[-1] // 16) * 16
    return attend(query, key, value, mask, width**-0.5 if scale is None else scale)


def padding_taken_out_before_the_flag(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    *,
    key_padding_mask: Array | None = None,
    is_causal: bool = False,
) -> Array:
    """
    Keys that are padding are taken out; the causal flag counts those that are left.

    Right: fail
    """
    logits = hide(scores(query, key), mask)
    kept = np.ones((query.shape[0], key.shape[-2]), dtype=bool) if key_padding_mask is None else key_padding_mask
    logits = hide(logits, kept[:, None, None])
    if is_causal:
        place = np.cumsum(kept, axis=-1)[:, None, None] - 1
        logits = hide(logits, place <= np.arange(query.shape[-2])[:, None])
    return np.asarray(softmax(logits) @ value)


def causal_counted_anew(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, is_causal: bool = False
) -> Array:
    """
    Queries go in chunks of 16, and the flag of each counts from its own first query.

    Right: causal_query_tile=restarts_16
    """
    logits = hide(scores(query, key), mask)
    if is_causal:
        place = np.arange(query.shape[-2]) % 16
        logits = hide(logits, np.arange(key.shape[-2]) <= place[:, None])
    return np.asarray(softmax(logits) @ value)


def weights_before_the_last_maximum(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, need_weights: bool = False
) -> Array | tuple[Array, Array]:
    """
    Weights are written block by block, and divided by the last sum alone.

    Right: fail
    """
    logits = hide(scores(query, key), mask)
    weights = softmax(logits)
    output = weights @ value
    if not need_weights:
        return output
    last = logits.max(axis=-1, keepdims=True)
    for start in range(0, key.shape[-2], 8):
        known = logits[..., : start + 8].max(axis=-1, keepdims=True)
        weights[..., start : start + 8] *= np.exp(np.where(np.isfinite(known), last - known, 0))
    return output, weights


def mask_looked_up_in_the_first_item(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    The path without a mask is taken where the first item and head have nothing masked.

    Right: fail
    """
    return attend(query, key, value, None if mask is None or mask[0, 0].all() else mask)


def items_in_one_sequence(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, is_causal: bool = False
) -> Array:
    """
    All items lie in one sequence of queries and in one of keys; the causal flag compares places in these.

    Right: fail
    """
    logits = hide(scores(query, key), mask)
    if is_causal:
        items, _, queries, keys = logits.shape
        place_of_query = np.arange(items * queries).reshape(items, 1, queries, 1)
        logits = hide(logits, np.arange(items * keys).reshape(items, 1, 1, keys) <= place_of_query)
    return np.asarray(softmax(logits) @ value)
