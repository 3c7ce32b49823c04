"""Relations that must hold between two replies of one subject, and the check whether they hold."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

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

# Returns the changed problem, or None if the change does not apply to the problem.
Change = Callable[[Problem], Problem | None]

# Computes, from an output of the original problem, what the same output of the changed problem must be.
# Arguments: original problem, output name, output values.
Follow = Callable[[Problem, str, Array], Array]


def _unchanged(_: Problem, __: str, values: Array) -> Array:
    return values


@dataclass(frozen=True)
class Invariant:
    """
    A change of a problem and the relation between the two replies.

    sentence: what an implementation that breaks the relation does; completes "it ...". moves: the reply must change
    wherever the oracle's reply does. If false, the second reply must be what `follow` computes from the first.
    of_failures: whether only failing calls are tested, because the relation says little about a call that conforms.
    """

    name: str
    sentence: str
    change: Change
    follow: Follow = _unchanged
    moves: bool = False
    of_failures: bool = False


def _reversed(size: int) -> list[int]:
    return list(range(size))[::-1]


def _permuted_keys(problem: Problem) -> Problem | None:
    if _is_ordered(problem):
        return None
    return take_keys(problem, _reversed(problem.seq_len_k)) if problem.seq_len_k > 1 else None


def _is_ordered(problem: Problem) -> bool:
    """Whether a mask depends on the order of the keys."""
    return any(operand.ordered for operand in problem.mask_operands)


def _with_keys_permuted(problem: Problem, output: str, values: Array) -> Array:
    axes, order = axes_of(output, problem.operator), _reversed(problem.seq_len_k)
    last = range(problem.seq_len_k, problem.weights_shape[-1])  # keys that the layer appends stay last
    reordered = take(values, axes, "k", [*order, *last])
    return take(reordered, axes, "q", order) if problem.alias == "qkv" else reordered


def _permuted_heads(problem: Problem) -> Problem | None:
    if problem.num_kv_heads == 1 or not problem.params.keys() <= PARAMETERS:
        return None
    if problem.residual and _has_head_blocks(problem):  # the query that is added is not reordered
        return None
    return take_heads(problem, _reversed(problem.num_kv_heads))


def _with_heads_permuted(problem: Problem, output: str, values: Array) -> Array:
    heads = expanded(problem, _reversed(problem.num_kv_heads))
    if output == "output" and _has_head_blocks(problem):
        return blocks(values, problem.value_dim, heads)
    return take(values, axes_of(output, problem.operator), "h", heads)


def _has_head_blocks(problem: Problem) -> bool:
    """Whether the output has one block of features for each head."""
    return problem.operator == "mha" and "wo" not in problem.params


def _last_batch_element(problem: Problem) -> Problem | None:
    if problem.differentiated:  # the gradient of a parameter sums over the batch
        return None
    return take_batch_elements(problem, [problem.batch - 1]) if problem.batch > 1 else None


def _of_last_batch_element(problem: Problem, _: str, values: Array) -> Array:
    return np.take(values, [problem.batch - 1], axis=0)


def _permuted_batch(problem: Problem) -> Problem | None:
    if problem.differentiated:
        return None
    return take_batch_elements(problem, _reversed(problem.batch)) if problem.batch > 1 else None


def _with_batch_permuted(problem: Problem, _: str, values: Array) -> Array:
    return np.take(values, _reversed(problem.batch), axis=0)


def _with_key_appended(problem: Problem, output: str, values: Array) -> Array:
    """Insert zero weights for the padded key, ahead of the keys that the layer appends."""
    if "k" not in axes_of(output, problem.operator):
        return values
    return np.insert(values, problem.seq_len_k, 0.0, axis=-1)


INVARIANTS: tuple[Invariant, ...] = (
    Invariant(
        "visible_keys",
        "does not use the value of a key that the mask allows it to attend to",
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
        "batch_order",
        "returns a different result when the batch elements are reordered",
        _permuted_batch,
        _with_batch_permuted,
        of_failures=True,
    ),
    Invariant(
        "batch_of_one",
        "returns a different result for a batch element when it is the only one in the batch",
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
        "lets the last key change the result of queries that must not attend to it",
        with_last_key_changed,
    ),
    Invariant(
        "mask_convention",
        "returns a different result when the same mask is passed as an additive float mask",
        with_mask_as_floats,
    ),
    Invariant(
        "poisoned_key",
        "returns a different result when a key that no query attends to is NaN",
        lambda problem: with_poison(problem, "key"),
    ),
    Invariant(
        "poisoned_value",
        "returns a different result when a value that no query attends to is NaN",
        lambda problem: with_poison(problem, "value"),
    ),
)


# Minimum change of the oracle, in bounds, for which the reply must change by more than one bound.
MATTERS = 10.0


@dataclass(frozen=True, eq=False)
class RelatedReply:
    """A problem, the reply expected under the declared dialect, and the actual reply."""

    problem: Problem
    expected: Expectation
    actual: Mapping[str, Tensor]


@dataclass(frozen=True)
class Relation:
    """
    The result of checking one relation.

    found: `holds`, `broken`, or `not asked` if the relation does not hold under the declared dialect. where: for a
    broken relation, the output, the position, the numbers and the allowed difference.
    """

    name: str
    found: str
    sentence: str = ""
    where: str = ""


def relate(invariant: Invariant, first: RelatedReply, second: RelatedReply) -> Relation:
    """Check the relation between the reply to a problem and the reply to the changed problem."""
    is_checked = False
    for name, expected in second.expected.reply.items():
        if invariant.moves and name != "output":
            continue
        follow = partial(invariant.follow, first.problem, name)
        follows = follow(first.expected.reply[name].values)
        if follows.shape != expected.values.shape:
            continue
        oracle_gap = _gap(follows, expected.values)
        allowed = follow(first.expected.bounds[name].tolerance) + second.expected.bounds[name].tolerance
        if invariant.moves:
            checked = np.isfinite(oracle_gap) & (oracle_gap > MATTERS * allowed)
        else:
            checked = oracle_gap <= allowed
        if not checked.any():
            continue
        is_checked = True
        before, after = first.actual[name], second.actual[name]
        if before.shape != first.expected.reply[name].values.shape or after.shape != checked.shape:
            where = f"{name}: shape {list(before.shape)} before the change, {list(after.shape)} after it"
        else:
            where = _broken(
                invariant, name, (follow(before.float64()), after.float64()), (checked, oracle_gap, allowed)
            )
        if where:
            return Relation(invariant.name, "broken", invariant.sentence, where)
    return Relation(invariant.name, "holds" if is_checked else "not asked")


def _broken(invariant: Invariant, name: str, replies: tuple[Array, Array], oracle: tuple[Array, Array, Array]) -> str:
    """
    Describe the worst violation of a relation; "" if the relation holds.

    replies: what follows from the first reply, and the second reply. oracle: the elements where the oracle itself has
    the relation, the difference of the oracle's two answers there (replies may differ by this in addition), and the sum
    of the two bounds.
    """
    (want, have), (checked, oracle_gap, allowed) = replies, oracle
    gap, allowed = _gap(want, have), allowed + (0.0 if invariant.moves else oracle_gap)
    wrong = checked & ((gap <= allowed) if invariant.moves else (gap > allowed))
    if not wrong.any():
        return ""
    excess = np.where(wrong, -gap if invariant.moves else gap, -np.inf)
    at = np.unravel_index(int(np.argmax(excess)), gap.shape)
    position, number = [int(each) for each in at], f"{int(wrong.sum())} of {wrong.size}"
    if invariant.moves:
        return (
            f"{name}: {number} elements do not change; {have[at]:.6g} at {position} must change by {oracle_gap[at]:.3g}"
        )
    return (
        f"{name}: {number} elements differ; {have[at]:.6g} at {position}, {want[at]:.6g} before the change, "
        f"allowed difference {allowed[at]:.3g}"
    )


def _gap(one: Array, other: Array) -> Array:
    """Absolute difference of each element; inf if only one is finite, 0 if both are the same non-finite value."""
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    with np.errstate(invalid="ignore"):
        gap = np.where(same, 0.0, np.abs(one - other))
    return np.where(np.isnan(gap), np.inf, gap)
