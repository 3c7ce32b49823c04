"""
What a softcap does to the errors of logits: z = C tanh(a / C), in three operations (docs/tolerance.md, section 3).

z has the derivative g = 1 - (z / C)^2, which is at most 1. The quotient is rounded to `score`, which z sees as an error
of a; the tangent errs by exp_ulp units of `soft` and is rounded to `score`, the product is rounded to `score`. 1 / C
and C are constants like the scale: each is inexact by one unit of `scale`, and moves all logits alike.
"""

import numpy as np

from conformance.oracle.roundings import Roundings, variance
from conformance.reference.state import State
from conformance.reference.steps import bent
from conformance.spec.problem import Array


def slope(state: State) -> Array | None:
    """Derivative g of the capped logits by the scaled ones, (b, h, q, k), or None without a cap."""
    limit = state.problem.softcap
    if limit is None:
        return None
    with np.errstate(invalid="ignore"):
        return np.nan_to_num(1.0 - (state.capped / limit) ** 2, nan=1.0)


def capped_variance(variances: Array, scaled: Array, capped: Array, gain: Array, rounds: Roundings) -> Array:
    """Variance of z from that of a: g^2 (v + w(score) a^2) + (2 w(score) + w(soft) exp_ulp^2) z^2."""
    own = 2.0 * variance(rounds.score) + variance(rounds.soft) * rounds.exp_ulp * rounds.exp_ulp
    return np.asarray(gain**2 * (variances + variance(rounds.score) * scaled**2) + own * capped**2)


def worst_capped(state: State, error: Array, rounds: Roundings) -> Array:
    """
    Worst error of z from that of a, ds: the cap grows with a, so its ends are those of a - ds' and a + ds'.

    ds' = ds + (score + scale) (|a| + ds) + C eta; then (exp_ulp soft + 2 score + scale) (|z| + moved) + (1 + C) eta.
    """
    limit = state.problem.softcap
    if limit is None:
        return error
    with np.errstate(invalid="ignore"):
        entering = error + (rounds.score + rounds.scale) * (np.abs(state.scaled) + error) + limit * rounds.eta_score
        below, above = (np.abs(bent(state.scaled + way * entering, limit) - state.capped) for way in (-1.0, 1.0))
        moved = np.maximum(below, above)
        own = rounds.exp_ulp * rounds.soft + 2.0 * rounds.score + rounds.scale
        return np.asarray(moved + own * (np.abs(state.capped) + moved) + (1.0 + limit) * rounds.eta_score)
