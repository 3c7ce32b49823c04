"""Variations that cut logits off at a number of their own, so that an exponential may not overflow."""

import numpy as np

from conformance.oracle.pipeline import Step, insert_after
from conformance.oracle.state import State
from conformance.oracle.variation import StepsMap


def before_bias(limit: float) -> StepsMap:
    """Cut off what the scale and a softcap leave; a mask hides as before."""

    def clipped(state: State) -> State:
        return state.but(capped=np.clip(state.capped, -limit, limit))

    return lambda steps, _: insert_after(steps, "softcap", Step("limit", clipped))


def after_bias(limit: float) -> StepsMap:
    """Cut off the sum of logit and bias, but -inf, which masks."""

    def clipped(state: State) -> State:
        if state.bias is None:
            return state.but(logits=np.clip(state.logits, -limit, limit))
        return state.but(logits=np.where(state.bias == -np.inf, -np.inf, np.clip(state.logits, -limit, limit)))

    return lambda steps, _: insert_after(steps, "bias", Step("limit", clipped))
