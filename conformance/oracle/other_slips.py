"""Variations that are slips of plain code: a wrong array, a wrong sign, a step left out."""

import math
from dataclasses import replace

import numpy as np

from conformance.oracle.other_masks import causal, each_group, with_edges
from conformance.oracle.pipeline import Steps, replace_step
from conformance.oracle.state import State
from conformance.oracle.steps import softmax
from conformance.oracle.variation import ProblemMap, Variation, problem_row, unbounded_row
from conformance.spec.problem import Group, Problem


def _scale_inverted(problem: Problem) -> Problem:
    scale = problem.applied_scale
    return problem if scale in (0.0, 1.0) else problem.but(scale=1.0 / scale)


def _base_two(problem: Problem) -> Problem:
    """2^x = e^(x ln 2): scale, cap and what is added are multiplied by ln 2."""
    groups = [
        replace(group, values=group.values * math.log(2)) if group.element == "float" else group
        for group in problem.groups
    ]
    cap = None if problem.softcap is None else problem.softcap * math.log(2)
    return problem.but(scale=problem.applied_scale * math.log(2), softcap=cap, groups=tuple(groups))


def _causal_from(first: int) -> ProblemMap:
    """Query i sees keys from i + offset + first on."""

    def turned(problem: Problem, group: Group) -> Group:
        if group.offset is None:
            return group
        apart = np.arange(problem.seq_len_k)[None, :] - np.arange(problem.seq_len_q)[:, None]
        return replace(group, values=(apart >= group.offset + first)[None, None], offset=None)

    return each_group(turned)


def _from_the_first_key(problem: Problem) -> Problem:
    """Whatever anchor is asked for, query i sees keys 0 to i; that after a past is no matter of asking."""
    if all(group.offset in (None, 0, problem.past) for group in problem.groups):
        return problem
    seen = causal(problem.seq_len_q, problem.seq_len_k, 0)
    groups = [group if group.offset is None else replace(group, values=seen, offset=0) for group in problem.groups]
    return problem.but(groups=tuple(groups))


def _one_sided(*, left: bool) -> ProblemMap:
    """Look at one side of a window alone."""

    def cut(problem: Problem, group: Group) -> Group:
        if group.window is None:
            return group
        return with_edges(problem, group, (group.window[0], None) if left else (None, group.window[1]))

    return each_group(cut)


def _key_as_value(problem: Problem) -> Problem:
    if problem.key is problem.value or problem.key.shape != problem.value.shape:
        return problem
    return problem.but(value=problem.key)


def _query_bias_unscaled(problem: Problem) -> Problem:
    scale = problem.applied_scale
    if "bq" not in problem.params or scale in (0.0, 1.0):
        return problem
    return problem.but(params={**problem.params, "bq": problem.params["bq"] / scale})


def _no_output_projection(problem: Problem) -> Problem:
    if "wo" not in problem.params or problem.params["wo"].shape != (problem.num_heads * problem.value_dim,) * 2:
        return problem
    return problem.but(params={name: array for name, array in problem.params.items() if name not in ("wo", "bo")})


def _first_group(steps: Steps, _: str) -> Steps:
    def first(state: State) -> State:
        if state.problem.num_kv_heads == state.problem.num_heads:
            return state
        heads = np.zeros(state.problem.num_heads, dtype=int)
        return state.but(key=state.key[:, heads], value=state.value[:, heads])

    return replace_step(steps, "group", first)


def _times_infinity(steps: Steps, _: str) -> Steps:
    """0 * -inf is no number, so what is attended is lost; -inf stays where masked."""

    def mask(state: State) -> State:
        if not any(group.allowed is not None for group in state.problem.groups):
            return ordinary(state)
        return state.but(logits=np.where(state.allowed, np.nan, -np.inf))

    ordinary = next(step.apply for step in steps if step.name == "mask")
    return replace_step(steps, "mask", mask)


def _weights_unmasked(steps: Steps, _: str) -> Steps:
    def unmasked(state: State) -> State:
        return state.but(weights=softmax(state.but(logits=state.capped)).probs)

    return replace_step(steps, "weights", unmasked)


def _weights_turned(steps: Steps, _: str) -> Steps:
    def weigh(state: State) -> State:
        if state.probs.shape[-1] != state.probs.shape[-2]:
            return ordinary(state)
        turned = ordinary(state.but(probs=state.probs.swapaxes(-1, -2)))
        return state.but(context=turned.context)

    ordinary = next(step.apply for step in steps if step.name == "weigh")
    return replace_step(steps, "weigh", weigh)


ROWS: tuple[Variation, ...] = (
    problem_row("scale", "inverted", "divides by the scale", "pass the inverse of the scale", _scale_inverted),
    problem_row(
        "softmax_base",
        "two",
        "takes powers of two for those of e",
        "multiply the query, in a layer wq and bq, by log2(e)",
        _base_two,
    ),
    problem_row(
        "causal_alignment",
        "reversed",
        "shows a query itself and the keys after it, not those before",
        "pass the mask",
        _causal_from(0),
    ),
    problem_row(
        "causal_alignment",
        "future",
        "shows a query the keys after it alone: it reads True in the causal mask as: ignore this key",
        "pass the mask",
        _causal_from(1),
    ),
    problem_row(
        "causal_alignment",
        "always_top_left",
        "anchors a causal flag at the first key, whatever is asked for",
        "pass the mask",
        _from_the_first_key,
    ),
    problem_row(
        "window_edges", "left_only", "ignores the right side of a window", "pass the mask", _one_sided(left=True)
    ),
    problem_row(
        "window_edges", "right_only", "ignores the left side of a window", "pass the mask", _one_sided(left=False)
    ),
    problem_row("arguments", "key_as_value", "takes the key for the value too", "", _key_as_value),
    problem_row(
        "projection_bias",
        "bq_unscaled",
        "scales the projection of the query without its bias",
        "multiply bq by the scale",
        _query_bias_unscaled,
    ),
    problem_row(
        "output_projection", "missing", "returns the merged heads unprojected", "project them", _no_output_projection
    ),
    unbounded_row(
        "grouped_heads",
        "first",
        "lets every head read the first key and value head",
        "repeat keys and values",
        _first_group,
    ),
    unbounded_row(
        "mask_fill",
        "times_infinity",
        "multiplies what is attended by infinity when it masks: 0 * inf is NaN",
        "pass 0 and -inf, to be added",
        _times_infinity,
    ),
    unbounded_row(
        "returned_weights", "unmasked", "returns the weights as they are without a mask", "", _weights_unmasked
    ),
    unbounded_row("value_path", "weights_transposed", "transposes square weights", "", _weights_turned),
)
