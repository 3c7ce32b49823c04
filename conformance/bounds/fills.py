"""
The effect of a finite fill on the errors of logits: oracle and implementation both round after the fill (section 11).

Far from zero a dtype has few numbers, so oracle and implementation get the same filled logit, or neighbouring ones.
"""

from dataclasses import dataclass

import numpy as np

from conformance.bounds.operands import finite, step_of
from conformance.bounds.roundings import Roundings
from conformance.reference.pipeline import Steps
from conformance.reference.steps import State
from conformance.spec.problem import Array

# Maximum step between neighbouring numbers that counts as an ordinary error of a logit; first order fails beyond.
SMALL_STEP = 0.1

# exp(-NO_WEIGHT) is zero in every dtype.
NO_WEIGHT = 800.0


@dataclass(frozen=True, eq=False)
class Filling:
    """
    The effect of a fill on the logits.

    known (b, h, q, k): logits without any error. rounded (b, h, q, k): number of roundings that the fill adds to a
    logit. undecided (b, h, q): rows with weight on a filled logit that is within its own error of a rounding boundary.
    """

    known: Array
    rounded: Array
    undecided: Array


def exact_logits(state: State, error: Array, rounds: Roundings) -> Filling:
    """
    Return the effect without a fill: logits are exact in rows that are declared uniform, and under huge biases.

    A bias is huge (such as the finite minimum of float32) if adding a product that errs by `error` does not change it
    in float64, and therefore in no coarser dtype. A bias that is itself rounded on entry is not exact.
    """
    known = np.broadcast_to(state.absorbed[..., None], state.allowed.shape)
    if state.bias is not None and not rounds.entry:
        size = np.abs(finite(state.capped)) + error
        known = known | ((state.bias + size == state.bias) & (state.bias - size == state.bias))
    return Filling(known, np.zeros((1, 1, 1, 1)), np.zeros(state.absorbed.shape, dtype=bool))


def fill(state: State, steps: Steps, rounds: Roundings, error: Array) -> Filling:
    """
    Return the effect of a finite fill, added or put in place, on logits that err by `error`.

    The step of the fill is run on logits that are too small and too large by their error. If the results differ, and
    the next number is close, both sides have one more rounding; if it is far, the row is undecided. Attended logits are
    rounded by the oracle too, possibly differently: one more rounding.
    """
    logits = state.capped if state.bias is None else state.capped + state.bias
    mask = step_of(steps, "mask")
    lower, upper = (mask.apply(state.but(logits=logits + shift)).logits for shift in (-error, error))
    filled = ~state.allowed
    weighty = filled & (state.probs > 0.0)
    top = np.where(np.isfinite(state.logits), state.logits, -np.inf).max(axis=-1, keepdims=True)
    crossing = filled & (lower != upper) & (upper > top - NO_WEIGHT)
    close = crossing & (2.0 * rounds.score * np.abs(state.logits) <= SMALL_STEP)
    known = (state.absorbed[..., None] | filled) & ~close
    undecided = np.any(weighty, axis=-1) & np.any(crossing & ~close, axis=-1)
    return Filling(known, 1.0 + close, np.asarray(undecided))
