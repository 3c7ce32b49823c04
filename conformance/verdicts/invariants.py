"""What holds between two replies of one subject, whatever it computes, and whether it does."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from conformance.bridge.tensor import Tensor
from conformance.spec.problem import Array, Problem
from conformance.verdicts.expectation import Expectation
from conformance.verdicts.problem_changes import (
    PARAMETERS,
    axes_of,
    blocks,
    expanded,
    take,
    take_batch_elements,
    take_heads,
    take_keys,
    with_last_key_changed,
    with_mask_as_floats,
    with_padded_key,
    with_poison,
    with_visible_values_changed,
)

# The changed problem; None where a problem cannot be changed so.
Change = Callable[[Problem], Problem | None]

# What an output of the changed problem must be, made of the same output of the first: (problem, output, values).
Follow = Callable[[Problem, str, Array], Array]


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
    return any(operand.ordered for operand in problem.mask_operands)


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


def _last_batch_element(problem: Problem) -> Problem | None:
    if problem.differentiated:  # a gradient by a parameter sums over the items
        return None
    return take_batch_elements(problem, [problem.batch - 1]) if problem.batch > 1 else None


def _of_last_batch_element(problem: Problem, _: str, values: Array) -> Array:
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
        _last_batch_element,
        _of_last_batch_element,
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


# Where the oracle moves by so many bounds, the reply must move by more than one.
MATTERS = 10.0


@dataclass(frozen=True, eq=False)
class RelatedReply:
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


def relate(invariant: Invariant, first: RelatedReply, second: RelatedReply) -> Relation:
    """See whether the relation holds between the reply to a problem and the one to the changed problem."""
    asked = False
    for name, expected in second.expected.reply.items():
        if invariant.moves and name != "output":
            continue
        follow = partial(invariant.follow, first.problem, name)
        follows = follow(first.expected.reply[name].values)
        if follows.shape != expected.values.shape:
            continue
        apart = _gap(follows, expected.values)
        allowed = follow(first.expected.bounds[name].tolerance) + second.expected.bounds[name].tolerance
        places = np.isfinite(apart) & (apart > MATTERS * allowed) if invariant.moves else apart <= allowed
        if not places.any():
            continue
        asked = True
        before, after = first.actual[name], second.actual[name]
        if before.shape != first.expected.reply[name].values.shape or after.shape != places.shape:
            where = f"{name}: shapes {list(before.shape)} and {list(after.shape)}"
        else:
            where = _broken(invariant, name, (follow(before.float64()), after.float64()), (places, apart, allowed))
        if where:
            return Relation(invariant.name, "broken", invariant.sentence, where)
    return Relation(invariant.name, "holds" if asked else "not asked")


def _broken(invariant: Invariant, name: str, replies: tuple[Array, Array], oracle: tuple[Array, Array, Array]) -> str:
    """
    Where and how much, of the place that is worst; "" where the relation holds.

    replies: what the first makes follow, and the second. oracle: where it has the relation, how far apart its own two
    answers are, by which two replies that follow may differ beside their bounds, and the sum of these.
    """
    (want, have), (places, apart, allowed) = replies, oracle
    gap, allowed = _gap(want, have), allowed + (0.0 if invariant.moves else apart)
    wrong = places & ((gap <= allowed) if invariant.moves else (gap > allowed))
    if not wrong.any():
        return ""
    excess = np.where(wrong, -gap if invariant.moves else gap, -np.inf)
    at = np.unravel_index(int(np.argmax(excess)), gap.shape)
    place, number = [int(each) for each in at], f"{int(wrong.sum())} of {wrong.size}"
    if invariant.moves:
        return f"{name}: {number} elements do not change; {have[at]:.6g} at {place} must change by {apart[at]:.3g}"
    return (
        f"{name}: {number} elements differ; {have[at]:.6g} at {place}, {want[at]:.6g} before the change, "
        f"allowed {allowed[at]:.3g}"
    )


def _gap(one: Array, other: Array) -> Array:
    """How far apart, infinite where only one is finite, zero where both are the same non-finite."""
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    with np.errstate(invalid="ignore"):
        gap = np.where(same, 0.0, np.abs(one - other))
    return np.where(np.isnan(gap), np.inf, gap)
