"""
What holds between two replies of one subject, whatever it computes: a change of the problem, and what follows from it.

Whether it does is seen in `judge/relations.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from conformance.judge.changes import (
    with_last_key_changed,
    with_mask_as_floats,
    with_padded_key,
    with_poison,
    with_visible_values_changed,
)
from conformance.judge.rearranging import PARAMETERS, axes_of, blocks, expanded, take, take_heads, take_items, take_keys
from conformance.spec.problem import Array, Problem

Change = Callable[[Problem], Problem | None]
"""The changed problem; None where a problem cannot be changed so."""

Follow = Callable[[Problem, str, Array], Array]
"""What an output of the changed problem must be, made of the same output of the first: (problem, output, values)."""


def _alike(_: Problem, __: str, values: Array) -> Array:
    return values


@dataclass(frozen=True)
class Invariant:
    """
    A change and the relation that follows.

    sentence: what an implementation does that breaks it, after "it". moves: the reply must be another one wherever the
    oracle says so; else it must follow.
    """

    name: str
    sentence: str
    change: Change
    follow: Follow = _alike
    moves: bool = False


def _reversed(size: int) -> list[int]:
    return list(range(size))[::-1]


def _permuted_keys(problem: Problem) -> Problem | None:
    if _is_ordered(problem):
        return None
    return take_keys(problem, _reversed(problem.seq_len_k)) if problem.seq_len_k > 1 else None


def _is_ordered(problem: Problem) -> bool:
    """Whether a mask says something about the order of the keys."""
    return any(group.ordered for group in problem.groups)


def _with_keys_permuted(problem: Problem, output: str, values: Array) -> Array:
    axes, order = axes_of(output, problem.operator), _reversed(problem.seq_len_k)
    last = range(problem.seq_len_k, problem.weights_shape[-1])  # keys that the layer appends stay where they are
    moved = take(values, axes, "k", [*order, *last])
    return take(moved, axes, "q", order) if problem.alias == "qkv" else moved


def _permuted_heads(problem: Problem) -> Problem | None:
    if problem.num_kv_heads == 1 or not problem.params.keys() <= PARAMETERS:
        return None
    if problem.residual and _side_by_side(problem):  # the query that is added stays where it is
        return None
    return take_heads(problem, _reversed(problem.num_kv_heads))


def _with_heads_permuted(problem: Problem, output: str, values: Array) -> Array:
    heads = expanded(problem, _reversed(problem.num_kv_heads))
    if output == "output" and _side_by_side(problem):
        return blocks(values, problem.value_dim, heads)
    return take(values, axes_of(output, problem.operator), "h", heads)


def _side_by_side(problem: Problem) -> bool:
    """Whether the output has a block of features for each head."""
    return problem.operator == "mha" and "wo" not in problem.params


def _last_item(problem: Problem) -> Problem | None:
    if problem.differentiated:  # a gradient by a parameter sums over the items
        return None
    return take_items(problem, [problem.batch - 1]) if problem.batch > 1 else None


def _of_last_item(problem: Problem, _: str, values: Array) -> Array:
    return np.take(values, [problem.batch - 1], axis=0)


def _with_key_appended(problem: Problem, output: str, values: Array) -> Array:
    """Weights get a zero for the appended key, before those that the layer appends."""
    if "k" not in axes_of(output, problem.operator):
        return values
    return np.insert(values, problem.seq_len_k, 0.0, axis=-1)


INVARIANTS: tuple[Invariant, ...] = (
    Invariant(
        "visible_keys",
        "does not use a value that the mask allows it to attend",
        with_visible_values_changed,
        moves=True,
    ),
    Invariant(
        "key_order",
        "returns a different result when keys, values and masks are reordered together",
        _permuted_keys,
        _with_keys_permuted,
    ),
    Invariant(
        "head_order",
        "returns a different result when the heads are reordered",
        _permuted_heads,
        _with_heads_permuted,
    ),
    Invariant(
        "batch_of_one",
        "returns a different result for a batch element when it is the only one",
        _last_item,
        _of_last_item,
    ),
    Invariant(
        "padded_key",
        "returns a different result when a masked key is appended",
        with_padded_key,
        _with_key_appended,
    ),
    Invariant(
        "last_key",
        "lets the last key change queries that must not attend it",
        with_last_key_changed,
    ),
    Invariant(
        "mask_convention",
        "returns a different result when the same mask is passed as numbers that are added",
        with_mask_as_floats,
    ),
    Invariant(
        "poisoned_key",
        "lets NaN in a key that no query attends reach the result",
        lambda problem: with_poison(problem, "key"),
    ),
    Invariant(
        "poisoned_value",
        "lets NaN in a value that no query attends reach the result",
        lambda problem: with_poison(problem, "value"),
    ),
)
