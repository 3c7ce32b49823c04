"""NumPy in other layouts and under other names."""

import numpy as np

RIGHT = ("heads_last", "time_first", "other_names")
WRONG = {
    "mask_ignored": "ignores",
    "small_fill": "-10",
    "double_scale": "scale",
}


def _weights(logits):
    peak = logits.max(axis=-1, keepdims=True)
    raised = np.exp(logits - np.where(np.isfinite(peak), peak, 0))
    total = raised.sum(axis=-1, keepdims=True)
    return raised / np.where(total == 0, 1, total)


def heads_last(queries, keys, values, allowed=None):
    queries, keys, values = (each.transpose(0, 2, 1, 3) for each in (queries, keys, values))
    logits = queries @ keys.swapaxes(-1, -2) * queries.shape[-1] ** -0.5
    if allowed is not None:
        logits = np.where(allowed, logits, -np.inf)
    return (_weights(logits) @ values).transpose(0, 2, 1, 3)


def time_first(q, k, v, attn_mask=None, attn_bias=None, causal=False):
    q, k, v = (each.transpose(1, 2, 0, 3) for each in (q, k, v))
    logits = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]).astype(q.dtype)
    if attn_mask is not None:
        logits = np.where(attn_mask, logits, -np.inf)
    if attn_bias is not None:
        logits = logits + attn_bias
    if causal:
        logits = np.where(np.tri(*logits.shape[-2:], dtype=bool), logits, -np.inf)
    return (_weights(logits) @ v).transpose(2, 0, 1, 3)


def other_names(K, V, Q, M=None):
    logits = Q @ K.swapaxes(-1, -2) * Q.shape[-1] ** -0.5
    if M is not None:
        logits = np.where(M, logits, -np.inf)
    return _weights(logits) @ V


def mask_ignored(query, key, value, attention_mask=None):
    return _weights(query @ key.swapaxes(-1, -2) * query.shape[-1] ** -0.5) @ value


def small_fill(q, k, v, mask=None):
    logits = np.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
    if mask is not None:
        logits = np.where(mask, logits, np.asarray(-10.0, q.dtype))
    return np.einsum("bhqk,bkhd->bqhd", _weights(logits).astype(q.dtype), v)


def double_scale(q, k, v, mask=None):
    logits = (q * q.shape[-1] ** -0.5) @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
    if mask is not None:
        logits = np.where(mask, logits, -np.inf)
    return _weights(logits) @ v
