"""Multi-head attention as people write it in NumPy: right, and wrong in one way each. `tests/checking` checks them."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Params = Mapping[str, Array]
Split = Callable[[Array, int], Array]


def linear(rows: Array, weight: Array, bias: Array | None) -> Array:
    return np.asarray(rows @ weight if bias is None else rows @ weight + bias)


def split(rows: Array, heads: int) -> Array:
    batch, length, width = rows.shape
    return rows.reshape(batch, length, heads, width // heads).transpose(0, 2, 1, 3)


def split_interleaved(rows: Array, heads: int) -> Array:
    batch, length, width = rows.shape
    return rows.reshape(batch, length, width // heads, heads).transpose(0, 3, 1, 2)


def attend(query: Array, key: Array, value: Array, mask: Array | None) -> Array:
    logits = query @ key.swapaxes(-1, -2) * query.shape[-1] ** -0.5
    if mask is not None:
        logits = np.where(mask, logits, -np.inf)
    peak = logits.max(axis=-1, keepdims=True)
    weights = np.exp(logits - np.where(np.isfinite(peak), peak, 0))
    total = weights.sum(axis=-1, keepdims=True)
    return np.asarray(weights / np.where(total == 0, 1, total) @ value)


def merged(heads: Array) -> Array:
    batch, count, length, dim = heads.shape
    return heads.transpose(0, 2, 1, 3).reshape(batch, length, count * dim)


def _mha(arrays: tuple[Array, Array, Array], params: Params, heads: int, mask: Array | None, split_by: Split) -> Array:
    q, k, v = (
        split_by(linear(rows, params["w" + letter], params["b" + letter]), heads)
        for letter, rows in zip("qkv", arrays, strict=True)
    )
    return linear(merged(attend(q, k, v, mask)), params["wo"], params["bo"])


def right(query: Array, key: Array, value: Array, params: Params, num_heads: int, mask: Array | None = None) -> Array:
    return _mha((query, key, value), params, num_heads, mask, split)


def heads_interleaved(
    query: Array, key: Array, value: Array, params: Params, num_heads: int, mask: Array | None = None
) -> Array:
    return _mha((query, key, value), params, num_heads, mask, split_interleaved)


def inverted_mask(
    query: Array, key: Array, value: Array, params: Params, num_heads: int, mask: Array | None = None
) -> Array:
    return _mha((query, key, value), params, num_heads, None if mask is None else ~mask, split)


def attend_filled(query: Array, key: Array, value: Array, mask: Array | None) -> Array:
    logits = query @ key.swapaxes(-1, -2) * query.shape[-1] ** -0.5
    if mask is not None:
        logits = np.where(mask, np.asarray(-1e9, logits.dtype), logits)
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True) @ value)


def inverted_mask_with_a_finite_fill(
    query: Array, key: Array, value: Array, params: Params, num_heads: int, mask: Array | None = None
) -> Array:
    rows = zip("qkv", (query, key, value), strict=True)
    q, k, v = (split(linear(array, params["w" + letter], params["b" + letter]), num_heads) for letter, array in rows)
    return linear(merged(attend_filled(q, k, v, mask)), params["wo"], params["bo"])
