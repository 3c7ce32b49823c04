"""The variance of weights . values, to first order (docs/tolerance.md, section 3, B), and the spread of the values."""

import numpy as np

from conformance.bounds.roundings import Roundings, ordered_sum, recursive_sum, variance
from conformance.bounds.rows import Rows, constant_slopes
from conformance.spec.problem import Array


def extremes(reachable: Array, values: Array) -> tuple[Array, Array]:
    """
    Return the largest and smallest value over the keys that some query of a head may attend, two (b, h, 1, e) arrays.

    Values that no query attends do not count, however large; 0 if nothing is attended.
    """
    keys = np.any(reachable, axis=2)[..., None]
    some = np.any(keys, axis=2, keepdims=True)
    top = np.where(keys, values, -np.inf).max(axis=2, keepdims=True)
    low = np.where(keys, values, np.inf).min(axis=2, keepdims=True)
    return np.where(some, top, 0.0), np.where(some, low, 0.0)


def spread(top: Array, low: Array) -> Array:
    """Return the range of the values, or the magnitude of the value if they are all equal."""
    return np.where(top > low, top - low, np.abs(top))


def farthest(top: Array, low: Array, context: Array) -> Array:
    """Return the distance between the context and the value farthest from it, max_j |V_j - o|, (b, h, q, e)."""
    distances: Array = np.maximum(np.maximum(top - context, context - low), 0.0)
    return distances


# Maximum number of elements of a temporary array; larger computations are split.
BLOCK = 2**18


def carried(rows: Rows, key: Array, values: Array, context: Array) -> Array:
    """
    Return core(V), (b, h, q, e): the variance of context = probs . values caused by errors of the weights.

    [(p^2 VE) V^2 - 2 o (p^2 VE) V + o^2 sum p^2 VE]+ = sum_j p^2 VE (V_j - o)^2, since an error common to all logits
    cancels; + the error of the query, shared by the keys of a row; + DEN o^2. If weights sum to one over the heads,
    nothing is sure to cancel: H (deviation |V|)^2, which also holds for the sum over the H heads.
    """
    if rows.deviation is not None:
        return np.asarray(rows.probs.shape[1] * (rows.deviation @ np.abs(values)) ** 2)
    errors = rows.probs**2 * rows.var_logit
    total = errors.sum(axis=-1, keepdims=True)
    centred = errors @ values**2 - 2.0 * context * (errors @ values) + context**2 * total
    moved: Array = np.maximum(centred, 0.0) + rows.var_sum * context**2
    if rows.var_query is None:
        return moved
    return moved + _shared(rows, rows.var_query, key, values)


def _shared(rows: Rows, var_query: Array, key: Array, values: Array) -> Array:
    """Compute sum_d vq_d (sum_j p_j (g_j k_j - kbar)_d V_j)^2, (b, h, q, e), a block of queries at a time."""
    batch, heads, queries, dim = var_query.shape
    keys, width = values.shape[-2:]
    step = max(1, BLOCK // (batch * heads * dim * max(keys, width)))
    features, values = key.swapaxes(-1, -2)[:, :, None], values[:, :, None]
    total: Array = np.empty((batch, heads, queries, width))
    for low in range(0, queries, step):
        part = slice(low, low + step)
        moving = features if rows.gain is None else features * rows.gain[:, :, part, None]
        centred = moving - rows.mean_key[:, :, part, :, None]
        centred *= rows.probs[:, :, part, None]
        moments = centred @ values
        total[:, :, part] = (var_query[:, :, part, None] @ moments**2)[..., 0, :]
    return total


def summed(rows: Rows, values: Array, var_value: Array, context: Array, rounds: Roundings) -> Array:
    """
    Return ind, (b, h, q, e): the variance of the sum itself.

    The larger of random and natural order of the keys, + (w(prob) + 2 w(mm)) p^2 V^2 + p^2 vv.
    """
    squares = rows.probs**2
    squares_values = squares @ values**2
    moved = np.maximum(
        recursive_sum(rows.terms, context, squares_values, rounds.acc),
        ordered_sum(rows.probs, values, squares_values, rounds.acc),
    )
    moved += (variance(rounds.prob) + 2.0 * variance(rounds.mm)) * squares_values
    return moved + squares @ var_value if np.any(var_value) else moved


def constants_error(rows: Rows, values: Array, rounds: Roundings) -> Array:
    """
    Return the error from inexact constants: 2 scale |sum_j p (a - sum p a) V_j|, (b, h, q, e); likewise for a softcap.

    An inexact 1/sqrt(d) changes all logits by the same factor, so the error is hard.
    """
    return np.asarray(rounds.scale * sum(count * np.abs(slope @ values) for count, slope in constant_slopes(rows)))
