"""Deviations of array layout and of confused arrays: heads, axes, arguments, values."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from conformance.deviations.deviation import Deviation, Expected, HeadsMap, Reply, ReplyMap
from conformance.deviations.edges import causal, window
from conformance.reference.pipeline import StepsMap, both, following, replacing, where_present, wrapping
from conformance.reference.steps import State, merge_heads
from conformance.spec.problem import Array, MaskOperand, Problem

# The sequence axis and its preceding axis: (batch, seq_len, dim), (batch, num_heads, seq_len, head_dim).
AXIS = {"mha": (0, 1), "sdpa": (1, 2)}


def _swapped(one: str, other: str, problem: Problem) -> Problem:
    """Swap two arguments of equal shape."""
    first, second = getattr(problem, one), getattr(problem, other)
    same = first is second or first.shape != second.shape
    return problem if same else problem.but(**{one: second, other: first})


def _used_for(source: str, targets: tuple[str, ...], problem: Problem) -> Problem:
    """Use one argument for others too, if all have the same shape."""
    array = getattr(problem, source)
    others = [getattr(problem, name) for name in targets]
    if all(other is array for other in others) or any(other.shape != array.shape for other in others):
        return problem
    return problem.but(**dict.fromkeys(targets, array))


def _axes_swapped(operator: str, problem: Problem) -> Problem:
    """
    Swap the sequence axis with its preceding axis, if the shapes allow it.

    mha: (batch, seq_len, dim) is read as (seq_len, batch, dim). sdpa: (batch, num_heads, seq_len, head_dim) as
    (batch, seq_len, num_heads, head_dim).
    """
    one, other = AXIS[operator]
    if problem.operator != operator or problem.seq_len_q != problem.seq_len_k:
        return problem
    swapped = problem.but(
        query=problem.query.swapaxes(one, other),
        key=problem.key.swapaxes(one, other),
        value=problem.value.swapaxes(one, other),
    )
    if operator == "sdpa":
        swapped = swapped.but(num_heads=problem.seq_len_q, num_kv_heads=problem.seq_len_k)
    mask_operands = tuple(_for_sizes(operand, swapped) for operand in problem.mask_operands)
    kept = tuple(operand for operand in mask_operands if operand is not None)
    same = swapped.query.shape[other] == swapped.query.shape[one] == 1
    return problem if same or len(kept) < len(mask_operands) else swapped.but(mask_operands=kept)


def _for_sizes(operand: MaskOperand, problem: Problem) -> MaskOperand | None:
    """Adapt a mask to other sizes: causal and window masks are remade, an array must fit; None if it does not."""
    queries, keys = problem.seq_len_q, problem.seq_len_k
    if operand.offset is not None:
        return replace(operand, values=causal(queries, keys, operand.offset))
    if operand.window is not None:
        return replace(operand, values=window(queries, keys, *operand.window))
    fits = all(size in (1, full) for size, full in zip(operand.values.shape, problem.logits_shape, strict=True))
    return operand if fits else None


def of_output(change: Callable[[Array], Array]) -> ReplyMap:
    """Make a reply map that changes the output; `change` returns the same array if it does not apply."""

    def apply(reply: Reply) -> Reply:
        if "output" not in reply or (changed := change(reply["output"].values)) is reply["output"].values:
            return reply
        return {**reply, "output": Expected(changed, reply["output"].dtype)}

    return apply


def _input_axes(name: str, operator: str) -> Deviation:
    """Swap two axes of the inputs, and the same axes of the output."""
    back = of_output(lambda values: values.swapaxes(*AXIS[operator]))
    return Deviation("input_axes", name, problem=partial(_axes_swapped, operator), reply=back)


def _over_the_heads() -> StepsMap:
    """
    Swap heads and positions between split and merge: (batch, seq_len, num_heads, head_dim).

    This applies only to calls with as many queries as keys and without masks, which are made for positions.
    """

    def concerns(problem: Problem) -> bool:
        return not problem.mask_operands and problem.seq_len_q == problem.weights_shape[-1]

    def swap(state: State) -> State:
        if not concerns(state.problem):
            return state
        query, key, value = (array.swapaxes(1, 2) for array in (state.query, state.key, state.value))
        batch, positions, heads, _ = query.shape
        allowed, absorbed = np.ones((batch, positions, heads, heads), bool), np.zeros((batch, positions, heads), bool)
        return state.but(query=query, key=key, value=value, allowed=allowed, absorbed=absorbed)

    def swap_back(state: State) -> State:
        return state.but(context=state.context.swapaxes(1, 2)) if concerns(state.problem) else state

    return both(following("group", "turn", swap), following("weights", "turn_back", swap_back))


def _split_without_transpose(state: State) -> State:
    """Reshape without a transpose; also for sdpa, where an adapter may merge the heads for its framework to split."""
    names = ("query", "key", "value")
    return state.but(**{name: merge_heads(getattr(state, name)).reshape(getattr(state, name).shape) for name in names})


def _values(state: State, axis: int, values: Array) -> State:
    """Replace the values, unless the axis has size one."""
    return state.but(value=values) if state.value.shape[axis] > 1 else state


def _key_as_value(state: State) -> State:
    return state.but(value=state.key) if state.key.shape == state.value.shape else state


def _key_reshaped(state: State) -> State:
    """Reshape the key from (seq_len_k, head_dim) to (head_dim, seq_len_k) instead of transposing it."""
    batch, heads, length, dim = state.key.shape
    if 1 in (length, dim):
        return state
    return state.but(key=state.key.reshape(batch, heads, dim, length).swapaxes(-1, -2))


def _grouped(heads: Callable[[int, int], Array]) -> StepsMap:
    """Choose other key and value heads for the query heads; `heads` maps (num_heads, num_kv_heads) to indices."""

    def operand(state: State, ordinary: HeadsMap) -> State:
        count, shared = state.problem.num_heads, state.problem.num_kv_heads
        if count == shared:
            return ordinary(state)
        return state.but(key=state.key[:, heads(count, shared)], value=state.value[:, heads(count, shared)])

    return wrapping("group", operand)


def _merged(axes: tuple[int, ...]) -> StepsMap:
    """Merge the heads after another transposition; steps without a merge are unchanged."""

    def merge(state: State) -> State:
        batch, heads, length, dim = state.context.shape
        return state.but(output=state.context.transpose(axes).reshape(batch, length, heads * dim))

    return where_present("merge", replacing("merge", merge))


def _weights_turned(state: State, weigh: HeadsMap) -> State:
    if state.probs.shape[-1] != state.probs.shape[-2]:
        return weigh(state)
    return state.but(context=weigh(state.but(probs=state.probs.swapaxes(-1, -2))).context)


def _values_summed(state: State) -> State:
    """Compute bhqk,bhvd->bhqd: the weights of a row are summed, and so are the values."""
    total: Array = state.probs.sum(axis=-1, keepdims=True)
    return state.but(context=total * state.value.sum(axis=-2, keepdims=True))


ROWS: tuple[Deviation, ...] = (
    Deviation("arguments", "query_key", problem=partial(_swapped, "query", "key")),
    Deviation("arguments", "key_value", problem=partial(_swapped, "key", "value")),
    Deviation("arguments", "key_as_value", problem=partial(_used_for, "key", ("value",))),
    Deviation("arguments", "query_as_key", problem=partial(_used_for, "query", ("key",))),
    Deviation("arguments", "value_as_key", problem=partial(_used_for, "value", ("key",))),
    Deviation("arguments", "query_for_all", problem=partial(_used_for, "query", ("key", "value"))),
    Deviation("arguments", "key_reshaped", heads=_key_reshaped, bounded=False),
    _input_axes("batch_and_sequence", "mha"),
    _input_axes("heads_and_sequence", "sdpa"),
    Deviation("attention_axis", "heads", steps=where_present("merge", _over_the_heads()), bounded=False),
    Deviation("head_split", "untransposed", heads=_split_without_transpose),
    Deviation("head_merge", "interleaved", steps=_merged((0, 2, 3, 1))),
    Deviation("head_merge", "untransposed", steps=_merged((0, 1, 2, 3))),
    Deviation("grouped_heads", "tile", steps=_grouped(lambda heads, shared: np.arange(heads) % shared)),
    Deviation("grouped_heads", "first", steps=_grouped(lambda heads, _: np.zeros(heads, dtype=int)), bounded=False),
    Deviation("value_path", "key", heads=_key_as_value),
    Deviation("value_path", "reversed", heads=lambda state: _values(state, 2, np.flip(state.value, axis=2))),
    Deviation("value_path", "next_head", heads=lambda state: _values(state, 1, np.roll(state.value, -1, axis=1))),
    Deviation("value_path", "weights_transposed", steps=wrapping("weigh", _weights_turned), bounded=False),
    Deviation("value_path", "summed", steps=replacing("weigh", _values_summed), bounded=False),
)
