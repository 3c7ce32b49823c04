"""
What a finite fill does to the errors of logits: the oracle rounds after it, as the implementation does (section 11).

Far from zero a dtype has few numbers, so a filled logit is the same number on both sides, or one step apart.
"""

from dataclasses import dataclass

import numpy as np

from conformance.bounds.operands import finite, step_of
from conformance.bounds.roundings import Roundings
from conformance.reference.pipeline import Steps
from conformance.reference.steps import State
from conformance.spec.problem import Array

# A step between neighbouring numbers that is an ordinary error of a logit; larger ones are not to first order.
SMALL_STEP = 0.1

# The exponential of minus this is zero in every dtype.
NO_WEIGHT = 800.0


@dataclass(frozen=True, eq=False)
class Filling:
    """
    known (b, h, q, k): logits that do not err at all. rounded (b, h, q, k): how often a logit is rounded by the fill.

    undecided (b, h, q): rows with a weight on a filled logit that is within its own error of a rounding boundary.
    """

    known: Array
    rounded: Array
    undecided: Array


def exact_logits(state: State, error: Array, rounds: Roundings) -> Filling:
    """
    No fill: logits do not err in rows that are declared uniform, and where a bias swallows them.

    That is where a bias is so large (the finite minimum of float32) that the sum with a product that errs by `error`
    is the bias, in float64 and so in every coarser dtype. A bias that is itself rounded on entry errs.
    """
    known = np.broadcast_to(state.absorbed[..., None], state.allowed.shape)
    if state.bias is not None and not rounds.entry:
        size = np.abs(finite(state.capped)) + error
        known = known | ((state.bias + size == state.bias) & (state.bias - size == state.bias))
    return Filling(known, np.zeros((1, 1, 1, 1)), np.zeros(state.absorbed.shape, dtype=bool))


def fill(state: State, steps: Steps, rounds: Roundings, error: Array) -> Filling:
    """
    A finite number added or put where masked, on logits that err by `error`.

    The fill's own step says whether that matters: it is run on logits too small and too large by their error. Where the
    outcome differs and the next number is close, that is one more rounding on either side; where it is far, the row
    is undecided. An attended logit is rounded by the oracle as well, which need not agree: one more rounding.
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
