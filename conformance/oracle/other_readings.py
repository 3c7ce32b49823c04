"""Variations that are slips of the pen: another letter of a product, another order of an axis, a last key left out."""

from collections.abc import Callable
from dataclasses import replace
from itertools import permutations

import numpy as np

from conformance.oracle.other_masks import window
from conformance.oracle.other_problems import bias_times
from conformance.oracle.pipeline import Steps, replace_step
from conformance.oracle.state import State
from conformance.oracle.variation import ProblemMap, Variation, problem_row, unbounded_row
from conformance.spec.problem import Array, Group, Problem

PROJECTED = {"q": "query", "k": "key", "v": "value"}

LEFT_OUT = "left_out"
"""What stands for the mask of keys that are left out."""


def _taken_for(source: str, targets: tuple[str, ...]) -> ProblemMap:
    """Take one argument for others too, where all are of one shape."""

    def apply(problem: Problem) -> Problem:
        array = getattr(problem, source)
        others = [getattr(problem, name) for name in targets]
        if all(other is array for other in others) or any(other.shape != array.shape for other in others):
            return problem
        return problem.but(**dict.fromkeys(targets, array))

    return apply


def _without_key(place: int) -> ProblemMap:
    """Attend all keys but one; of a single one nothing is left."""

    def apply(problem: Problem) -> Problem:
        kept = np.ones((1, 1, 1, problem.seq_len_k), dtype=bool)
        kept[..., place] = False
        return problem.but(groups=(*problem.groups, Group(LEFT_OUT, (LEFT_OUT,), "bool", kept)))

    return apply


def _sides_exchanged(problem: Problem) -> Problem:
    def turned(group: Group) -> Group:
        if group.window is None or group.window[0] == group.window[1]:
            return group
        sides = (group.window[1], group.window[0])
        return replace(group, values=window(problem.seq_len_q, problem.seq_len_k, *sides), window=sides)

    groups = tuple(turned(group) for group in problem.groups)
    same = all(one is other for one, other in zip(groups, problem.groups, strict=True))
    return problem if same else problem.but(groups=groups)


def _output_bias_times(count: Callable[[Problem], int]) -> ProblemMap:
    def apply(problem: Problem) -> Problem:
        bias, times = problem.params.get("bo"), count(problem)
        return problem if bias is None or times == 1 else problem.but(params={**problem.params, "bo": bias * times})

    return apply


def _taken_from(source: str, target: str, names: str) -> ProblemMap:
    """Project one argument with the weight and bias of another, or its bias alone, where both are of one shape."""

    def apply(problem: Problem) -> Problem:
        found = {name + target: problem.params[name + source] for name in names if name + source in problem.params}
        fits = all(name in problem.params and problem.params[name].shape == found[name].shape for name in found)
        return problem.but(params={**problem.params, **found}) if found and fits else problem

    return apply


def _packed_by_head(problem: Problem) -> Problem:
    """Columns that are packed as (qkv, head, dim) are read as (head, qkv, dim)."""
    weights = [problem.params[name] for name in ("wq", "wk", "wv") if name in problem.params]
    heads = problem.num_heads
    if heads == 1 or len(weights) < len("qkv") or len({each.shape for each in weights}) > 1:
        return problem
    params = dict(problem.params)
    for kind in "wb":
        packed = [params[kind + letter] for letter in "qkv" if kind + letter in params]
        if len(packed) == len("qkv"):
            read = np.concatenate(packed, axis=-1).reshape(*packed[0].shape[:-1], heads, 3, -1)
            columns = (read[..., n, :].reshape(packed[0].shape) for n in range(3))
            params |= {kind + letter: column for letter, column in zip("qkv", columns, strict=True)}
    return problem.but(params=params)


def _key_reshaped(state: State) -> State:
    """(seq_len_k, head_dim) reshaped to (head_dim, seq_len_k), as what the query is multiplied by."""
    batch, heads, length, dim = state.key.shape
    if 1 in (length, dim):
        return state
    return state.but(key=state.key.reshape(batch, heads, dim, length).swapaxes(-1, -2))


def _values_summed(steps: Steps, _: str) -> Steps:
    """bhqk,bhvd->bhqd: the weights of a row are summed, and the values."""

    def weigh(state: State) -> State:
        total: Array = state.probs.sum(axis=-1, keepdims=True)
        return state.but(context=total * state.value.sum(axis=-2, keepdims=True))

    return replace_step(steps, "weigh", weigh)


ROWS: tuple[Variation, ...] = (
    problem_row("arguments", "query_as_key", "takes the query for the key too", "", _taken_for("query", ("key",))),
    problem_row("arguments", "value_as_key", "takes the value for the key too", "", _taken_for("value", ("key",))),
    problem_row(
        "arguments",
        "query_for_all",
        "takes the query for key and value too",
        "",
        _taken_for("query", ("key", "value")),
    ),
    problem_row("bias_scale", "doubled", "adds an additive mask twice", "halve the mask", bias_times(2)),
    problem_row("key_tail", "last_dropped", "drops the last key", "append a key", _without_key(-1)),
    problem_row("key_tail", "first_dropped", "drops the first key", "put a key before it", _without_key(0)),
    problem_row(
        "window_edges", "sides_exchanged", "exchanges the sides of a window", "exchange them", _sides_exchanged
    ),
    *(
        Variation(
            "projection_bias",
            name,
            f"adds the bias of the output projection {what}",
            remedy,
            "problem",
            problem=_output_bias_times(count),
            bounded=False,
        )
        for name, what, remedy, count in (
            ("bo_of_each_head", "once for each head", "divide bo by num_heads", lambda problem: problem.num_heads),
            ("bo_twice", "twice", "halve bo", lambda _: 2),
        )
    ),
    *(
        problem_row(
            "projection_order",
            f"w{source}_for_{PROJECTED[target]}",
            f"projects the {PROJECTED[target]} with the weights of the {PROJECTED[source]}",
            "",
            _taken_from(source, target, "wb"),
        )
        for source, target in permutations(PROJECTED, 2)
    ),
    *(
        problem_row(
            "projection_bias",
            f"b{source}_for_{PROJECTED[target]}",
            f"adds the bias of the {PROJECTED[source]} where it projects the {PROJECTED[target]}",
            "",
            _taken_from(source, target, "b"),
        )
        for source, target in permutations(PROJECTED, 2)
        if target != "k"  # softmax cancels it
    ),
    problem_row(
        "projection_order",
        "by_head",
        "reads packed projections as (head, qkv, head_dim) instead of (qkv, head, head_dim)",
        "permute the columns of the packed weight",
        _packed_by_head,
    ),
    Variation(
        "arguments",
        "key_reshaped",
        "reshapes the key to (head_dim, seq_len_k) instead of transposing it",
        "",
        "heads",
        heads=_key_reshaped,
        bounded=False,
    ),
    unbounded_row("value_path", "summed", "sums the values whatever their weights", "", _values_summed),
)
