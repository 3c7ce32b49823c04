"""
Errors that no implementation of the declared arithmetic can exceed (docs/tolerance.md, section 3, A).

The bound is not linear in the errors of the logits, so it holds for logits of any size: it is limited by the range of
the values.
"""

from dataclasses import dataclass

import numpy as np

from conformance.bounds.operands import Operands, finite, sized
from conformance.bounds.roundings import Roundings, gamma, worst_capped
from conformance.bounds.rows import BLOCK, Rows
from conformance.reference.steps import State
from conformance.spec.problem import Array

# Maximum argument of exponentials; nothing that large is judged.
HUGE = 600.0


@dataclass(frozen=True, eq=False)
class Worst:
    """
    The common part of the worst cases of output and weights, shapes as in `Rows`.

    gain: p (e^rho - 1). loss: p (1 - e^-rho). denominator (b, h, q, 1): relative error of the sum of exponentials.
    """

    gain: Array
    loss: Array
    denominator: Array


def magnitudes(operands: Operands) -> Array:
    """Return G = |q| |k|, (b, h, q, k): the maximum magnitude of a partial sum of a product."""
    return np.asarray(np.abs(operands.query) @ np.abs(operands.key).swapaxes(-1, -2))


def logit_error(state: State, operands: Operands, rounds: Roundings, sizes: Array) -> Array:
    """
    Return the maximum error of a logit before a finite fill is added: ds, (b, h, q, k).

    c (gamma_d G + eq (|k| + ek) + |q| ek) + 2 (score + scale) |a| + [bias] (score |s| + entry |bias|) + 4 eta. A
    softcap changes the error before the bias (`worst_capped`). sizes: G.
    """
    error = capped_error(state, operands, rounds, sizes)
    if state.bias is not None:
        sums = np.abs(finite(state.capped + state.bias))
        error = error + rounds.score * sums + rounds.entry * np.abs(finite(state.bias))
    return np.asarray(error)


def capped_error(state: State, operands: Operands, rounds: Roundings, sizes: Array) -> Array:
    """Return the maximum error of a logit before bias and fill, (b, h, q, k)."""
    return worst_capped(state, scaled_error(state, operands, rounds, sizes), rounds)


def scaled_error(state: State, operands: Operands, rounds: Roundings, sizes: Array) -> Array:
    """Return the maximum error of a scaled product, (b, h, q, k): the first terms of `logit_error`, and 4 eta."""
    query, key = np.abs(operands.query), np.abs(operands.key)
    err_query = sized(operands.query, operands.err_query, rounds)
    err_key = sized(operands.key, operands.err_key, rounds)
    moved = gamma(state.problem.head_dim, rounds.acc) * sizes
    if np.any(err_query) or np.any(err_key):
        err_query = np.broadcast_to(err_query, query.shape)
        err_key = np.broadcast_to(err_key, key.shape)
        moved = moved + err_query @ (key + err_key).swapaxes(-1, -2) + query @ err_key.swapaxes(-1, -2)
    scaled = np.abs(state.scaled)
    return np.asarray(abs(state.scale) * moved + 2.0 * (rounds.score + rounds.scale) * scaled + 4.0 * rounds.eta_score)


def worst(rows: Rows, error: Array, rounds: Roundings) -> Worst:
    """Return the worst cases of a softmax whose live logits err by `error` (ds); rho = ds + (exp_ulp + 2x) soft."""
    live_error = np.where(rows.live, error, 0.0)
    rho = np.where(rows.reachable, live_error + rounds.soft * rows.exp_error, 0.0)
    exponentials = np.where(rows.reachable, np.exp(-rows.distance), 0.0)
    top = np.log(np.maximum(exponentials.sum(axis=-1, keepdims=True), 1.0))
    small = rho < 0.5  # noqa: PLR2004 - beyond that the difference below loses no accuracy, and p may have underflowed
    gain = np.where(
        small,
        rows.probs * np.expm1(np.minimum(rho, 1.0)),
        np.exp(np.minimum(rho - rows.distance - top, HUGE)) - rows.probs,
    )
    denominator = gamma(np.maximum(rows.terms - 1.0, 0.0), rounds.sum) + 3.0 * rounds.soft
    return Worst(gain, -rows.probs * np.expm1(-rho), np.where(rows.terms > 0, denominator, 0.0))


def worst_context(
    rows: Rows, limits: Worst, operands: Operands, context: Array, farthest: Array, rounds: Roundings
) -> Array:
    """
    Return the worst error of a context before it is stored, (b, h, q, e).

    min(sum_j p (e^rho - 1) |V_j - o| / sum_j p e^-rho, max_j |V_j - o|) + den |o| + (gamma_n(acc) + prob + 2 mm) p |V|
    + p ev + lost |V|. farthest: max_j |V_j - o| over keys that may have weight.
    """
    sizes = np.abs(operands.value)
    left = np.maximum(1.0 - limits.loss.sum(axis=-1, keepdims=True), np.finfo(np.float64).tiny)
    moved: Array = np.minimum(_distances(limits.gain, operands.value, context) / left, farthest)
    terms = np.where(rows.terms > 0, gamma(rows.terms, rounds.acc) + rounds.prob + 2.0 * rounds.mm, 0.0)
    moved = moved + limits.denominator * np.abs(context) + terms * (rows.probs @ sizes) + rows.lost @ sizes
    if np.any(operands.err_value):
        moved = moved + rows.probs @ operands.err_value
    return moved


def _distances(gain: Array, values: Array, context: Array) -> Array:
    """Compute sum_j gain_j |V_j - o|, (b, h, q, e), a block of queries at a time."""
    batch, heads, queries, keys = gain.shape
    step = max(1, BLOCK // (batch * heads * keys * values.shape[-1]))
    total = np.empty_like(context)
    for low in range(0, queries, step):
        part = slice(low, low + step)
        distances = np.abs(values[:, :, None] - context[:, :, part, None])
        total[:, :, part] = (gain[:, :, part, None] @ distances)[..., 0, :]
    return total


def worst_weights(rows: Rows, limits: Worst, rounds: Roundings, store: float, eta: float) -> Array:
    """
    Return the worst error of a weight, (b, h, q, k): its own logit errs in one direction, all others in the other.

    upper - p = (g (1 - p) + p (L - l)) / (1 + g - (L - l)) and p - lower = (l (1 - p) + p (G - g)) / (1 - l + (G - g)),
    with g = p (e^rho - 1), l = p (1 - e^-rho), G and L their sums: the interval of section 3, written
    without cancellation. + p (den + prob + store) + lost + eta. store, eta: those of the result.
    """
    gain, loss, probs = limits.gain, limits.loss, rows.probs
    others_gain = np.maximum(gain.sum(axis=-1, keepdims=True) - gain, 0.0)
    others_loss = np.maximum(loss.sum(axis=-1, keepdims=True) - loss, 0.0)
    rest = np.maximum(1.0 - probs, 0.0)
    tiny = np.finfo(np.float64).tiny
    upper = (gain * rest + probs * others_loss) / np.maximum(1.0 + gain - others_loss, tiny)
    lower = (loss * rest + probs * others_gain) / np.maximum(1.0 - loss + others_gain, tiny)
    error: Array = np.minimum(np.maximum(upper, lower), 1.0)
    roundings = probs * (limits.denominator + rounds.prob + store)
    return error + roundings + rows.lost + np.where(rows.reachable, eta, 0.0)
