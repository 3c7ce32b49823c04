"""
Attention as a plain loop in the dtype of its arrays, shared by numpy.sdpa and numpy.mha.

The loop takes one query at a time, and only the keys that this query attends. Every sum runs from the first term to
the last. The code is written from the formula and shares nothing with the oracle, so that each can find the other's
mistakes.
"""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def products(left: Array, right: Array) -> Array:
    """Return the vector `left` times the matrix `right`, summed from the first row of `right` to the last."""
    total = np.zeros(right.shape[1], right.dtype)
    for number, row in zip(left, right, strict=True):
        total = total + number * row
    return total


def linear(rows: Array, weight: Array, bias: Array | None) -> Array:
    """Return each row times `weight` (in, out), plus `bias`."""
    flat = np.stack([products(row, weight) for row in rows.reshape(-1, rows.shape[-1])])
    result = flat.reshape(*rows.shape[:-1], weight.shape[1])
    return result if bias is None else result + bias


def softmax(logits: Array) -> Array:
    """Return the weights from the logits of one query."""
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
    Return the output and the weights for arrays (batch, num_heads, seq_len, head_dim).

    mask: (batch, num_heads, seq_len_q, seq_len_k); True means attend, and floats are added to the logits. causal:
    query i attends no key after key i + causal; None means that there is no causal mask. The output and the weights of
    a fully masked row are zero.
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
    """Add the mean of the weights over the heads to `found`, and return the requested outputs."""
    weights = found["weights"]
    found["weights_mean"] = weights.mean(axis=1, dtype=weights.dtype)
    return {name: found[name] for name in outputs}
