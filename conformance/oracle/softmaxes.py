"""
What the bound of another softmax has of its own: one over the heads, and one that subtracts no maximum.

Formulas: docs/tolerance.md, section 11.
"""

import math
from dataclasses import replace

import numpy as np

from conformance.oracle.evaluate import Answer
from conformance.oracle.operands import Operands, step_of
from conformance.oracle.roundings import Roundings, recursive_sum, variance
from conformance.oracle.rows import ORDINARY, Rows, Softmax
from conformance.oracle.worst import Worst
from conformance.reference.pipeline import Steps
from conformance.reference.state import State
from conformance.reference.steps import softmax
from conformance.spec.problem import Array
from conformance.spec.rounding import largest

DERIVED = {
    "softmax_axis=heads": Softmax(axis=1),
    "softmax_maximum=missing": Softmax(raw=True),
    "softmax_maximum=missing_guarded": Softmax(raw=True),
}
"""Deviations that replace the softmax and have a bound all the same."""


def softmax_of(answer: Answer, steps: Steps) -> Softmax | None:
    """How the weights of `answer` were normalised; None where no bound is derived for it."""
    if step_of(steps, "softmax").apply is softmax:
        return ORDINARY
    taken = [DERIVED[deviation.key] for deviation in answer.deviations if deviation.key in DERIVED]
    if len(taken) != 1 or (taken[0].raw and answer.state.absorbed.any()):
        return None
    return taken[0]


def of_softmax(found: Rows, taken: Softmax, operands: Operands, rounds: Roundings) -> Rows:
    """The rows with what this softmax adds to them."""
    if taken.raw:
        return replace(found, lost=found.lost + _lost(found, rounds))
    return replace(found, deviation=_deviation(found, operands, rounds)) if taken.axis != ORDINARY.axis else found


def _lost(found: Rows, rounds: Roundings) -> Array:
    """
    What a weight loses where its exponential underflows, as nothing was subtracted: eta_S e^-max, (b, h, q, k).

    At most all of it: a row that underflows altogether is no number, or zero.
    """
    top = np.where(found.live, found.logits, -np.inf).max(axis=-1, keepdims=True)
    tiny = found.live & (np.exp(found.logits) < rounds.tiny_soft)
    with np.errstate(over="ignore"):
        return np.where(tiny, np.minimum(rounds.eta_soft * np.exp(-top), 1.0), 0.0)


def _deviation(found: Rows, operands: Operands, rounds: Roundings) -> Array:
    """
    Standard deviation of weights that sum to one along another axis than that of keys, (b, h, q, k).

    p ((1 - 2p) e + sum p e + sqrt(DEN)), e = sqrt(VE + [vq k^2]): deviations add at most linearly, whatever the errors
    that are normalised together have in common. Sum and DEN run along the axis.
    """
    probs, variances = found.probs, found.var_logit
    if found.var_query is not None:
        shared = found.var_query @ (operands.key**2).swapaxes(-1, -2)
        variances = variances + np.where(found.live, shared, 0.0)
    errors = np.sqrt(variances)
    total = (probs * errors).sum(axis=found.axis, keepdims=True)
    terms = (probs > 0.0).sum(axis=found.axis, keepdims=True, dtype=np.float64)
    squares = (probs**2).sum(axis=found.axis, keepdims=True)
    var_sum = recursive_sum(terms, np.ones(1), squares, rounds.sum) + 2.0 * variance(rounds.soft)
    return np.asarray(probs * (np.maximum((1.0 - 2.0 * probs) * errors + total, 0.0) + np.sqrt(var_sum)))


def undecided(state: State, taken: Softmax, score: str, error: Array, rounds: Roundings) -> Array:
    """
    Rows (b, h, q) of which an exponential or the sum of them may or may not be infinite, as no maximum is subtracted.

    They are as near to the largest number as a logit errs (`error`), its exponential, and the sum.
    """
    if not taken.raw:
        return np.zeros(state.logits.shape[:-1], dtype=bool)
    edge = math.log(largest(score))
    logits = np.where(np.isfinite(state.logits), state.logits, -np.inf)
    sizes = np.where(np.isfinite(state.logits), np.abs(state.logits), 0.0)
    margin = (error + rounds.soft * (rounds.exp_ulp + 2.0 * sizes)).max(axis=-1) + logits.shape[-1] * rounds.sum
    top = logits.max(axis=-1)
    total = top + np.log(np.exp(logits - top[..., None]).sum(axis=-1))
    near = (np.abs(logits - edge) <= margin[..., None]).any(axis=-1)
    return np.asarray(near | (np.abs(total - edge) <= margin))


def no_worst(worst: Worst) -> Worst:
    """No worst case is derived: what is made of this is infinite or no number."""
    unknown = np.full_like(worst.gain, np.inf)
    return Worst(gain=unknown, loss=np.zeros_like(worst.gain), denominator=unknown[..., :1])
