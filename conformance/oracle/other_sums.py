"""Variations that divide by the sum of other keys."""

import numpy as np

from conformance.oracle.pipeline import Steps, replace_step
from conformance.oracle.state import State
from conformance.oracle.variation import Expected, Reply, Variation, more_keys_than, unbounded_row
from conformance.spec.problem import Array, Problem
from conformance.spec.rounding import largest, smallest_subnormal


def _of_every_other_key(steps: Steps, score: str) -> Steps:
    """A row of which the sum has nothing, or what is too small for a number of that dtype, is zero."""

    def halved(state: State) -> State:
        done = ordinary(state)
        top = state.logits.max(axis=-1, keepdims=True)
        exponentials = np.exp(state.logits - np.where(np.isfinite(top), top, 0.0))
        exponentials[exponentials <= smallest_subnormal(score) / 2.0] = 0.0
        total = exponentials[..., ::2].sum(axis=-1, keepdims=True)
        return done.but(probs=exponentials / np.where(total == 0.0, np.inf, total))

    ordinary = next(step.apply for step in steps if step.name == "softmax")
    return replace_step(steps, "softmax", halved)


def _of_the_row_of_the_key(steps: Steps, _: str) -> Steps:
    """Sums (..., seq_len_q) without an axis of keys lie along the keys; one that is zero divides by 1."""

    def crossed(state: State) -> State:
        done = ordinary(state)
        if state.logits.shape[-2] != state.logits.shape[-1]:
            return done
        top = state.logits.max(axis=-1, keepdims=True)
        exponentials = np.exp(state.logits - np.where(top == -np.inf, 0.0, top))
        total = exponentials.sum(axis=-1)
        return done.but(probs=exponentials / np.where(total == 0.0, 1.0, total)[..., None, :])

    ordinary = next(step.apply for step in steps if step.name == "softmax")
    return replace_step(steps, "softmax", crossed)


def _is_square(problem: Problem) -> bool:
    return problem.seq_len_q == problem.weights_shape[-1] > 1


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
    unbounded_row(
        "softmax_denominator",
        "of_row_of_key",
        "divides the weight of key j by the sum of query j, not that of its own row, when there are as many queries "
        "as keys",
        "",
        _of_the_row_of_the_key,
        _is_square,
    ),
)
