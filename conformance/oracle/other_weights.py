"""Variations that return other weights than those that met the values."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from conformance.oracle.other_replies import averaged
from conformance.oracle.pipeline import Steps, replace_step
from conformance.oracle.state import State
from conformance.oracle.variation import StepsMap, Variation, asks_for_weights, steps_row, unbounded_row


def _weights_before_softmax(steps: Steps, _: str) -> Steps:
    return replace_step(steps, "weights", lambda state: state.but(weights=state.scaled))


def _masked_logits(steps: Steps, _: str) -> Steps:
    return replace_step(steps, "weights", lambda state: state.but(weights=state.logits))


def _weights_summed(steps: Steps, _: str) -> Steps:
    """As many times the weights as there are heads: their mean is their sum."""
    return replace_step(steps, "weights", lambda state: state.but(weights=state.probs * state.problem.num_heads))


def _in_dead_rows(weights: Callable[[int], float]) -> StepsMap:
    """In a row that attends nothing they are those of so many keys; the output is as ever."""

    def apply(steps: Steps, _: str) -> Steps:
        def answer(state: State) -> State:
            done = ordinary(state)
            alone = weights(done.weights.shape[-1])
            return done.but(weights=np.where(state.dead[..., None], alone, done.weights))

        ordinary = next(step.apply for step in steps if step.name == "weights")
        return replace_step(steps, "weights", answer)

    return apply


_ROWS: tuple[Variation, ...] = (
    steps_row(
        "returned_weights",
        "before_softmax",
        "returns the scaled products as weights, before bias, mask and softmax",
        "apply the softmax yourself",
        _weights_before_softmax,
    ),
    unbounded_row(
        "returned_weights",
        "masked_logits",
        "returns the logits as weights, after bias and mask and before the softmax",
        "apply the softmax yourself",
        _masked_logits,
    ),
    Variation(
        "returned_weights",
        "summed",
        "adds the returned weights of all heads, where their mean or each is promised",
        "divide them by num_heads",
        "steps",
        steps=_weights_summed,
        reply=averaged,
        bounded=False,
    ),
    *(
        unbounded_row(
            "returned_weights",
            f"{name}_in_dead_rows",
            f"returns {what} as weights of a fully masked row, though its output is zero",
            "zero those rows of the weights yourself",
            _in_dead_rows(weights),
        )
        for name, what, weights in (
            ("uniform", "1 / seq_len_k", lambda keys: 1.0 / keys),
            ("nan", "NaN", lambda _: float("nan")),
        )
    ),
)

ROWS = tuple(replace(row, concerns=asks_for_weights) for row in _ROWS)
