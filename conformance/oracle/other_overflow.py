"""Variations of a softmax that subtracts no maximum, in an arithmetic whose numbers end."""

import math

import numpy as np

from conformance.oracle.pipeline import Steps, replace_step
from conformance.oracle.state import State
from conformance.oracle.steps import softmax
from conformance.oracle.variation import StepsMap, Variation, steps_row
from conformance.spec.rounding import largest, smallest_subnormal


def _no_maximum(underflown: float) -> StepsMap:
    """
    An exponential that overflows is infinite: infinity over infinity for its key, zero for the others.

    A sum of numbers that overflows alone makes zeros of all; exponentials that all underflow are `underflown`.
    """

    def apply(steps: Steps, score: str) -> Steps:
        most, least = math.log(largest(score)), math.log(smallest_subnormal(score))

        def overflowing(state: State) -> State:
            done = softmax(state)
            top = state.logits.max(axis=-1, keepdims=True)
            over = state.logits > most
            total = top + np.log(np.exp(state.logits - top).sum(axis=-1, keepdims=True))
            probs = np.where(total > most, np.where(over, np.nan, 0.0), done.probs)
            return done.but(probs=np.where(top < least, underflown, probs))

        return replace_step(steps, "softmax", overflowing)

    return apply


ROWS: tuple[Variation, ...] = (
    steps_row(
        "softmax_maximum",
        "missing",
        "does not subtract the maximum: the exponential of a large logit overflows to NaN",
        "keep logits small",
        _no_maximum(math.nan),
    ),
    steps_row(
        "softmax_maximum",
        "missing_guarded",
        "does not subtract the maximum: a large logit overflows to NaN, and a row of very negative ones becomes zero",
        "keep logits small",
        _no_maximum(0.0),
    ),
)
