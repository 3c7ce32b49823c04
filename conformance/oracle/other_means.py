"""Variations that return another mean over the heads than that of the weights they have."""

import numpy as np

from conformance.oracle.pipeline import Steps, replace_step
from conformance.oracle.state import State
from conformance.oracle.steps import settle_dead_rows, softmax
from conformance.oracle.variation import Variation, unbounded_row
from conformance.spec.problem import Problem


def _of_mean_logits(steps: Steps, _: str) -> Steps:
    """One softmax of what all heads have on average; a key that one of them masks is masked."""

    def answer(state: State) -> State:
        done = ordinary(state)
        if not _has_mean(state.problem):
            return done
        logits = state.logits.mean(axis=1, keepdims=True)
        mean = settle_dead_rows(softmax(state.but(logits=logits))).probs
        return done.but(weights=np.broadcast_to(mean, done.weights.shape))

    ordinary = next(step.apply for step in steps if step.name == "weights")
    return replace_step(steps, "weights", answer)


def _has_mean(problem: Problem) -> bool:
    """Whether a mean over several heads is asked for, and not each of them."""
    return problem.num_heads > 1 and "weights_mean" in problem.outputs and "weights" not in problem.outputs


ROWS: tuple[Variation, ...] = (
    unbounded_row(
        "returned_weights",
        "of_mean_logits",
        "returns the softmax of the mean of the logits over the heads, where the mean of their weights is promised",
        "ask for weights per head",
        _of_mean_logits,
        _has_mean,
    ),
)
