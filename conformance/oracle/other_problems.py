"""Variations that solve another problem: other scales, exchanged arguments and axes."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from conformance.oracle.other_masks import causal, each_group, window
from conformance.oracle.pipeline import Step, Steps, insert_after
from conformance.oracle.state import State
from conformance.oracle.variation import Expected, ProblemMap, Reply, Variation, problem_row
from conformance.spec.problem import Group, Problem
from conformance.spec.rounding import largest

AXIS = {"mha": (0, 1), "sdpa": (1, 2)}
"""The axis of the sequence and the one before it: (batch, seq_len, dim), (batch, num_heads, seq_len, head_dim)."""


def scaled_by(factor: Callable[[Problem], float]) -> ProblemMap:
    """Put another scale in place of that of the problem."""

    def apply(problem: Problem) -> Problem:
        ordinary = problem.applied_scale
        scale = factor(problem)
        return problem if scale == ordinary else problem.but(scale=scale)

    return apply


def _given_times_default(problem: Problem) -> Problem:
    """Multiply a scale that is given with 1/sqrt(head_dim), which it should replace."""
    if problem.scale in (None, 0.0) or problem.head_dim == 1:
        return problem
    return problem.but(scale=problem.applied_scale * problem.head_dim**-0.5)


def bias_times(factor: float) -> ProblemMap:
    """
    Multiply what is added, but what masks (-inf).

    Numbers that the dtype does not hold are infinite then, as the lowest one would be.
    """

    def multiplied(problem: Problem, group: Group) -> Group:
        if group.element != "float":
            return group
        values = np.where(group.values == -np.inf, -np.inf, group.values * factor)
        over = np.abs(values) > largest(problem.dtype)
        return replace(group, values=np.where(over, np.copysign(np.inf, values), values))

    return each_group(multiplied)


def _bias_scaled(problem: Problem) -> Problem:
    """Multiply what is added by the scale: it is added before."""
    scale = problem.applied_scale
    if scale == 1.0 or problem.bias() is None:
        return problem
    groups = [
        replace(group, values=group.values * scale) if group.element == "float" else group for group in problem.groups
    ]
    return problem.but(groups=tuple(groups))


def _query_key(problem: Problem) -> Problem:
    if problem.query is problem.key or problem.query.shape != problem.key.shape:
        return problem
    return problem.but(query=problem.key, key=problem.query)


def _key_value(problem: Problem) -> Problem:
    if problem.key is problem.value or problem.key.shape != problem.value.shape:
        return problem
    return problem.but(key=problem.value, value=problem.key)


def _axes_exchanged(operator: str) -> ProblemMap:
    """
    Take the sequence for the axis before it, where shapes allow.

    mha: (batch, seq_len, dim) is read as (seq_len, batch, dim). sdpa: (batch, num_heads, seq_len, head_dim) as
    (batch, seq_len, num_heads, head_dim).
    """
    one, other = AXIS[operator]

    def apply(problem: Problem) -> Problem:
        if problem.operator != operator or problem.seq_len_q != problem.seq_len_k:
            return problem
        turned = problem.but(
            query=problem.query.swapaxes(one, other),
            key=problem.key.swapaxes(one, other),
            value=problem.value.swapaxes(one, other),
        )
        if operator == "sdpa":
            turned = turned.but(num_heads=problem.seq_len_q, num_kv_heads=problem.seq_len_k)
        groups = tuple(_again(group, turned) for group in problem.groups)
        kept = tuple(group for group in groups if group is not None)
        same = turned.query.shape[other] == turned.query.shape[one] == 1
        return problem if same or len(kept) < len(groups) else turned.but(groups=kept)

    return apply


def _again(group: Group, problem: Problem) -> Group | None:
    """The mask for a call of other sizes: flags are made anew, an array stays as it is; None where it does not fit."""
    queries, keys = problem.seq_len_q, problem.seq_len_k
    if group.offset is not None:
        return replace(group, values=causal(queries, keys, group.offset))
    if group.window is not None:
        return replace(group, values=window(queries, keys, *group.window))
    fits = all(size in (1, full) for size, full in zip(group.values.shape, problem.logits_shape, strict=True))
    return group if fits else None


def _exchanged_back(operator: str) -> Callable[[Reply], Reply]:
    one, other = AXIS[operator]

    def apply(reply: Reply) -> Reply:
        if "output" not in reply:
            return reply
        output = reply["output"]
        return {**reply, "output": Expected(output.values.swapaxes(one, other), output.dtype)}

    return apply


def _over_the_heads(steps: Steps, _: str) -> Steps:
    """
    After the split, heads and positions are exchanged, (batch, seq_len, num_heads, head_dim), up to the merge.

    Only of a call whose queries are as many as its keys, and without masks: those are made for positions.
    """

    def concerns(problem: Problem) -> bool:
        return not problem.groups and problem.seq_len_q == problem.weights_shape[-1]

    def turn(state: State) -> State:
        if not concerns(state.problem):
            return state
        query, key, value = (array.swapaxes(1, 2) for array in (state.query, state.key, state.value))
        batch, positions, heads, _ = query.shape
        allowed, absorbed = np.ones((batch, positions, heads, heads), bool), np.zeros((batch, positions, heads), bool)
        return state.but(query=query, key=key, value=value, allowed=allowed, absorbed=absorbed)

    def turn_back(state: State) -> State:
        return state.but(context=state.context.swapaxes(1, 2)) if concerns(state.problem) else state

    if all(step.name != "merge" for step in steps):
        return steps
    there = insert_after(steps, "group", Step("turn", turn))
    return insert_after(there, "weights", Step("turn_back", turn_back))


def exchange(name: str, sentence: str, remedy: str, operator: str) -> Variation:
    """One row of the table that exchanges two axes of the inputs, and those of the output again."""
    back = _exchanged_back(operator)
    there = _axes_exchanged(operator)
    return Variation("input_axes", name, sentence, remedy, "problem", problem=there, reply=back)


ROWS: tuple[Variation, ...] = (
    problem_row(
        "scale",
        "none",
        "does not scale the logits",
        "multiply the query, in a layer wq and bq, by 1/sqrt(head_dim)",
        scaled_by(lambda _: 1.0),
    ),
    problem_row(
        "scale",
        "ignored",
        "ignores the scale argument",
        "multiply the query instead",
        scaled_by(lambda p: p.head_dim**-0.5),
    ),
    problem_row(
        "scale",
        "all_heads",
        "scales by the width of all heads together",
        "multiply the query, in a layer wq and bq, by sqrt(num_heads)",
        scaled_by(lambda p: (p.num_heads * p.head_dim) ** -0.5),
    ),
    problem_row(
        "scale",
        "value_dim",
        "scales by the width of the values",
        "multiply the query, in a layer wq and bq, by sqrt(value_dim / head_dim)",
        scaled_by(lambda p: p.value_dim**-0.5),
    ),
    problem_row("scale", "seq_len", "scales by the number of keys", "", scaled_by(lambda p: p.seq_len_k**-0.5)),
    problem_row(
        "scale",
        "squared",
        "applies the scale twice",
        "multiply the query, in a layer wq and bq, by sqrt(head_dim)",
        scaled_by(lambda p: p.applied_scale**2),
    ),
    problem_row(
        "scale",
        "given_times_default",
        "multiplies a scale that is given with 1/sqrt(head_dim), which it should replace",
        "multiply the scale by sqrt(head_dim)",
        _given_times_default,
    ),
    problem_row(
        "bias_scale",
        "scaled",
        "scales an additive mask too: it is added before the scale",
        "divide the mask by the scale",
        _bias_scaled,
    ),
    problem_row("arguments", "query_key", "exchanges query and key", "exchange query and key", _query_key),
    problem_row("arguments", "key_value", "exchanges key and value", "exchange key and value", _key_value),
    exchange(
        "batch_and_sequence",
        "takes the batch for the sequence: (seq_len, batch, dim) is expected",
        "exchange the first two axes of inputs and output",
        "mha",
    ),
    exchange(
        "heads_and_sequence",
        "takes the heads for the sequence: (batch, seq_len, num_heads, head_dim) is expected",
        "exchange axes 1 and 2 of inputs and output",
        "sdpa",
    ),
    Variation(
        "attention_axis",
        "heads",
        "attends over the wrong axis: each position over its heads, not over the positions",
        "",
        "steps",
        steps=_over_the_heads,
        bounded=False,
    ),
)
