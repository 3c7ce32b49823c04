"""What a grader planted and the table had no word for: limits of their own, positions without a sign, tiles skipped."""

import numpy as np

from .pieces import Array, scores, softmax


def exponent_held_to_thirty(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, scale: float | None = None
) -> Array:
    """
    The exponential is held to what it can take, and no maximum is subtracted.

    Right: logit_limit=30
    """
    powers = np.exp(np.minimum(np.maximum(scores(query, key, scale), -30), 30))
    kept = powers if mask is None else np.where(mask, powers, 0)
    total = kept.sum(axis=-1, keepdims=True)
    return np.asarray((kept / np.where(total == 0, 1, total)) @ value)


def biased_logits_clamped(query: Array, key: Array, value: Array, bias: Array | None = None) -> Array:
    """
    Clamped after the bias is added: where there is none, or a small one, it is the same as before.

    Right: logit_limit=100_after_bias or logit_limit=100
    """
    logits = scores(query, key)
    hidden = False if bias is None else bias == -np.inf
    clamped = np.clip(logits if bias is None else logits + bias, -100, 100)
    return np.asarray(softmax(np.where(hidden, -np.inf, clamped)) @ value, query.dtype)
