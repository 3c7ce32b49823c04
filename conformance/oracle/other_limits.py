"""Variations that cut logits off at a number of their own, so that an exponential may not overflow."""

import numpy as np

from conformance.oracle.pipeline import Step, insert_after
from conformance.oracle.state import State
from conformance.oracle.variation import StepsMap, Variation, unbounded_row

LIMITS = (10, 20, 30, 50, 80, 88, 100)
"""Numbers that logits are cut off at: round ones, and one whose exponential is just below the largest of float32."""

MASK_LIMIT = 10000
"""A number that masks are known for; biases that go beyond it are not asked for."""


def _before_bias(limit: float) -> StepsMap:
    """Cut off what the scale and a softcap leave; a mask hides as before."""

    def clipped(state: State) -> State:
        return state.but(capped=np.clip(state.capped, -limit, limit))

    return lambda steps, _: insert_after(steps, "softcap", Step("limit", clipped))


def _after_bias(limit: float) -> StepsMap:
    """Cut off the sum of logit and bias, but -inf, which masks."""

    def clipped(state: State) -> State:
        if state.bias is None:
            return state.but(logits=np.clip(state.logits, -limit, limit))
        return state.but(logits=np.where(state.bias == -np.inf, -np.inf, np.clip(state.logits, -limit, limit)))

    return lambda steps, _: insert_after(steps, "bias", Step("limit", clipped))


def _row(limit: int, steps: StepsMap) -> Variation:
    told = f"cuts the logits off at -{limit} and {limit}"
    return unbounded_row("logit_limit", f"{limit}", told, "keep logits small", steps)


def _late_row(limit: int, steps: StepsMap) -> Variation:
    """In calls without a bias it is the same as before one, and no less a cut."""
    told = f"cuts the logits off at -{limit} and {limit} after a bias is added"
    return unbounded_row("logit_limit", f"{limit}_after_bias", told, "keep logits small", steps)


ROWS: tuple[Variation, ...] = (
    *(_row(limit, _before_bias(limit)) for limit in (*LIMITS, MASK_LIMIT)),
    *(_late_row(limit, _after_bias(limit)) for limit in LIMITS),
)
