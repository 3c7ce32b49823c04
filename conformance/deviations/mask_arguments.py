"""Deviations of how one mask argument is read: its polarity, its numbers, its axes. They are made for an argument."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np

from conformance.deviations.deviation import Deviation, asks_for_weights, each_operand
from conformance.reference.pipeline import Steps, StepsMap, replace_step
from conformance.reference.steps import State, whole_rows, widened
from conformance.spec.problem import Array, MaskOperand, Problem
from conformance.spec.rounding import largest, round_to

HALF = 0.5

# A mask -> what it is taken for; None where it is ignored, the same object where nothing changes.
Reading = Callable[[Problem, MaskOperand], MaskOperand | None]


def _of(*elements: str, into: str, values: Callable[[Array], Array]) -> Reading:
    """Masks of these elements are taken for others; a flag is no array of numbers."""

    def read(_: Problem, operand: MaskOperand) -> MaskOperand:
        return replace(operand, element=into, values=values(operand.values)) if operand.element in elements else operand

    return read


def _penalty(_: Problem, operand: MaskOperand) -> MaskOperand:
    """Lengths are a flag, too; a causal flag and a window have an anchor of their own."""
    if operand.element == "float" or (operand.element == "flag" and operand.ordered):
        return operand
    return replace(operand, element="float", values=np.where(operand.values != 0, 0.0, -1e4))


def _ignored(where: Callable[[Problem], bool]) -> Reading:
    return lambda problem, operand: None if where(problem) else operand


def _first(axis: int) -> Reading:
    """The mask at the first place of an axis, for all."""

    def read(_: Problem, operand: MaskOperand) -> MaskOperand:
        values = operand.values
        return replace(operand, values=values.take([0], axis=axis)) if values.shape[axis] > 1 else operand

    return read


def _transposed(problem: Problem, operand: MaskOperand) -> MaskOperand:
    """A mask without an axis of queries lies along them instead."""
    if problem.seq_len_q != problem.seq_len_k or problem.seq_len_q == 1:
        return operand
    return replace(operand, values=operand.values.swapaxes(-1, -2))


def _batch_tiled(problem: Problem, operand: MaskOperand) -> MaskOperand:
    """Give row b * num_heads + h of a folded axis the mask of item (b * num_heads + h) % batch: tiled, not repeated."""
    if operand.values.shape[0] == 1 or operand.values.shape[1] > 1 or problem.num_heads == 1:
        return operand
    rows = np.arange(problem.batch * problem.num_heads) % problem.batch
    folded = operand.values[:, 0][rows]
    return replace(operand, values=folded.reshape(problem.batch, problem.num_heads, *folded.shape[1:]))


def _batch_as_queries(problem: Problem, operand: MaskOperand) -> MaskOperand:
    """Line (batch, seq_len_k) up with the last two axes, where there are as many items as queries."""
    items, heads, queries, _ = operand.values.shape
    if items == 1 or heads > 1 or queries > 1 or items != problem.seq_len_q:
        return operand
    return replace(operand, values=operand.values.transpose(1, 2, 0, 3))


def _batch_as_heads(problem: Problem, operand: MaskOperand) -> MaskOperand:
    """Exchange the axes of items and heads of a mask that spans one of them, where they are of one size."""
    items, heads = operand.values.shape[:2]
    if problem.batch != problem.num_heads or (items > 1) == (heads > 1):
        return operand
    return replace(operand, values=operand.values.swapaxes(0, 1))


def _padding_of_queries(problem: Problem, operand: MaskOperand) -> MaskOperand:
    """The outer product of padding with itself, where there are as many queries as keys: it hides queries too."""
    if problem.seq_len_q != problem.seq_len_k or "key_padding" not in operand.kinds or operand.values.shape[2] > 1:
        return operand
    turned = operand.values.swapaxes(-1, -2)
    if operand.element == "float":
        return replace(operand, values=np.where(turned == -np.inf, -np.inf, operand.values))
    return replace(operand, element="bool", values=(operand.values != 0) & (turned != 0))


def _as_lengths(_: Problem, operand: MaskOperand) -> MaskOperand:
    """Every row becomes the number of keys that it attends, and those are the first."""
    if operand.element in ("float", "flag"):
        return operand
    attended = operand.values != 0
    first = np.arange(attended.shape[-1]) < attended.sum(axis=-1, keepdims=True)
    return operand if np.array_equal(first, attended) else replace(operand, element="bool", values=first)


# Decision of an argument and the way it is taken -> how a mask in it is read.
READINGS: dict[tuple[str, str], Reading] = {
    ("polarity", "ignore"): _of("bool", "int", into="bool", values=lambda mask: mask == 0),
    ("float_mask", "cast_to_bool"): _of("float", into="bool", values=lambda mask: mask != 0),
    ("float_mask", "above_half"): _of("float", into="bool", values=lambda mask: mask > HALF),
    ("float_mask", "subtracted"): _of("float", into="float", values=lambda mask: -mask),
    ("number_mask", "added"): _of("int", "bool", into="float", values=lambda mask: mask.astype(np.float64)),
    ("penalty", "minus_1e4"): _penalty,
    ("use", "ignored"): _ignored(lambda _: True),
    ("use", "ignored_beside_others"): _ignored(lambda problem: len(problem.mask_operands) > 1),
    ("use", "ignored_with_weights"): _ignored(asks_for_weights),
    ("mask_axes", "transposed"): _transposed,
    ("mask_axes", "first_item"): _first(0),
    ("mask_axes", "first_head"): _first(1),
    ("mask_axes", "first_query"): _first(2),
    ("mask_axes", "items_tiled"): _batch_tiled,
    ("mask_axes", "items_as_queries"): _batch_as_queries,
    ("mask_axes", "items_as_heads"): _batch_as_heads,
    ("mask_axes", "padding_of_queries"): _padding_of_queries,
    ("mask_axes", "as_lengths"): _as_lengths,
}
# What takes another step has its place after this one.
AFTER_THESE = ("float_mask", "above_half")


@cache
def slot_deviations(slot: str) -> tuple[Deviation, ...]:
    """Every way in which the argument `slot` of a call can be misread."""
    rows = []
    for way, reading in READINGS.items():
        rows.append(Deviation(f"{way[0]}[{slot}]", way[1], problem=each_operand(reading, slot)))
        if way == AFTER_THESE:
            rows.append(Deviation(f"float_mask[{slot}]", "one_minus", steps=_one_minus(slot), bounded=False))
    return tuple(rows)


def _one_minus(slot: str) -> StepsMap:
    """Add (1 - mask) * -1e9 in place of a float mask, in the score dtype."""

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
    """Rows that a bias leaves with one number as their logits, even if those were twice as large, of either sign."""
    kept = [(round_to(bias + factor * scaled, score) == bias).all(axis=-1) for factor in (-2.0, 2.0)]
    finite = np.isfinite(bias)
    lowest, highest = np.where(finite, bias, np.inf).min(axis=-1), np.where(finite, bias, -np.inf).max(axis=-1)
    return np.asarray(kept[0] & kept[1] & (lowest == highest))


def _bias_one_minus(problem: Problem, slot: str, amount: float) -> Array | None:
    """The sum of all that is added, or None where `slot` is no float mask; broadcastable to the logits."""
    floats = [operand for operand in problem.mask_operands if operand.element == "float"]
    if all(operand.slot != slot for operand in floats):
        return None
    added = [(1.0 - each.values) * amount if each.slot == slot else each.values for each in floats]
    return np.asarray(sum(added[1:], start=added[0]))
