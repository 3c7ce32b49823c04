"""What the axes of a mask argument can be misread as: variations that are made for the name of an argument."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from conformance.oracle.variation import Variation
from conformance.spec.problem import Group, Problem


def on_slot(slot: str, change: Callable[[Problem, Group], Group | None]) -> Callable[[Problem], Problem]:
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


def _padding_of_queries(problem: Problem, group: Group) -> Group:
    """The outer product of padding with itself, where there are as many queries as keys: it hides queries too."""
    if problem.seq_len_q != problem.seq_len_k or "key_padding" not in group.kinds or group.values.shape[2] > 1:
        return group
    turned = group.values.swapaxes(-1, -2)
    if group.element == "float":
        return replace(group, values=np.where(turned == -np.inf, -np.inf, group.values))
    return replace(group, element="bool", values=(group.values != 0) & (turned != 0))


def _as_lengths(_: Problem, group: Group) -> Group:
    """Every row becomes the number of keys that it attends, and those are the first."""
    if group.element in ("float", "flag"):
        return group
    attended = group.values != 0
    first = np.arange(attended.shape[-1]) < attended.sum(axis=-1, keepdims=True)
    return group if np.array_equal(first, attended) else replace(group, element="bool", values=first)


def axis_variations(slot: str) -> tuple[Variation, ...]:
    """Every way in which the axes of the argument `slot` can be misread."""

    def row(name: str, sentence: str, remedy: str, change: Callable[..., Group | None]) -> Variation:
        return Variation(f"mask_axes[{slot}]", name, sentence, remedy, "problem", problem=on_slot(slot, change))

    return (
        row("transposed", f"transposes {slot} when it is square", f"transpose {slot}", _transposed),
        row(
            "first_item",
            f"applies {slot} of the first item of the batch to every item",
            "call once per item",
            _first_item,
        ),
        row("first_head", f"applies {slot} of the first head to every head", "", _first_head),
        row("first_query", f"applies {slot} of the first query to every query", "", _first_query),
        row(
            "items_tiled",
            f"tiles the items of {slot} over the axis batch * num_heads, where each is to be repeated",
            f"repeat each item of {slot} num_heads times",
            _items_tiled,
        ),
        row(
            "items_as_queries",
            f"takes the items of {slot} for queries, when there are as many",
            f"give {slot} all four axes",
            _items_as_queries,
        ),
        row(
            "items_as_heads",
            f"takes the items of {slot} for heads, and heads for items, when there are as many",
            f"give {slot} all four axes",
            _items_as_heads,
        ),
        row(
            "padding_of_queries",
            f"hides the queries, too, at positions that {slot} hides as keys, when there are as many",
            "give the padding an axis of queries",
            _padding_of_queries,
        ),
        row(
            "as_lengths",
            f"takes from {slot} how many keys are attended, and attends so many from the first on",
            "move the padding to the end",
            _as_lengths,
        ),
    )
