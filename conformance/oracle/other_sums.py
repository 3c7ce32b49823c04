"""Variations that divide by the sum of other keys."""

import numpy as np

from conformance.oracle.pipeline import Steps, replace_step
from conformance.oracle.state import State
from conformance.oracle.variation import Expected, Reply, Variation, more_keys_than
from conformance.spec.problem import Array
from conformance.spec.rounding import largest, smallest_subnormal


def _of_every_other_key(steps: Steps, score: str) -> Steps:
    """A row of which the sum has nothing, or what is too small for a number of that dtype, is zero."""

    def halved(state: State) -> State:
        done = ordinary(state)
        top = state.logits.max(axis=-1, keepdims=True)
        exponentials = np.exp(state.logits - np.where(np.isfinite(top), top, 0.0))
        exponentials[exponentials <= smallest_subnormal(score) / 2.0] = 0.0
        total = exponentials[..., ::2].sum(axis=-1, keepdims=True)
        with np.errstate(over="ignore"):
            return done.but(probs=exponentials / np.where(total == 0.0, np.inf, total))

    ordinary = next(step.apply for step in steps if step.name == "softmax")
    return replace_step(steps, "softmax", halved)


def _overflowing(reply: Reply) -> Reply:
    """What is too large for its dtype is infinite."""
    return {name: Expected(_to_infinity(each.values, largest(each.dtype)), each.dtype) for name, each in reply.items()}


def _to_infinity(values: Array, most: float) -> Array:
    return np.where(np.abs(values) > most, np.copysign(np.inf, values), values)


ROWS: tuple[Variation, ...] = (
    Variation(
        "softmax_denominator",
        "every_other_key",
        "divides by the sum over every other key alone, the first, the third and so on",
        "",
        "steps",
        steps=_of_every_other_key,
        reply=_overflowing,
        bounded=False,
        concerns=more_keys_than(1),
    ),
)
