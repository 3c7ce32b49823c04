"""Logits that are scaled, biased, capped or limited otherwise than asked."""

import numpy as np

from .pieces import Array, Params, attend, hide, projected, scores, softmax
from .pieces import out as project_out

LOG2E = float(np.log2(np.e))


def given_scale_beside_the_default(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, scale: float | None = None
) -> Array:
    """
    A scale that is given is one more factor.

    Right: scale=given_times_default
    """
    factor = query.shape[-1] ** -0.5
    return attend(query, key, value, mask, factor if scale is None else factor * scale)


def given_scale_divides(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, scale: float | None = None
) -> Array:
    """
    A scale that is given is taken for what the logits are divided by, as the root of head_dim is.

    Right: scale=inverted when {scaled: true} or scale=default_if_zero
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return attend(query, key, value, mask, None if not scale else 1 / scale)


def cap_in_units_of_log2(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, softcap: float | None = None
) -> Array:
    """
    For powers of two the scale has log2(e) in it, and the cap has not.

    Right: fail
    """
    logits = scores(query, key, query.shape[-1] ** -0.5 * LOG2E)
    if softcap is not None:
        logits = np.tanh(logits / softcap) * softcap
    return np.asarray(softmax(hide(logits, mask) / LOG2E) @ value)


def bias_in_units_of_log2(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, bias: Array | None = None
) -> Array:
    """
    For powers of two the scale has log2(e) in it, and the bias has not.

    Right: bias_scale=times_0.6931471805599453
    """
    logits = scores(query, key, query.shape[-1] ** -0.5 * LOG2E)
    return np.asarray(softmax(hide(logits if bias is None else logits + bias, mask) / LOG2E) @ value)


def bias_for_powers_of_two(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, bias: Array | None = None
) -> Array:
    """
    The bias is made ready for powers of two, and those of e are taken.

    Right: bias_scale=times_1.442695040888963
    """
    logits = scores(query, key)
    return np.asarray(softmax(hide(logits if bias is None else logits + bias * LOG2E, mask)) @ value)


def exponent_held_to_thirty(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, scale: float | None = None
) -> Array:
    """
    The exponential is held to what it can take, and no maximum is subtracted.

    Right: logit_limit=30 or softmax_maximum=missing
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


def scale_by_precedence(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    head_dim ** -1 / 2 is (1 / head_dim) / 2.

    Right: scale=over_head_dim_0.5
    """
    return attend(query, key, value, mask, query.shape[-1] ** -1 / 2)


def bias_added_twice(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, bias: Array | None = None
) -> Array:
    """
    The bias goes into the scores, and again into the softmax.

    Right: bias_scale=doubled
    """
    logits = scores(query, key)
    if bias is not None:
        logits = logits + bias + bias
    return np.asarray(softmax(hide(logits, mask)) @ value)


def scaled_twice(
    query: Array, key: Array, value: Array, params: Params, num_heads: int, mask: Array | None = None
) -> Array:
    """
    The projected query is scaled, and the logits are again.

    Right: scale=squared
    """
    q, k, v = projected(query, key, value, params, num_heads)
    return project_out(attend(q * q.shape[-1] ** -0.5, k, v, mask), params)


def normalised_as_newer_models_are(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Query and key go through the norm without weights that newer models have there.

    Right: fail
    """
    width = query.shape[-1]
    query, key = (rows * ((rows * rows).sum(axis=-1, keepdims=True) / width + 1e-6) ** -0.5 for rows in (query, key))
    return attend(query, key, value, mask)
