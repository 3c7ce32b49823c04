"""
The bounds of what is returned from the way to the softmax, and of keys and values that are handed back.

The formulas are those of a logit in docs/tolerance.md, section 3: here it is the result, so that nothing cancels.
"""

import numpy as np

from conformance.bridge.profile import UNIT
from conformance.oracle.bound import Bound
from conformance.oracle.caps import capped_variance, slope, worst_capped
from conformance.oracle.derivation import Derivation
from conformance.oracle.operands import finite, squared, step_of
from conformance.oracle.roundings import result_rounding, variance
from conformance.oracle.rows import var_scaled
from conformance.oracle.worst import logit_error, magnitudes, scaled_error
from conformance.spec.problem import Array

FILL_ROUNDINGS = 2.0
"""A finite fill is rounded by the oracle and by the implementation."""


def score_bound(name: str, derivation: Derivation, dtype: str) -> Bound:
    """
    The bound of `scaled`, `capped` or `logits`, returned as `dtype`, (b, h, q, k).

    sigma^2 = VE without exp, + c^2 vq k^2; h = store (where it is not that of the scores) + 2 scale |a|, with a cap
    scale (3 g |a| + |z|), + 4 eta. The spread is 1: an error of a logit is a relative error of its weight.
    """
    state, rounds, entering = derivation.state, derivation.rounds, derivation.operands
    unit, eta = result_rounding(derivation.profile, dtype)
    stored = unit if unit != rounds.score else 0.0
    scaled, gain = finite(state.scaled), slope(state)
    variances = var_scaled(state, entering, rounds, scaled) + _by_query(derivation)
    error = scaled_error(state, entering, rounds, magnitudes(entering))
    common = 2.0 * rounds.scale * np.abs(scaled)
    if name != "scaled" and gain is not None:
        capped = finite(state.capped)
        variances = capped_variance(variances, scaled, capped, gain, rounds)
        common = rounds.scale * (3.0 * gain * np.abs(scaled) + np.abs(capped))
        error = worst_capped(state, error, rounds)
    exact: Array = np.zeros(scaled.shape, dtype=bool)
    if name == "logits":
        error = logit_error(state, entering, rounds, magnitudes(entering))
        variances, exact = variances + _var_masked(derivation), _exactly_masked(derivation, error)
    sizes = np.abs(finite(getattr(state, name)))
    hard = stored * sizes + common + 4.0 * rounds.eta_score + eta
    return Bound(
        hard=np.where(exact, 0.0, hard),
        sigma=np.where(exact, 0.0, np.sqrt(variances)),
        worst=np.where(exact, 0.0, error + stored * (sizes + error) + eta),
        judged=np.broadcast_to(derivation.judged[..., None], sizes.shape),
        spread=np.ones(sizes.shape),
        common=np.where(exact, 0.0, common),
    )


def _by_query(derivation: Derivation) -> Array:
    """c^2 vq k^2, (b, h, q, k)."""
    entering = derivation.operands
    own = squared(entering.query, entering.var_query, derivation.rounds)
    squares = (entering.key**2).swapaxes(-1, -2)
    return np.asarray(derivation.state.scale**2 * (np.broadcast_to(own, entering.query.shape) @ squares))


def _var_masked(derivation: Derivation) -> Array:
    """Variance that bias and fill bring to the logits: each sum is rounded, and a bias errs where inputs do."""
    state, rounds = derivation.state, derivation.rounds
    filled = np.any(~state.allowed & np.isfinite(state.logits))
    sums = (state.bias is not None) + FILL_ROUNDINGS * filled
    moved = variance(rounds.score) * sums * finite(state.logits) ** 2
    return moved if state.bias is None else moved + variance(rounds.entry) * finite(state.bias) ** 2


def _exactly_masked(derivation: Derivation, error: Array) -> Array:
    """Masked logits that are the same number whatever the error of the product."""
    state = derivation.state
    logits = state.capped if state.bias is None else state.capped + state.bias
    mask = step_of(derivation.steps, "mask")
    lower, upper = (mask.apply(state.but(logits=logits + shift)).logits for shift in (-error, error))
    return np.asarray(~state.allowed & (lower == upper))


def present_bound(name: str, derivation: Derivation, dtype: str) -> Bound:
    """The bound of keys or values that are handed back: nothing is computed; an entry or a coarser `dtype` rounds."""
    problem = derivation.state.problem
    handed = finite(getattr(problem, name.removeprefix("present_")))
    nothing = np.zeros(handed.shape)
    stored = UNIT[dtype] if UNIT[dtype] > UNIT[problem.dtype] else 0.0
    moved = (derivation.rounds.entry + stored) * np.abs(handed)
    return Bound(moved, nothing, moved, np.ones(handed.shape, dtype=bool), np.ones(handed.shape), nothing)
