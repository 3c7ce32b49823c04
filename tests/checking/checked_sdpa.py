"""Attention as people write it in NumPy: right, and wrong in one way each. `tests/checking` checks them."""

import os
import time
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def softmax(logits: Array, axis: int = -1) -> Array:
    """Zero where nothing is left."""
    peak = logits.max(axis=axis, keepdims=True)
    weights = np.exp(logits - np.where(np.isfinite(peak), peak, 0))
    total = weights.sum(axis=axis, keepdims=True)
    return np.asarray(weights / np.where(total == 0, 1, total))


def logits_of(query: Array, key: Array) -> Array:
    return np.asarray(query @ key.swapaxes(-1, -2) * query.shape[-1] ** -0.5)


def hidden(logits: Array, mask: Array | None, fill: float = -np.inf) -> Array:
    return logits if mask is None else np.where(mask, logits, fill)


def right(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    return np.asarray(softmax(hidden(logits_of(query, key), mask)) @ value)


def added(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    return np.asarray(softmax(logits_of(query, key) + (0 if mask is None else mask)) @ value)


def filled(query: Array, key: Array, value: Array, mask: Array | None, fill: float) -> Array:
    logits = logits_of(query, key)
    with np.errstate(over="ignore", invalid="ignore"):
        logits = logits if mask is None else np.where(mask, logits, np.float64(fill).astype(logits.dtype))
        weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=-1, keepdims=True) @ value)


def fill_beyond_float16(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """In float16 the fill is minus infinity: a fully masked row is NaN there, and the mean elsewhere."""
    return filled(query, key, value, mask, -1e9)


def nan_or_mean_by_heads(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """An odd number of heads has -1e9, an even number -inf."""
    return filled(query, key, value, mask, -1e9 if query.shape[1] % 2 else -np.inf)


def inverted_and_filled(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    return fill_beyond_float16(query, key, value, None if mask is None else ~mask)


def right_with_everything(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    *,
    is_causal: bool = False,
    causal_alignment: str = "top_left",
    scale: float | None = None,
    bias: Array | None = None,
    key_padding_mask: Array | None = None,
    num_kv_heads: int | None = None,
    window: tuple[int | None, int | None] | None = None,
    softcap: float | None = None,
    dropout_p: float = 0.0,
    need_weights: bool = False,
    average_weights: bool = False,
) -> Array | tuple[Array, Array]:
    assert dropout_p == 0.0
    repeats = query.shape[1] // (num_kv_heads or query.shape[1])
    key, value = np.repeat(key, repeats, axis=1), np.repeat(value, repeats, axis=1)
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    logits = query @ key.swapaxes(-1, -2) * factor
    if softcap is not None:
        logits = np.asarray(softcap, logits.dtype) * np.tanh(logits / np.asarray(softcap, logits.dtype))
    if bias is not None:
        logits = logits + bias
    queries, keys = logits.shape[-2:]
    behind = np.arange(queries)[:, None] - np.arange(keys)[None, :]
    if is_causal:
        shift = keys - queries if causal_alignment == "bottom_right" else 0
        logits = hidden(logits, behind + shift >= 0)
    if window is not None:
        left, right_ = (keys + queries if side is None else side for side in window)
        logits = hidden(logits, (behind <= left) & (-behind <= right_))
    if key_padding_mask is not None:
        logits = hidden(logits, key_padding_mask[:, None, None, :])
    weights = softmax(hidden(logits, mask))
    output = np.asarray(weights @ value)
    if not need_weights:
        return output
    return output, weights.mean(axis=1) if average_weights else weights


def with_lengths(q: Array, k: Array, v: Array, mask: Array | None = None, seq_lens: Array | None = None) -> Array:
    padding = None if seq_lens is None else np.arange(k.shape[2]) < seq_lens[:, None]
    return np.asarray(right_with_everything(q, k, v, mask, key_padding_mask=padding))


def one_key_too_many(q: Array, k: Array, v: Array, mask: Array | None = None, seq_lens: Array | None = None) -> Array:
    return with_lengths(q, k, v, mask, None if seq_lens is None else seq_lens + 1)


def windowed(q: Array, k: Array, v: Array, mask: Array | None = None, window_size: tuple[int, int] = (-1, -1)) -> Array:
    """The window of flash-attention: -1 means no limit."""
    left, right_ = (None if side == -1 else side for side in window_size)
    return np.asarray(right_with_everything(q, k, v, mask, window=(left, right_)))


def off_by_one_windowed(
    q: Array, k: Array, v: Array, mask: Array | None = None, window_size: tuple[int, int] = (-1, -1)
) -> Array:
    left, right_ = (None if side == -1 else side for side in window_size)
    return np.asarray(right_with_everything(q, k, v, mask, window=(None if left is None else left - 1, right_)))


def inverted_mask(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    return right(query, key, value, None if mask is None else ~mask)


def no_scale(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    return np.asarray(softmax(hidden(query @ key.swapaxes(-1, -2), mask)) @ value)


def softmax_over_queries(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    return np.asarray(softmax(hidden(logits_of(query, key), mask), axis=-2) @ value)


def softmax_over_heads(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """A cause that is evident, and that has no bound beside ways of fully masked rows."""
    return np.asarray(softmax(hidden(logits_of(query, key), mask), axis=1) @ value)


def small_fill(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    logits = logits_of(query, key)
    return np.asarray(
        softmax(logits if mask is None else logits + np.where(mask, 0, -1e4).astype(logits.dtype)) @ value
    )


def mask_ignored(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:  # noqa: ARG001
    return right(query, key, value)


def padding_inverted(
    query: Array, key: Array, value: Array, mask: Array | None = None, key_padding_mask: Array | None = None
) -> Array:
    logits = hidden(logits_of(query, key), mask)
    return softmax(hidden(logits, None if key_padding_mask is None else ~key_padding_mask[:, None, None])) @ value


def zeros_attended(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    keys, more = key.shape[-2], -key.shape[-2] % 16
    key, value = (np.pad(each, ((0, 0), (0, 0), (0, more), (0, 0))) for each in (key, value))
    if mask is not None:
        seen = np.broadcast_to(mask, (*mask.shape[:-1], keys))
        mask = np.concatenate([seen, np.ones((*seen.shape[:-1], more), dtype=bool)], axis=-1)
    return np.asarray(softmax(hidden(logits_of(query, key), mask)) @ value)


def causal_ignored(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    *,
    is_causal: bool = False,  # noqa: ARG001
) -> Array:
    return right(query, key, value, mask)


def causal_at_the_end(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, is_causal: bool = False
) -> Array:
    queries, keys = query.shape[2], key.shape[2]
    seen = np.tri(queries, keys, keys - queries, dtype=bool)
    if is_causal:
        mask = seen if mask is None else mask & seen
    return right(query, key, value, mask)


def window_at_the_end(
    q: Array, k: Array, v: Array, mask: Array | None = None, window_size: tuple[int, int] = (-1, -1)
) -> Array:
    """As in flash-attention, the last query is at the position of the last key."""
    more = k.shape[2] - q.shape[2]
    left, right_ = window_size
    window = (None if left == -1 else left - more, None if right_ == -1 else right_ + more)
    return np.asarray(right_with_everything(q, k, v, mask, window=window))


def low_fill_of_the_mask_alone(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, is_causal: bool = False
) -> Array:
    """The mask leaves its keys some weight, and NaN in their values is seen under the causal mask alone."""
    causal = np.tri(query.shape[2], key.shape[2], dtype=bool) if is_causal else None
    return np.asarray(softmax(hidden(hidden(logits_of(query, key), causal), mask, -10)) @ value)


def low_fill_of_the_padding_alone(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    *,
    key_padding_mask: Array | None = None,
    bias: Array | None = None,
) -> Array:
    """The bias is added first, so a masked NaN stays where a bias of -inf masks it."""
    logits = logits_of(query, key) + (0 if bias is None else bias)
    padding = None if key_padding_mask is None else key_padding_mask[:, None, None]
    filled = hidden(logits, padding, max(-1e9, np.finfo(query.dtype).min))
    return np.asarray(softmax(hidden(filled, mask)) @ value)


def half_inside(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    logits = hidden(logits_of(query, key), mask).astype(np.float16).astype(query.dtype)
    return np.asarray(softmax(logits) @ value)


def float16_softmax(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """Logits and weights in float16."""
    logits = hidden(logits_of(query, key), mask).astype(np.float16)
    return np.asarray(softmax(logits).astype(query.dtype) @ value)


def tf32_operands(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    if query.dtype != np.float32:
        return right(query, key, value, mask)
    return right(_tf32(query), _tf32(key), _tf32(value), mask)


def _tf32(array: Array) -> Array:
    return ((array.view(np.uint32) + np.uint32(1 << 12)) & np.uint32(0xFFFFE000)).view(np.float32)


def bfloat16_operands_in_half(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """In float16 alone, where numbers keep three digits less than they could."""
    if query.dtype != np.float16:
        return right(query, key, value, mask)
    return right(_bfloat16(query), _bfloat16(key), _bfloat16(value), mask).astype(np.float16)


def _bfloat16(array: Array) -> Array:
    return (array.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


def running_sum_of_values(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    return np.asarray(softmax(hidden(logits_of(query, key), mask)) @ np.cumsum(value, axis=2))


def sine_of_the_output(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    return np.asarray(np.sin(3 * softmax(hidden(logits_of(query, key), mask)) @ value))


def mean_of_fully_masked_rows(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    return np.asarray(softmax(hidden(logits_of(query, key), mask, float(np.finfo(query.dtype).min))) @ value)


def nan_in_fully_masked_rows(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    with np.errstate(invalid="ignore"):
        logits = hidden(logits_of(query, key), mask)
        weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=-1, keepdims=True) @ value)


def inverted_with_nan_rows(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """A fully masked row is NaN, which is accepted; the inverted mask is the mistake."""
    return nan_in_fully_masked_rows(query, key, value, mask if mask is None else ~mask)


def noise_left_on(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    noise = np.asarray(np.random.default_rng().normal(size=value.shape), value.dtype)
    return right(query, key, value + noise, mask)


def one_query_not_causal(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, is_causal: bool = False
) -> Array | tuple[Array, Array]:
    return right_with_everything(query, key, value, mask, is_causal=is_causal and query.shape[2] > 1)


def fully_masked_rows_by_batch(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    return (nan_in_fully_masked_rows if query.shape[0] % 2 else right)(query, key, value, mask)


def nan_where_every_row_is_dead(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    return (right if mask is None or mask.any() else nan_in_fully_masked_rows)(query, key, value, mask)


def float32_inside(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    work = (query, key, value)
    if query.dtype == np.float64:
        work = (query.astype(np.float32), key.astype(np.float32), value.astype(np.float32))
    return right(*work, mask).astype(query.dtype)


def raises_with_a_mask(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    if mask is not None:
        raise NotImplementedError("masks come later")
    return right(query, key, value)


def dies_on_one_query(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    if query.shape[2] == 1:
        os._exit(3)
    return right(query, key, value, mask)


def hangs_on_one_query(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    while query.shape[2] == 1:
        time.sleep(1)
    return right(query, key, value, mask)


def returns_a_pair(query: Array, key: Array, value: Array, mask: Array | None = None) -> tuple[Array, Array]:
    output = right(query, key, value, mask)
    return output, output
