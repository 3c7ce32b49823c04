"""What a mask argument can be misread as: variations that are made for the name of an argument."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from conformance.oracle.steps import State, Steps, replace_step, whole_rows, widened
from conformance.oracle.variation import Variation
from conformance.spec.problem import Array, Group, Problem
from conformance.spec.rounding import largest, round_to

WEIGHTS = ("weights", "weights_mean")


def _on_slot(slot: str, change: Callable[[Problem, Group], Group | None]) -> Callable[[Problem], Problem]:
    """Change the group in `slot` (None removes it); the identity where the call does not use that argument."""

    def apply(problem: Problem) -> Problem:
        groups = []
        for group in problem.groups:
            changed = change(problem, group) if group.slot == slot else group
            if changed is not None:
                groups.append(changed)
        same = len(groups) == len(problem.groups) and all(a is b for a, b in zip(groups, problem.groups, strict=True))
        return problem if same else problem.but(groups=tuple(groups))

    return apply


def _inverted(_: Problem, group: Group) -> Group:
    if group.element in ("float", "flag"):
        return group
    return replace(group, element="bool", values=group.values == 0)


def _float_as_bool(_: Problem, group: Group) -> Group:
    if group.element != "float":
        return group
    return replace(group, element="bool", values=group.values != 0)


def _float_subtracted(_: Problem, group: Group) -> Group:
    return replace(group, values=-group.values) if group.element == "float" else group


def _number_added(_: Problem, group: Group) -> Group:
    if group.element not in ("int", "bool"):
        return group
    return replace(group, element="float", values=group.values.astype(np.float64))


def _penalty(_: Problem, group: Group) -> Group:
    if group.element in ("float", "flag"):
        return group
    return replace(group, element="float", values=np.where(group.values != 0, 0.0, -1e4))


def _ignored(_: Problem, __: Group) -> None:
    return None


def _ignored_beside_others(problem: Problem, group: Group) -> Group | None:
    return None if len(problem.groups) > 1 else group


def _ignored_with_weights(problem: Problem, group: Group) -> Group | None:
    return None if any(name in problem.outputs for name in WEIGHTS) else group


def _transposed(problem: Problem, group: Group) -> Group:
    """A mask without an axis of queries lies along them instead."""
    if problem.seq_len_q != problem.seq_len_k or problem.seq_len_q == 1:
        return group
    return replace(group, values=group.values.swapaxes(-1, -2))


def _first_item(_: Problem, group: Group) -> Group:
    return replace(group, values=group.values[:1]) if group.values.shape[0] > 1 else group


def _first_head(_: Problem, group: Group) -> Group:
    return replace(group, values=group.values[:, :1]) if group.values.shape[1] > 1 else group


def _first_query(_: Problem, group: Group) -> Group:
    return replace(group, values=group.values[:, :, :1]) if group.values.shape[2] > 1 else group


def _items_tiled(problem: Problem, group: Group) -> Group:
    """Give row b * num_heads + h of a folded axis the mask of item (b * num_heads + h) % batch: tiled, not repeated."""
    if group.values.shape[0] == 1 or group.values.shape[1] > 1 or problem.num_heads == 1:
        return group
    rows = np.arange(problem.batch * problem.num_heads) % problem.batch
    folded = group.values[:, 0][rows]
    return replace(group, values=folded.reshape(problem.batch, problem.num_heads, *folded.shape[1:]))


def _items_as_queries(problem: Problem, group: Group) -> Group:
    """Line (batch, seq_len_k) up with the last two axes, where there are as many items as queries."""
    items, heads, queries, _ = group.values.shape
    if items == 1 or heads > 1 or queries > 1 or items != problem.seq_len_q:
        return group
    return replace(group, values=group.values.transpose(1, 2, 0, 3))


def _items_as_heads(problem: Problem, group: Group) -> Group:
    """Exchange the axes of items and heads of a mask that spans one of them, where they are of one size."""
    items, heads = group.values.shape[:2]
    if problem.batch != problem.num_heads or (items > 1) == (heads > 1):
        return group
    return replace(group, values=group.values.swapaxes(0, 1))


def _heads_major(problem: Problem, group: Group) -> Group:
    """Take row b * num_heads + h of a folded axis for that of head (b * num_heads + h) // batch."""
    batch, heads = problem.batch, problem.num_heads
    if batch == 1 or heads == 1 or group.values.shape[:2] == (1, 1):
        return group
    full = np.broadcast_to(group.values, (batch, heads, *group.values.shape[2:]))
    folded = full.reshape(heads, batch, *full.shape[2:])
    return replace(group, values=folded.swapaxes(0, 1))


def _one_minus(slot: str) -> Callable[[Steps, str], Steps]:
    """Add (1 - mask) * -1e9 in place of a float mask, in the score dtype."""

    def apply(steps: Steps, score: str) -> Steps:
        def add(state: State) -> State:
            bias = _bias_one_minus(state.problem, slot, max(-1e9, -largest(score)))
            if bias is None:
                return ordinary(state)
            extra = state.scaled.shape[-1] - state.problem.seq_len_k
            bias = widened(whole_rows(bias, state.problem.seq_len_k), extra, fill=0.0)
            with np.errstate(invalid="ignore"):
                logits = round_to(state.capped + bias, score)
                return state.but(bias=bias, logits=logits, absorbed=_swallowed(state.capped, bias, score))

        ordinary = next(step.apply for step in steps if step.name == "bias")
        return replace_step(steps, "bias", add)

    return apply


def _swallowed(scaled: Array, bias: Array, score: str) -> Array:
    """Rows that a bias leaves with one number as their logits, even if those were twice as large, of either sign."""
    with np.errstate(invalid="ignore"):
        kept = [(round_to(bias + factor * scaled, score) == bias).all(axis=-1) for factor in (-2.0, 2.0)]
    finite = np.isfinite(bias)
    lowest, highest = np.where(finite, bias, np.inf).min(axis=-1), np.where(finite, bias, -np.inf).max(axis=-1)
    return np.asarray(kept[0] & kept[1] & (lowest == highest))


def _bias_one_minus(problem: Problem, slot: str, amount: float) -> Array | None:
    """The sum of all that is added, or None where `slot` is no float mask; broadcastable to the logits."""
    if not any(group.slot == slot and group.element == "float" for group in problem.groups):
        return None
    added = [
        (1.0 - group.values) * amount if group.slot == slot else group.values
        for group in problem.groups
        if group.element == "float"
    ]
    with np.errstate(invalid="ignore"):
        return np.asarray(sum(added[1:], start=added[0]))


def slot_variations(slot: str) -> tuple[Variation, ...]:
    """Every way in which the argument `slot` of a call can be misread."""

    def row(family: str, name: str, sentence: str, remedy: str, change: Callable[..., Group | None]) -> Variation:
        return Variation(f"{family}[{slot}]", name, sentence, remedy, "problem", problem=_on_slot(slot, change))

    return (
        row("polarity", "ignore", f"reads True in {slot} as: ignore this key", f"pass ~{slot}", _inverted),
        row(
            "float_mask",
            "cast_to_bool",
            f"casts a float {slot} to bool, so that 0 ignores and anything else attends",
            f"pass a boolean {slot}",
            _float_as_bool,
        ),
        Variation(
            f"float_mask[{slot}]",
            "one_minus",
            f"takes 1 in a float {slot} for attend and adds (1 - {slot}) * -1e9 to the logits",
            f"pass {slot} as 1 = attend and 0 = ignore",
            "steps",
            steps=_one_minus(slot),
            bounded=False,
        ),
        row(
            "float_mask",
            "subtracted",
            f"subtracts a float {slot} from the logits",
            f"pass -{slot}",
            _float_subtracted,
        ),
        row(
            "number_mask",
            "added",
            f"adds the numbers of an integer or boolean {slot} to the logits",
            f"pass {slot} as 0 and -inf",
            _number_added,
        ),
        row(
            "penalty",
            "minus_1e4",
            f"adds -1e4 where a boolean or integer {slot} masks: a large logit still wins",
            "keep logits small",
            _penalty,
        ),
        row("use", "ignored", f"ignores {slot}", f"do not rely on {slot}", _ignored),
        row(
            "use",
            "ignored_beside_others",
            f"ignores {slot} when another mask is given",
            "fold all masks into one",
            _ignored_beside_others,
        ),
        row(
            "use",
            "ignored_with_weights",
            f"ignores {slot} when weights are asked for",
            "do not ask for weights",
            _ignored_with_weights,
        ),
        row("mask_axes", "transposed", f"transposes {slot} when it is square", f"transpose {slot}", _transposed),
        row(
            "mask_axes",
            "first_item",
            f"applies {slot} of the first item of the batch to every item",
            "call once per item",
            _first_item,
        ),
        row("mask_axes", "first_head", f"applies {slot} of the first head to every head", "", _first_head),
        row("mask_axes", "first_query", f"applies {slot} of the first query to every query", "", _first_query),
        row(
            "mask_axes",
            "items_tiled",
            f"tiles the items of {slot} over the axis batch * num_heads, where each is to be repeated",
            f"repeat each item of {slot} num_heads times",
            _items_tiled,
        ),
        row(
            "mask_axes",
            "items_as_queries",
            f"takes the items of {slot} for queries, when there are as many",
            f"give {slot} all four axes",
            _items_as_queries,
        ),
        row(
            "mask_axes",
            "items_as_heads",
            f"takes the items of {slot} for heads, and heads for items, when there are as many",
            f"give {slot} all four axes",
            _items_as_heads,
        ),
        row(
            "mask_axes",
            "heads_major",
            f"unfolds the axis batch * num_heads of {slot} with the heads first",
            f"repeat {slot} in the order of heads, then items",
            _heads_major,
        ),
    )
