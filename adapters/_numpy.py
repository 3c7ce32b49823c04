"""
Attention as a plain loop in the dtype of its arrays, shared by numpy.sdpa and numpy.mha.

One query at a time, and only over the keys that it attends; every sum runs from first to last term. It is written
from the formula and shares nothing with the oracle, so that each can find the other's mistakes.
"""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def products(left: Array, right: Array) -> Array:
    """The vector `left` times the matrix `right`, summed from the first row of `right` to the last."""
    total = np.zeros(right.shape[1], right.dtype)
    for number, row in zip(left, right, strict=True):
        total = total + number * row
    return total


def linear(rows: Array, weight: Array, bias: Array | None) -> Array:
    """Each row times `weight` (in, out), plus `bias`."""
    flat = np.stack([products(row, weight) for row in rows.reshape(-1, rows.shape[-1])])
    result = flat.reshape(*rows.shape[:-1], weight.shape[1])
    return result if bias is None else result + bias


def softmax(logits: Array) -> Array:
    """Weights from the logits of one query."""
    exponentials = np.exp(logits - logits.max())
    total = logits.dtype.type(0)
    for number in exponentials:
        total = total + number
    return np.asarray(exponentials / total)


def attend(
    query: Array,
    key: Array,
    value: Array,
    scale: float | None,
    mask: Array | None,
    causal: int | None,
    softcap: float | None = None,
) -> Any:
    """
    Output and weights of (batch, num_heads, seq_len, head_dim) arrays.

    mask: (batch, num_heads, seq_len_q, seq_len_k), True = attend, or floats to be added. causal: a query sees so many
    keys after the one of its own number, None is all. A query that attends nothing gets zeros.
    """
    batch, heads, queries, width = query.shape
    kv_heads, keys = key.shape[1:3]
    factor = query.dtype.type(1 / width**0.5 if scale is None else scale)
    output = np.zeros((batch, heads, queries, value.shape[-1]), query.dtype)
    weights = np.zeros((batch, heads, queries, keys), query.dtype)
    for b, h, i in np.ndindex(batch, heads, queries):
        g = h * kv_heads // heads
        seen = np.ones(keys, bool)
        if mask is not None:
            seen &= mask[b, h, i] if mask.dtype == bool else mask[b, h, i] != -np.inf
        if causal is not None:
            seen &= np.arange(keys) <= i + causal
        if not seen.any():
            continue
        logits = products(query[b, h, i], key[b, g, seen].T) * factor
        if softcap is not None:
            cap = logits.dtype.type(softcap)
            logits = cap * np.tanh(logits / cap)
        if mask is not None and mask.dtype != bool:
            logits = logits + mask[b, h, i, seen]
        weights[b, h, i, seen] = softmax(logits)
        output[b, h, i] = products(weights[b, h, i, seen], value[b, g, seen])
    return output, weights


def reply(found: dict[str, Array], outputs: tuple[str, ...]) -> dict[str, Array]:
    """What was asked for, of an output, its weights and whatever else was found."""
    weights = found["weights"]
    found["weights_mean"] = weights.mean(axis=1, dtype=weights.dtype)
    return {name: found[name] for name in outputs}
