"""
What holds between two replies of one subject, whatever it computes: a change of the problem, and what follows from it.

The two replies are compared with each other, not with the oracle; how far they may be apart is the sum of their two
bounds. The oracle says only where a relation is to be asked: where it does not hold under what is declared (a uniform
average over all keys sees an appended key), nothing is.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from conformance.bridge.tensor import Tensor
from conformance.judge.changes import (
    with_last_key_changed,
    with_mask_as_floats,
    with_padded_key,
    with_poison,
    with_visible_values_changed,
)
from conformance.judge.expectation import Expectation
from conformance.judge.rearranging import PARAMETERS, axes_of, expanded, take, take_heads, take_items, take_keys
from conformance.spec.problem import Array, Problem

MATTERS = 10.0
"""Where the oracle moves by so many bounds, the reply must move by more than one."""

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

    sentence: what an implementation does that breaks it, after "it". reshapes: the changed call has another shape.
    moves: the reply must be another one wherever the oracle says so; else it must follow.
    """

    name: str
    sentence: str
    change: Change
    follow: Follow = _alike
    reshapes: bool = False
    moves: bool = False


def _reversed(size: int) -> list[int]:
    return list(range(size))[::-1]


def _permuted_keys(problem: Problem) -> Problem | None:
    if _is_ordered(problem):
        return None
    return take_keys(problem, _reversed(problem.seq_len_k)) if problem.seq_len_k > 1 else None


def _is_ordered(problem: Problem) -> bool:
    """Whether a mask says something about the order of the keys."""
    return any(group.offset is not None or group.window is not None for group in problem.groups)


def _with_keys_permuted(problem: Problem, output: str, values: Array) -> Array:
    axes, order = axes_of(output, problem.operator), _reversed(problem.seq_len_k)
    last = range(problem.seq_len_k, problem.weights_shape[-1])  # keys that the layer appends stay where they are
    moved = take(values, axes, "k", [*order, *last])
    return take(moved, axes, "q", order) if problem.alias == "qkv" else moved


def _permuted_heads(problem: Problem) -> Problem | None:
    if problem.num_kv_heads == 1 or not problem.params.keys() <= PARAMETERS:
        return None
    return take_heads(problem, _reversed(problem.num_kv_heads))


def _with_heads_permuted(problem: Problem, output: str, values: Array) -> Array:
    heads = expanded(problem, _reversed(problem.num_kv_heads))
    return take(values, axes_of(output, problem.operator), "h", heads)


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
        "does not use a value that the mask lets it see",
        with_visible_values_changed,
        moves=True,
    ),
    Invariant(
        "key_order",
        "gives another reply when keys, values and mask are put into another order",
        _permuted_keys,
        _with_keys_permuted,
    ),
    Invariant(
        "head_order",
        "gives another reply when the heads are put into another order",
        _permuted_heads,
        _with_heads_permuted,
    ),
    Invariant(
        "batch_of_one",
        "gives another reply to an item of the batch when it is asked alone",
        _last_item,
        _of_last_item,
        reshapes=True,
    ),
    Invariant(
        "padded_key",
        "gives another reply when a key is appended that the mask hides",
        with_padded_key,
        _with_key_appended,
        reshapes=True,
    ),
    Invariant(
        "last_key",
        "lets the last key reach queries that must not see it",
        with_last_key_changed,
    ),
    Invariant(
        "mask_convention",
        "gives another reply when the same mask is written as numbers that are added",
        with_mask_as_floats,
    ),
    Invariant(
        "poisoned_key",
        "lets NaN in a key that nobody attends reach the reply",
        lambda problem: with_poison(problem, "key"),
    ),
    Invariant(
        "poisoned_value",
        "lets NaN in a value that nobody attends reach the reply",
        lambda problem: with_poison(problem, "value"),
    ),
)


@dataclass(frozen=True, eq=False)
class Side:
    """A problem, what is expected under the declaration, and what came back."""

    problem: Problem
    expected: Expectation
    actual: Mapping[str, Tensor]


@dataclass(frozen=True)
class Relation:
    """
    How a relation stood: holds, broken, or not asked (it does not hold under what is declared).

    where: of a broken one, output, place, numbers, what was allowed.
    """

    name: str
    found: str
    sentence: str = ""
    where: str = ""

    def record(self) -> dict[str, Any]:
        """For the run log."""
        record = {"name": self.name, "found": self.found}
        return record | ({"sentence": self.sentence, "where": self.where} if self.found == "broken" else {})


def relate(invariant: Invariant, first: Side, second: Side) -> Relation:
    """See whether the relation holds between the reply to a problem and the one to the changed problem."""
    asked = False
    for name in second.expected.reply:
        if invariant.moves and name != "output":
            continue
        places = _asked(invariant, name, first, second)
        if places is None:
            continue
        asked = True
        if where := _broken(invariant, name, first, second, places):
            return Relation(invariant.name, "broken", invariant.sentence, where)
    return Relation(invariant.name, "holds" if asked else "not asked")


def _follow(invariant: Invariant, first: Side, name: str, values: Array) -> Array:
    return invariant.follow(first.problem, name, values)


def _allowed(invariant: Invariant, name: str, first: Side, second: Side) -> Array:
    """The sum of the two bounds."""
    return (
        _follow(invariant, first, name, first.expected.bounds[name].tolerance) + second.expected.bounds[name].tolerance
    )


def _asked(invariant: Invariant, name: str, first: Side, second: Side) -> Array | None:
    """Where the oracle has the relation under what is declared; None where nowhere."""
    want = _follow(invariant, first, name, first.expected.reply[name].values)
    have, allowed = second.expected.reply[name].values, _allowed(invariant, name, first, second)
    if want.shape != have.shape:
        return None
    gap = _gap(want, have)
    places = np.isfinite(gap) & (gap > MATTERS * allowed) if invariant.moves else gap <= allowed
    return places if places.any() else None


def _broken(invariant: Invariant, name: str, first: Side, second: Side, places: Array) -> str:
    """Where and how much, of the place that is worst; "" where the relation holds."""
    before, after = first.actual[name], second.actual[name]
    if before.shape != first.expected.reply[name].values.shape or after.shape != places.shape:
        return f"{name}: shapes {list(before.shape)} and {list(after.shape)}"
    want, have = _follow(invariant, first, name, before.float64()), after.float64()
    gap, allowed = _gap(want, have), _allowed(invariant, name, first, second)
    wrong = places & ((gap <= allowed) if invariant.moves else (gap > allowed))
    if not wrong.any():
        return ""
    excess = np.where(wrong, -gap if invariant.moves else gap, -np.inf)
    at = np.unravel_index(int(np.argmax(excess)), gap.shape)
    place, number = [int(each) for each in at], f"{int(wrong.sum())} of {wrong.size}"
    if invariant.moves:
        moved = _gap(first.expected.reply[name].values, second.expected.reply[name].values)[at]
        return (
            f"{name}: {number} elements stay as they are, such as {have[at]:.6g} at {place}, to be moved by {moved:.3g}"
        )
    return (
        f"{name}: {number} elements differ; {have[at]:.6g} at {place}, before the change {want[at]:.6g}, "
        f"allowed {allowed[at]:.3g}"
    )


def _gap(one: Array, other: Array) -> Array:
    """How far apart, infinite where only one is finite, zero where both are the same non-finite."""
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    with np.errstate(invalid="ignore"):
        gap = np.where(same, 0.0, np.abs(one - other))
    return np.where(np.isnan(gap), np.inf, gap)
