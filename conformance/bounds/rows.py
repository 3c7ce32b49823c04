"""
The rows of a softmax, the variance of their weights, and that of weights . values, to first order.

The formulas are in docs/tolerance.md, section 3, B.
"""

from dataclasses import dataclass

import numpy as np

from conformance.bounds.bound import SIGMAS
from conformance.bounds.roundings import (
    Operands,
    Roundings,
    capped_variance,
    finite,
    ordered_sum,
    recursive_sum,
    slope,
    squared,
    variance,
)
from conformance.reference.steps import State
from conformance.spec.problem import Array

# Maximum argument of exponentials; no weight changes by such a factor.
MAX_LOGARITHM = 300.0


@dataclass(frozen=True)
class Softmax:
    """
    How weights were normalised.

    axis: axis of the logits along which they sum to one (1 is heads, -1 is keys). raw: whether no maximum was
    subtracted.
    """

    axis: int = -1
    raw: bool = False


ORDINARY = Softmax()


@dataclass(frozen=True, eq=False)
class Rows:
    """
    The softmax rows, from which the bounds of output and weights are derived.

    probs (b, h, q, k): weights, with NaN rows as 0. reachable (b, h, q, k): keys that may receive weight. live:
    reachable keys whose logits have errors (not in an absorbed row, not under a finite fill, which the oracle rounded).
    scaled, capped, logits: those of live keys, else 0. gain: derivative of capped by scaled, None without a softcap.
    distance: largest logit - logit. exp_error: error of exp in units of `soft`, exp_ulp + 2 |x| for the argument x; 0
    in an absorbed row, where every exponential is 1. terms (b, h, q, 1): number of keys with weight. mean_key (b, h, q,
    d): (probs gain) . key. var_logit (b, h, q, k): VE, without the part that all keys of a row share. var_query (b, h,
    q, d): that part, c^2 times the variance of the query, or None if it is zero. var_sum: DEN (b, h, q, 1). lost (b, h,
    q, k): possible loss of a weight by underflow. axis: the axis along which weights sum to one. deviation (b, h, q,
    k): standard deviation of a weight if that is not the axis of keys (`derivation`), else None.
    """

    probs: Array
    reachable: Array
    live: Array
    scaled: Array
    capped: Array
    gain: Array | None
    logits: Array
    distance: Array
    exp_error: Array
    terms: Array
    mean_key: Array
    var_logit: Array
    var_query: Array | None
    var_sum: Array
    lost: Array
    axis: int
    deviation: Array | None = None


def rows(state: State, operands: Operands, rounds: Roundings, known: Array, rounded: Array, kind: Softmax) -> Rows:
    """Return the softmax rows of `state`; `known` and `rounded` are as in `fills.Filling`."""
    probs = np.where(np.isfinite(state.probs), state.probs, 0.0)
    weighty = probs > 0.0
    reachable = _reachable(state, weighty)
    live = reachable & ~known
    scaled = np.where(live, state.scaled, 0.0)
    gain = slope(state)
    capped = scaled if gain is None else np.where(live, state.capped, 0.0)
    logits = np.where(live, state.logits, 0.0)
    distance = _distance(state.logits, reachable, kind.axis)
    terms = weighty.sum(axis=-1, keepdims=True, dtype=np.float64)
    mean_key = (probs if gain is None else probs * gain) @ operands.key
    var_query = (state.scale**2) * squared(operands.query, operands.var_query, rounds)
    argument = np.abs(logits) if kind.raw else distance
    exp_error = np.where(state.absorbed[..., None], 0.0, rounds.exp_ulp + 2.0 * argument)
    var_logit = _var_logit(state, operands, rounds, rounded, scaled, capped, gain, logits)
    var_exp = variance(rounds.soft) * exp_error**2
    squares = (probs**2).sum(axis=-1, keepdims=True)
    var_sum = recursive_sum(terms, np.ones(1), squares, rounds.sum) + 2.0 * variance(rounds.soft)
    lost = rounds.eta_prob * (probs < rounds.tiny_prob) + rounds.eta_soft * (probs < rounds.tiny_soft)
    return Rows(
        probs=probs,
        reachable=reachable,
        live=live,
        scaled=scaled,
        capped=capped,
        gain=gain,
        logits=logits,
        distance=distance,
        exp_error=exp_error,
        terms=terms,
        mean_key=mean_key,
        var_logit=np.where(weighty, _reaching(np.where(live, var_logit, 0.0) + var_exp, probs), 0.0),
        var_query=np.where(live.any(axis=-1, keepdims=True), var_query, 0.0) if np.any(var_query > 0.0) else None,
        var_sum=np.where(terms > 0, var_sum, 0.0),
        lost=np.where(reachable, lost, 0.0),
        axis=kind.axis,
    )


def _reaching(variances: Array, probs: Array) -> Array:
    """
    Enlarge variances so that SIGMAS standard deviations cover the nonlinear effect of a logit error on its weight.

    Use (e^(8 sd) - 1)^2 / 64 instead of sd^2: equal for small errors, larger if the error of a logit is not small
    against 1 (half precision, large logits). A weight changes by at most 1.
    """
    reach = np.expm1(np.minimum(SIGMAS * np.sqrt(variances), MAX_LOGARITHM))
    return np.asarray((np.minimum(reach, 1.0 / np.maximum(probs, np.finfo(np.float64).tiny)) / SIGMAS) ** 2)


def _reachable(state: State, weighty: Array) -> Array:
    """Return the keys that may receive weight: attended, or with weight in spite of the mask (fills, unmasked rows)."""
    attended = state.allowed & (state.logits > -np.inf)
    attended &= ~np.isnan(state.probs)
    return np.asarray(attended | weighty)


def _distance(logits: Array, reachable: Array, axis: int) -> Array:
    """Return x = largest logit along the axis - logit, (b, h, q, k); 0 where there is no logit."""
    known = reachable & np.isfinite(logits)
    top = np.where(known, logits, -np.inf).max(axis=axis, keepdims=True)
    return np.where(known, top - np.where(known, logits, 0.0), 0.0)


def _var_logit(
    state: State,
    operands: Operands,
    rounds: Roundings,
    rounded: Array,
    scaled: Array,
    capped: Array,
    gain: Array | None,
    logits: Array,
) -> Array:
    """
    Return the variance of live logits, (b, h, q, k): VE without its last term, that of exp.

    D(d, a, c^2 q^2 k^2, acc) + c^2 q^2 vk + w(score) (2 a^2 + [bias] s^2), with a softcap before the bias
    (`capped_variance`). The bias itself has an error if inputs are rounded on entry. `rounded` counts roundings of s
    under a finite fill.
    """
    variances: Array = var_scaled(state, operands, rounds, scaled)
    if gain is not None:
        variances = capped_variance(variances, scaled, capped, gain, rounds)
    sums = rounded + (state.bias is not None)
    variances = variances + variance(rounds.score) * sums * logits**2
    if rounds.entry and state.bias is not None:
        variances = variances + variance(rounds.entry) * finite(state.bias) ** 2
    return variances


def var_scaled(state: State, operands: Operands, rounds: Roundings, scaled: Array) -> Array:
    """Return the variance of scaled products, (b, h, q, k), without the error of the query, shared in a row."""
    squares = operands.query**2
    variances: Array = recursive_sum(
        state.problem.head_dim,
        scaled,
        (state.scale**2) * (squares @ (operands.key**2).swapaxes(-1, -2)),
        rounds.acc,
    )
    var_key = squared(operands.key, operands.var_key, rounds)
    if np.any(var_key):
        var_key = np.broadcast_to(var_key, operands.key.shape)
        variances = variances + (state.scale**2) * (squares @ var_key.swapaxes(-1, -2))
    return np.asarray(variances + 2.0 * variance(rounds.score) * scaled**2)


def constant_slopes(attended: Rows) -> tuple[tuple[float, Array], ...]:
    """
    Return for each constant shared by all logits: its error in units of `scale`, and the derivative of the weights.

    The scale is rounded twice and changes a logit by a, so a weight by p (a - sum p a), (b, h, q, k). With a softcap
    the change of a logit is g a; the 1 / C inside the cap also changes it by g a, the C outside by z.
    """
    if attended.gain is None:
        return ((2.0, _centred(attended, attended.scaled)),)
    inner = _centred(attended, attended.gain * attended.scaled)
    return ((3.0, inner), (1.0, _centred(attended, attended.capped)))


def _centred(attended: Rows, moved: Array) -> Array:
    weighted: Array = attended.probs * moved
    return np.asarray(weighted - attended.probs * weighted.sum(axis=attended.axis, keepdims=True))


def constant_error(attended: Rows, rounds: Roundings) -> Array:
    """Return the maximum change of the weights by inexact constants, (b, h, q, k)."""
    return np.asarray(rounds.scale * sum(count * np.abs(slope) for count, slope in constant_slopes(attended)))


def weights_deviation(attended: Rows, operands: Operands) -> Array:
    """
    Standard deviation of the weights, p sqrt((1 - 2p) VE + sum_j p^2 VE + DEN + [vq k^2 - 2 (vq kbar) k + vq kbar^2]).

    Shape (b, h, q, k). The last term is the error of the query, shared by all keys of a row; vq already holds c^2.
    """
    if attended.deviation is not None:
        return attended.deviation
    probs, variances = attended.probs, attended.var_logit
    total = (probs**2 * variances).sum(axis=-1, keepdims=True)
    relative = (1.0 - 2.0 * probs) * variances + total + attended.var_sum
    if attended.var_query is not None:
        relative = relative + np.where(attended.live, _shared(attended, attended.var_query, operands), 0.0)
    return np.asarray(probs * np.sqrt(np.maximum(relative, 0.0)))


def _shared(attended: Rows, var_query: Array, operands: Operands) -> Array:
    """Compute sum_d vq (g k - kbar)^2, (b, h, q, k), by matrix products."""
    keys = operands.key.swapaxes(-1, -2)
    drift = var_query * attended.mean_key
    total = (drift * attended.mean_key).sum(axis=-1, keepdims=True)
    own, cross = var_query @ keys**2, drift @ keys
    if attended.gain is not None:
        own, cross = own * attended.gain**2, cross * attended.gain
    return np.asarray(np.maximum(own - 2.0 * cross + total, 0.0))


def weights_hard(attended: Rows, rounds: Roundings, store: float, eta: float) -> Array:
    """
    Return the roundings that do not average out.

    h_p = p (prob + [store != prob] store) + 2 scale p |a - sum p a| + lost + eta. The second term is
    summed over all constants (`constant_slopes`). store, eta: those of the result.
    """
    stored_again = store if store != rounds.prob else 0.0
    roundings = attended.probs * (rounds.prob + stored_again)
    return roundings + constant_error(attended, rounds) + attended.lost + np.where(attended.reachable, eta, 0.0)


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
    return moved + _shared_variance(rows, rows.var_query, key, values)


def _shared_variance(rows: Rows, var_query: Array, key: Array, values: Array) -> Array:
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
