"""Deviations of how one mask argument is read: its polarity, its numbers, its axes; made for each argument."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial

import numpy as np

from conformance.deviations.deviation import Deviation, asks_for_weights, each_operand
from conformance.deviations.logits import argument, masks_beside_others, zero_after_softmax_by_argument
from conformance.reference.pipeline import Steps, StepsMap, replace_step
from conformance.reference.steps import State, whole_rows, widened
from conformance.spec.problem import Array, MaskOperand, Problem
from conformance.spec.rounding import largest, round_to

# Threshold of readers that compare a float mask with a number.
HALF = 0.5

# A mask -> the mask as it is read; None if it is ignored, the same object if nothing changes.
Reading = Callable[[Problem, MaskOperand], MaskOperand | None]


def _of(*elements: str, into: str, values: Callable[[Array], Array]) -> Reading:
    """Read masks of these element types as another type; causal and window arguments are not arrays."""

    def read(_: Problem, operand: MaskOperand) -> MaskOperand:
        return replace(operand, element=into, values=values(operand.values)) if operand.element in elements else operand

    return read


def _polarity(_: Problem, operand: MaskOperand, *, inverted: bool) -> MaskOperand:
    """Invert a boolean or integer mask; only in arguments that document True = ignore if `inverted`, else in others."""
    if operand.inverted != inverted or operand.element not in ("bool", "int"):
        return operand
    return replace(operand, element="bool", values=operand.values == 0)


def _penalty(_: Problem, operand: MaskOperand) -> MaskOperand:
    """Read a boolean or integer mask, or lengths, as a penalty of -1e4; causal and window arguments are unchanged."""
    if operand.element == "float" or (operand.element == "flag" and operand.ordered):
        return operand
    return replace(operand, element="float", values=np.where(operand.values != 0, 0.0, -1e4))


def _ignored(where: Callable[[Problem], bool]) -> Reading:
    return lambda problem, operand: None if where(problem) else operand


def _first(axis: int, _: Problem, operand: MaskOperand) -> MaskOperand:
    """Use the mask at the first position of an axis for all positions."""
    values = operand.values
    return replace(operand, values=values.take([0], axis=axis)) if values.shape[axis] > 1 else operand


def _transposed(problem: Problem, operand: MaskOperand) -> MaskOperand:
    """Transpose a square mask; one without a query axis then masks queries instead of keys."""
    if problem.seq_len_q != problem.seq_len_k or problem.seq_len_q == 1:
        return operand
    return replace(operand, values=operand.values.swapaxes(-1, -2))


def _strides_swapped(problem: Problem, operand: MaskOperand) -> MaskOperand:
    """Read the element (query, key) of an expanded mask at key * seq_len_q + query."""
    if 1 in (problem.seq_len_q, problem.seq_len_k) or operand.element == "flag":
        return operand
    lead = operand.values.shape[:2]
    expanded = np.broadcast_to(operand.values, (*lead, problem.seq_len_q, problem.seq_len_k))
    return replace(operand, values=expanded.reshape(*lead, problem.seq_len_k, problem.seq_len_q).swapaxes(-1, -2))


def _head_of(index: Callable[[Array, int, int], Array], problem: Problem, operand: MaskOperand) -> MaskOperand:
    """Use the mask of another query head; `index` maps (query heads, group size, num_kv_heads) to the heads to use."""
    heads, shared = problem.num_heads, problem.num_kv_heads
    if operand.values.shape[1] == 1 or shared == heads:
        return operand
    return replace(operand, values=operand.values[:, index(np.arange(heads), heads // shared, shared)])


def _batch_tiled(problem: Problem, operand: MaskOperand) -> MaskOperand:
    """Tile the batch axis instead of repeating it: folded row n = b * num_heads + h gets the mask of n % batch."""
    if operand.values.shape[0] == 1 or operand.values.shape[1] > 1 or problem.num_heads == 1:
        return operand
    rows = np.arange(problem.batch * problem.num_heads) % problem.batch
    folded = operand.values[:, 0][rows]
    return replace(operand, values=folded.reshape(problem.batch, problem.num_heads, *folded.shape[1:]))


def _batch_as_queries(problem: Problem, operand: MaskOperand) -> MaskOperand:
    """Align (batch, seq_len_k) with the last two axes, if batch = seq_len_q."""
    batch, heads, queries, _ = operand.values.shape
    if batch == 1 or heads > 1 or queries > 1 or batch != problem.seq_len_q:
        return operand
    return replace(operand, values=operand.values.transpose(1, 2, 0, 3))


def _batch_as_heads(problem: Problem, operand: MaskOperand) -> MaskOperand:
    """Swap the batch and head axes of a mask that spans one of them, if batch = num_heads."""
    batch, heads = operand.values.shape[:2]
    if problem.batch != problem.num_heads or (batch > 1) == (heads > 1):
        return operand
    return replace(operand, values=operand.values.swapaxes(0, 1))


def _padding_of_queries(problem: Problem, operand: MaskOperand) -> MaskOperand:
    """Use the outer product of padding with itself, which also masks queries, if seq_len_q = seq_len_k."""
    if problem.seq_len_q != problem.seq_len_k or "key_padding" not in operand.kinds or operand.values.shape[2] > 1:
        return operand
    turned = operand.values.swapaxes(-1, -2)
    if operand.element == "float":
        return replace(operand, values=np.where(turned == -np.inf, -np.inf, operand.values))
    return replace(operand, element="bool", values=(operand.values != 0) & (turned != 0))


def _as_lengths(_: Problem, operand: MaskOperand) -> MaskOperand:
    """Replace every row by the number of keys that it attends, and attend that many first keys."""
    if operand.element in ("float", "flag"):
        return operand
    attended = operand.values != 0
    first = np.arange(attended.shape[-1]) < attended.sum(axis=-1, keepdims=True)
    return operand if np.array_equal(first, attended) else replace(operand, element="bool", values=first)


def _lengths_are(read: Callable[[Array], Array], problem: Problem, operand: MaskOperand) -> MaskOperand:
    """Attend to other numbers of first keys than an argument of lengths says; other arguments are unchanged."""
    if operand.element != "flag" or operand.ordered or operand.values.shape[2] > 1:
        return operand
    given = np.broadcast_to(operand.values != 0, (*operand.values.shape[:3], problem.seq_len_k))
    lengths = given.sum(axis=-1, keepdims=True)
    attended = np.arange(problem.seq_len_k) < np.broadcast_to(read(lengths), lengths.shape)
    return operand if np.array_equal(attended, given) else replace(operand, values=attended)


def _low_byte(mask: Array) -> Array:
    """Return where a cast to an 8-bit integer is not 0: infinities and numbers beyond 32 bits become 0."""
    fits = np.abs(mask) < 2.0**31
    return np.asarray(fits & (np.trunc(np.where(fits, mask, 0.0)) % 256.0 != 0.0))


# Decision of an argument and name of the deviation -> how a mask in the argument is read.
READINGS: dict[tuple[str, str], Reading] = {
    ("polarity", "ignore"): partial(_polarity, inverted=False),
    ("polarity", "attend"): partial(_polarity, inverted=True),
    ("use", "ignored"): _ignored(lambda _: True),
    ("use", "ignored_beside_others"): _ignored(lambda problem: len(problem.mask_operands) > 1),
    ("use", "ignored_with_weights"): _ignored(asks_for_weights),
    ("float_mask", "cast_to_bool"): _of("float", into="bool", values=lambda mask: mask != 0),
    ("float_mask", "cast_to_integer"): _of("float", into="bool", values=_low_byte),
    ("float_mask", "above_half"): _of("float", into="bool", values=lambda mask: mask > HALF),
    ("float_mask", "subtracted"): _of("float", into="float", values=lambda mask: -mask),
    ("number_mask", "added"): _of("int", "bool", into="float", values=lambda mask: mask.astype(np.float64)),
    ("penalty", "minus_1e4"): _penalty,
    ("mask_axes", "transposed"): _transposed,
    ("mask_axes", "strides_swapped"): _strides_swapped,
    ("mask_axes", "kv_head"): partial(_head_of, lambda head, group, _: head // group),
    ("mask_axes", "heads_by_group"): partial(
        _head_of, lambda head, group, shared: head % group * shared + head // group
    ),
    ("mask_axes", "first_batch"): partial(_first, 0),
    ("mask_axes", "first_head"): partial(_first, 1),
    ("mask_axes", "first_query"): partial(_first, 2),
    ("mask_axes", "batch_tiled"): _batch_tiled,
    ("mask_axes", "batch_as_queries"): _batch_as_queries,
    ("mask_axes", "batch_as_heads"): _batch_as_heads,
    ("mask_axes", "padding_of_queries"): _padding_of_queries,
    ("mask_axes", "as_lengths"): _as_lengths,
    ("lengths", "one_more"): partial(_lengths_are, lambda lengths: lengths + 1),
    ("lengths", "one_less"): partial(_lengths_are, lambda lengths: lengths - 1),
    ("lengths", "longest"): partial(_lengths_are, lambda lengths: lengths.max()),
    ("lengths", "shortest"): partial(_lengths_are, lambda lengths: lengths.min()),
}
# The deviation that changes a step (float_mask=one_minus) is listed after this one.
AFTER_THESE = ("float_mask", "above_half")


@cache
def slot_deviations(slot: str) -> tuple[Deviation, ...]:
    """Return all deviations of the mask argument `slot`."""
    rows = []
    for (decision, name), reading in READINGS.items():
        rows.append(Deviation(f"{decision}[{slot}]", name, problem=each_operand(reading, slot)))
        if (decision, name) == AFTER_THESE:
            rows.append(Deviation(f"float_mask[{slot}]", "one_minus", steps=_one_minus(slot), bounded=False))
    late = Deviation(
        f"argument_fill[{slot}]",
        "zero_after_softmax",
        steps=zero_after_softmax_by_argument(argument(slot)),
        distinguishes=partial(masks_beside_others, is_own=argument(slot)),
    )
    return (*rows, late)


def _one_minus(slot: str) -> StepsMap:
    """Add (1 - mask) * -1e9 instead of a float mask, in the score dtype."""

    def apply(steps: Steps, score: str) -> Steps:
        def add(state: State) -> State:
            bias = _bias_one_minus(state.problem, slot, max(-1e9, -largest(score)))
            if bias is None:
                return ordinary(state)
            extra = state.scaled.shape[-1] - state.problem.seq_len_k
            bias = widened(whole_rows(bias, state.problem.seq_len_k), extra, fill=0.0)
            logits = round_to(state.capped + bias, score)
            return state.but(bias=bias, logits=logits, absorbed=_swallowed(state.capped, bias, score))

        ordinary = next(step.apply for step in steps if step.name == "bias")
        return replace_step(steps, "bias", add)

    return apply


def _swallowed(scaled: Array, bias: Array, score: str) -> Array:
    """Return the rows whose logits all round to one bias, even with scaled products twice as large, of either sign."""
    kept = [(round_to(bias + factor * scaled, score) == bias).all(axis=-1) for factor in (-2.0, 2.0)]
    finite = np.isfinite(bias)
    lowest, highest = np.where(finite, bias, np.inf).min(axis=-1), np.where(finite, bias, -np.inf).max(axis=-1)
    return np.asarray(kept[0] & kept[1] & (lowest == highest))


def _bias_one_minus(problem: Problem, slot: str, amount: float) -> Array | None:
    """Return the sum of all biases, broadcastable to the logits; None if `slot` has no float mask."""
    floats = [operand for operand in problem.mask_operands if operand.element == "float"]
    if all(operand.slot != slot for operand in floats):
        return None
    added = [(1.0 - each.values) * amount if each.slot == slot else each.values for each in floats]
    return np.asarray(sum(added[1:], start=added[0]))
