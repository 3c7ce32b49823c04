"""Variations that return other weights than those that met the values."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from conformance.oracle.other_replies import averaged
from conformance.oracle.pipeline import Steps, replace_step
from conformance.oracle.state import State
from conformance.oracle.steps import widened
from conformance.oracle.variation import StepsMap, Variation, asks_for_weights, steps_row, unbounded_row
from conformance.spec.problem import Array, Group, Problem

LANES = 8
"""Heads that hardware takes at once."""


def _weights_before_softmax(steps: Steps, _: str) -> Steps:
    return replace_step(steps, "weights", lambda state: state.but(weights=state.scaled))


def _masked_logits(steps: Steps, _: str) -> Steps:
    return replace_step(steps, "weights", lambda state: state.but(weights=state.logits))


def _weights_of_first_head(steps: Steps, _: str) -> Steps:
    """Their mean is that of the first, as each is."""
    return replace_step(
        steps, "weights", lambda state: state.but(weights=np.broadcast_to(state.probs[:, :1], state.probs.shape))
    )


def _weights_summed(steps: Steps, _: str) -> Steps:
    """As many times the weights as there are heads: their mean is their sum."""
    return replace_step(steps, "weights", lambda state: state.but(weights=state.probs * state.problem.num_heads))


def _mean_over_kv_heads(steps: Steps, _: str) -> Steps:
    """Their sum is divided by the number of key and value heads; the weights of each head stay."""

    def answer(state: State) -> State:
        problem = state.problem
        if problem.num_kv_heads == problem.num_heads or "weights_mean" not in problem.outputs:
            return ordinary(state)
        return state.but(weights=state.probs * (problem.num_heads / problem.num_kv_heads))

    ordinary = next(step.apply for step in steps if step.name == "weights")
    return replace_step(steps, "weights", answer)


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


def _recomputed(kept: Callable[[Group], bool]) -> StepsMap:
    """The exponential of each logit less the logsumexp of its row, of which masks that are not kept know nothing."""

    def apply(steps: Steps, _: str) -> Steps:
        def answer(state: State) -> State:
            done, problem = ordinary(state), state.problem
            groups = tuple(group for group in problem.groups if kept(group))
            if len(groups) == len(problem.groups):
                return done
            extra = done.weights.shape[-1] - problem.seq_len_k
            seen = widened(problem.but(groups=groups).allowed(), extra, fill=True)
            return done.but(weights=np.where(seen, _of_logsumexp(state), 0.0))

        ordinary = next(step.apply for step in steps if step.name == "weights")
        return replace_step(steps, "weights", answer)

    return apply


def _of_logsumexp(state: State) -> Array:
    """Weights of keys, attended or not, by the sum of those that are attended; zero where there are none."""
    top = state.logits.max(axis=-1, keepdims=True)
    total = np.exp(state.logits - top).sum(axis=-1, keepdims=True)
    logits = state.capped if state.bias is None else state.capped + state.bias
    return np.where(state.dead[..., None], 0.0, np.exp(logits - top) / total)


def _halved_from_head_to_head(weights: Array) -> Array:
    """((w0 + w1) / 2 + w2) / 2 ..., (batch, num_heads, seq_len_q, seq_len_k) to (batch, seq_len_q, seq_len_k)."""
    mean = weights[:, 0]
    for head in range(1, weights.shape[1]):
        mean = (mean + weights[:, head]) / 2.0
    return mean


def _running_halves(steps: Steps, _: str) -> Steps:
    """The mean of what is kept is what is returned; the weights of each head stay."""

    def answer(state: State) -> State:
        done = ordinary(state)
        if "weights_mean" not in state.problem.outputs:
            return done
        return done.but(weights=np.broadcast_to(_halved_from_head_to_head(done.weights)[:, None], done.weights.shape))

    ordinary = next(step.apply for step in steps if step.name == "weights")
    return replace_step(steps, "weights", answer)


def _mean_over_lanes(steps: Steps, _: str) -> Steps:
    """Their sum is divided by the number of heads, filled up to whole lanes."""

    def answer(state: State) -> State:
        done = ordinary(state)
        heads = state.problem.num_heads
        filled = -(-heads // LANES) * LANES
        return done.but(weights=done.weights * (heads / filled)) if _has_mean(state.problem) else done

    ordinary = next(step.apply for step in steps if step.name == "weights")
    return replace_step(steps, "weights", answer)


def _has_mean(problem: Problem) -> bool:
    return "weights_mean" in problem.outputs and "weights" not in problem.outputs


_ROWS: tuple[Variation, ...] = (
    unbounded_row(
        "returned_weights",
        f"mean_over_{LANES}_lanes",
        f"divides the sum of the weights over the heads by num_heads filled up to a multiple of {LANES}",
        "ask for weights per head",
        _mean_over_lanes,
        _has_mean,
    ),
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
        "of_first_head",
        "returns the weights of the first head, where their mean or each is promised",
        "",
        "steps",
        steps=_weights_of_first_head,
        reply=averaged,
        bounded=False,
    ),
    unbounded_row(
        "returned_weights",
        "mean_over_kv_heads",
        "divides the sum of the returned weights by num_kv_heads, where their mean is promised",
        "multiply them by num_kv_heads / num_heads",
        _mean_over_kv_heads,
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
    *(
        unbounded_row(
            "returned_weights",
            f"recomputed_without_{name}",
            f"computes the returned weights again from the logsumexp, without {what}: rows sum to more than one",
            "zero the weights of masked keys yourself",
            _recomputed(kept),
        )
        for name, what, kept in (
            ("flag", "the causal flag", lambda group: group.offset is None),
            ("window", "the window", lambda group: group.window is None),
            ("masks", "boolean masks", lambda group: group.element in ("float", "flag")),
        )
    ),
    unbounded_row(
        "returned_weights",
        "running_halves",
        "adds the weights of one head after another to their mean, and halves it each time",
        "ask for weights per head",
        _running_halves,
    ),
)

ROWS = tuple(replace(row, concerns=asks_for_weights) for row in _ROWS)
