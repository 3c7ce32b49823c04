"""Attention in plain NumPy, as a user would write it, in pieces: each bug beside it exchanges one."""

from collections.abc import Mapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Params = Mapping[str, Array | None]


def softmax(logits: Array, axis: int | tuple[int, ...] = -1) -> Array:
    """Rows in which nothing is left are zero."""
    peak = logits.max(axis=axis, keepdims=True)
    weights = np.exp(logits - np.where(np.isfinite(peak), peak, 0))
    total = weights.sum(axis=axis, keepdims=True)
    return np.asarray(weights / np.where(total == 0, 1, total))


def scores(query: Array, key: Array, scale: float | None = None) -> Array:
    """(batch, num_heads, seq_len_q, seq_len_k)."""
    return np.asarray(query @ key.swapaxes(-1, -2) * (query.shape[-1] ** -0.5 if scale is None else scale))


def hide(logits: Array, mask: Array | None, fill: float = -np.inf) -> Array:
    """True = attend."""
    return logits if mask is None else np.where(mask, logits, np.asarray(fill, logits.dtype))


def past(logits: Array, offset: int = 0) -> Array:
    """Query i sees keys 0 to i + offset."""
    queries, keys = logits.shape[-2:]
    return np.asarray(np.tri(queries, keys, offset, dtype=bool))


def attend(query: Array, key: Array, value: Array, mask: Array | None = None, scale: float | None = None) -> Array:
    """All of it, right."""
    return np.asarray(softmax(hide(scores(query, key, scale), mask)) @ value)


def linear(rows: Array, weight: Array | None, bias: Array | None) -> Array:
    """Rows times weight, plus bias."""
    assert weight is not None
    return np.asarray(rows @ weight if bias is None else rows @ weight + bias)


def split(rows: Array, num_heads: int) -> Array:
    """(batch, seq_len, num_heads * dim) to (batch, num_heads, seq_len, dim)."""
    batch, length, width = rows.shape
    return rows.reshape(batch, length, num_heads, width // num_heads).transpose(0, 2, 1, 3)


def merge(heads: Array) -> Array:
    """And back."""
    batch, count, length, dim = heads.shape
    return heads.transpose(0, 2, 1, 3).reshape(batch, length, count * dim)


def projected(query: Array, key: Array, value: Array, params: Params, num_heads: int) -> tuple[Array, Array, Array]:
    """Query, key and value, projected and split."""
    return (
        split(linear(query, params["wq"], params["bq"]), num_heads),
        split(linear(key, params["wk"], params["bk"]), num_heads),
        split(linear(value, params["wv"], params["bv"]), num_heads),
    )


def out(heads: Array, params: Params) -> Array:
    """Merged and projected."""
    return linear(merge(heads), params["wo"], params["bo"])
