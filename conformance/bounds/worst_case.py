"""
What no implementation of the declared arithmetic can exceed (docs/tolerance.md, section 3, A).

Not linear in the errors of the logits, so it holds for logits of any size: it then becomes the range of the values.
"""

from dataclasses import dataclass

import numpy as np

from conformance.bounds.operands import Operands, finite, sized
from conformance.bounds.roundings import Roundings, gamma, worst_capped
from conformance.bounds.rows import Rows
from conformance.bounds.weighted_values import BLOCK
from conformance.reference.steps import State
from conformance.spec.problem import Array

# Logarithm at which exponentials are cut off: nothing that big is judged.
HUGE = 600.0


@dataclass(frozen=True, eq=False)
class Worst:
    """
    What the worst cases of output and weights share, shapes as in `Rows`.

    gain: p (e^rho - 1). loss: p (1 - e^-rho). denominator (b, h, q, 1): relative error of the sum of exponentials.
    """

    gain: Array
    loss: Array
    denominator: Array


def magnitudes(operands: Operands) -> Array:
    """G = |q| |k|, (b, h, q, k): what a partial sum of a product can reach."""
    return np.asarray(np.abs(operands.query) @ np.abs(operands.key).swapaxes(-1, -2))


def logit_error(state: State, operands: Operands, rounds: Roundings, sizes: Array) -> Array:
    """
    How far a logit may be off before a finite fill is added: ds, (b, h, q, k).

    c (gamma_d G + eq (|k| + ek) + |q| ek) + 2 (score + scale) |a| + [bias] (score |s| + entry |bias|) + 4 eta. A cap
    bends the error before the bias (`caps`). sizes: G.
    """
    error = capped_error(state, operands, rounds, sizes)
    if state.bias is not None:
        sums = np.abs(finite(state.capped + state.bias))
        error = error + rounds.score * sums + rounds.entry * np.abs(finite(state.bias))
    return np.asarray(error)


def capped_error(state: State, operands: Operands, rounds: Roundings, sizes: Array) -> Array:
    """How far a logit may be off before anything is added, (b, h, q, k)."""
    return worst_capped(state, scaled_error(state, operands, rounds, sizes), rounds)


def scaled_error(state: State, operands: Operands, rounds: Roundings, sizes: Array) -> Array:
    """How far a scaled product may be off, (b, h, q, k): the first terms of `logit_error`, and 4 eta."""
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
    """The worst cases of a softmax whose live logits are off by `error` (ds); rho = ds + (exp_ulp + 2x) soft."""
    wrong = np.where(rows.live, error, 0.0)
    rho = np.where(rows.reachable, wrong + rounds.soft * rows.exp_error, 0.0)
    exponentials = np.where(rows.reachable, np.exp(-rows.distance), 0.0)
    top = np.log(np.maximum(exponentials.sum(axis=-1, keepdims=True), 1.0))
    small = rho < 0.5  # noqa: PLR2004 - beyond that no accuracy is lost in a difference, and p may have underflowed
    gain = np.where(
        small,
        rows.probs * np.expm1(np.minimum(rho, 1.0)),
        np.exp(np.minimum(rho - rows.distance - top, HUGE)) - rows.probs,
    )
    denominator = gamma(np.maximum(rows.terms - 1.0, 0.0), rounds.sum) + 3.0 * rounds.soft
    return Worst(gain, -rows.probs * np.expm1(-rho), np.where(rows.terms > 0, denominator, 0.0))


def worst_context(
    rows: Rows, case: Worst, operands: Operands, context: Array, farthest: Array, rounds: Roundings
) -> Array:
    """
    Worst error of a context before it is stored, (b, h, q, e).

    min(sum_j p (e^rho - 1) |V_j - o| / sum_j p e^-rho, max_j |V_j - o|) + den |o| + (gamma_n(acc) + prob + 2 mm) p |V|
    + p ev + lost |V|. farthest: max_j |V_j - o| over keys that may have weight.
    """
    sizes = np.abs(operands.value)
    left = np.maximum(1.0 - case.loss.sum(axis=-1, keepdims=True), np.finfo(np.float64).tiny)
    moved: Array = np.minimum(_distances(case.gain, operands.value, context) / left, farthest)
    terms = np.where(rows.terms > 0, gamma(rows.terms, rounds.acc) + rounds.prob + 2.0 * rounds.mm, 0.0)
    moved = moved + case.denominator * np.abs(context) + terms * (rows.probs @ sizes) + rows.lost @ sizes
    if np.any(operands.err_value):
        moved = moved + rows.probs @ operands.err_value
    return moved


def _distances(gain: Array, values: Array, context: Array) -> Array:
    """sum_j gain_j |V_j - o|, (b, h, q, e), a block of queries at a time."""
    batch, heads, queries, keys = gain.shape
    step = max(1, BLOCK // (batch * heads * keys * values.shape[-1]))
    total = np.empty_like(context)
    for low in range(0, queries, step):
        part = slice(low, low + step)
        apart = np.abs(values[:, :, None] - context[:, :, part, None])
        total[:, :, part] = (gain[:, :, part, None] @ apart)[..., 0, :]
    return total


def worst_weights(rows: Rows, case: Worst, rounds: Roundings, store: float, eta: float) -> Array:
    """
    Worst error of a weight, (b, h, q, k), when its own logit goes one way and all others the other way.

    upper - p = (g (1 - p) + p (L - l)) / (1 + g - (L - l)) and p - lower = (l (1 - p) + p (G - g)) / (1 - l + (G - g)),
    with g = p (e^rho - 1), l = p (1 - e^-rho), G and L their sums: the interval of section 3 without its
    cancellation. + p (den + prob + store) + lost + eta. store, eta: of the result.
    """
    gain, loss, probs = case.gain, case.loss, rows.probs
    others_gain = np.maximum(gain.sum(axis=-1, keepdims=True) - gain, 0.0)
    others_loss = np.maximum(loss.sum(axis=-1, keepdims=True) - loss, 0.0)
    rest = np.maximum(1.0 - probs, 0.0)
    tiny = np.finfo(np.float64).tiny
    upper = (gain * rest + probs * others_loss) / np.maximum(1.0 + gain - others_loss, tiny)
    lower = (loss * rest + probs * others_gain) / np.maximum(1.0 - loss + others_gain, tiny)
    apart: Array = np.minimum(np.maximum(upper, lower), 1.0)
    roundings = probs * (case.denominator + rounds.prob + store)
    return apart + roundings + rows.lost + np.where(rows.reachable, eta, 0.0)
