"""The gradients of attention by reverse accumulation: exact, or with declared roundings as noise."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from conformance.reference.steps import State, attended, merge_heads, split_heads
from conformance.spec.problem import GRADIENT, Array

# How often the scale is inexact: for its root on the query and on the key.
SCALE_TIMES = 2.0


class Arithmetic(Protocol):
    """What may err: `field` names the rounding of a profile (`Roundings`)."""

    def dot(self, one: Array, other: Array) -> Array:
        """Matrix product, accumulated."""

    def total(self, terms: Array, field: str) -> Array:
        """Sum over the last axis, kept."""

    def rounded(self, values: Array, field: str) -> Array:
        """Store values."""

    def exp(self, values: Array) -> Array:
        """Exponential of values that are at most about zero."""

    def tanh(self, values: Array) -> Array:
        """Hyperbolic tangent."""

    def constant(self, value: float, times: float) -> float:
        """A scale or a cap: one number, inexact so many times, wrong in one way everywhere."""


class Exact:
    """The arithmetic of the oracle: nothing errs."""

    def dot(self, one: Array, other: Array) -> Array:
        """Matrix product."""
        return np.asarray(one @ other)

    def total(self, terms: Array, field: str) -> Array:  # noqa: ARG002 - nothing is rounded here
        """Sum over the last axis, kept."""
        return np.asarray(terms.sum(axis=-1, keepdims=True))

    def rounded(self, values: Array, field: str) -> Array:  # noqa: ARG002 - nothing is rounded here
        """Give the values back."""
        return values

    def exp(self, values: Array) -> Array:
        """Exponential."""
        return np.asarray(np.exp(values))

    def tanh(self, values: Array) -> Array:
        """Hyperbolic tangent."""
        return np.asarray(np.tanh(values))

    def constant(self, value: float, times: float) -> float:  # noqa: ARG002 - nothing is inexact here
        """Give the number back."""
        return value


EXACT = Exact()


@dataclass(frozen=True, eq=False)
class Heads:
    """Query, key and value as they meet, (batch, num_heads, seq_len, dim): key and value repeated for their group."""

    query: Array
    key: Array
    value: Array


@dataclass(frozen=True, eq=False)
class Backward:
    """
    What a backward pass leaves behind, shapes (batch, num_heads, seq_len_q or seq_len_k, ...).

    query, key, value: gradients by those of `Heads`. by_scores, by_probs: by the scaled logits and by the weights.
    mean: what the softmax subtracts from by_probs. probs: the recomputed weights. context: of the forward pass.
    """

    query: Array
    key: Array
    value: Array
    by_scores: Array
    by_probs: Array
    mean: Array
    probs: Array
    context: Array


@dataclass(frozen=True)
class Bend:
    """A softcap C and 1 / C as they are held: each inexact once."""

    limit: float
    inverse: float

    @classmethod
    def of(cls, softcap: float | None, arithmetic: Arithmetic) -> "Bend | None":
        """Of a problem's softcap, or None where there is none."""
        if softcap is None:
            return None
        return cls(arithmetic.constant(softcap, 1.0), arithmetic.constant(1.0 / softcap, 1.0))


def backward(state: State, heads: Heads, grad: Array, arithmetic: Arithmetic) -> Backward:
    """Run attention forward and backward; grad: by the context, (batch, num_heads, seq_len_q, value_dim)."""
    scale, bend = arithmetic.constant(state.scale, SCALE_TIMES), Bend.of(state.problem.softcap, arithmetic)
    query, key = (arithmetic.rounded(array, "pre") for array in (heads.query, heads.key))
    closed = ~attended(state).any(axis=-1, keepdims=True)
    frozen = arithmetic.rounded(np.where(closed, state.probs, 0.0), "soft")
    logits = scores(state, query, key, scale, bend, arithmetic)[0]
    top = highest(logits)
    exponentials = weights(logits, top, arithmetic)
    total = arithmetic.total(exponentials, "sum")
    total = np.where(total == 0.0, 1.0, total)
    probs = np.where(closed, frozen, arithmetic.rounded(exponentials / total, "soft"))
    context = arithmetic.rounded(arithmetic.dot(arithmetic.rounded(probs, "prob"), heads.value), "store")
    fresh, slope = scores(state, query, key, scale, bend, arithmetic)
    again = recomputed(state, fresh, top, total, arithmetic)
    lost = (state.fully_masked | state.absorbed)[..., None] & (not state.normalises)
    again = np.where(closed, np.where(lost, 1.0, frozen), again)
    by_value = arithmetic.dot(arithmetic.rounded(again, "prob").swapaxes(-1, -2), grad)
    by_probs = arithmetic.rounded(arithmetic.dot(grad, heads.value.swapaxes(-1, -2)), "score")
    mean = arithmetic.total(grad * context, "acc")
    live = (~closed | state.passes) & (again > 0.0)
    by_scores = np.where(live, again * arithmetic.rounded(by_probs - mean, "soft"), 0.0)
    by_scores = arithmetic.rounded(arithmetic.rounded(by_scores, "soft"), "prob")
    by_scores = by_scores if bend is None else unbent(bend, by_scores, slope, arithmetic)
    by_query = scale * arithmetic.rounded(arithmetic.dot(by_scores, key), "pre")
    by_key = scale * arithmetic.rounded(arithmetic.dot(by_scores.swapaxes(-1, -2), query), "pre")
    return Backward(by_query, by_key, by_value, by_scores, by_probs, mean, again, context)


def recomputed(state: State, fresh: Array, top: Array, total: Array, arithmetic: Arithmetic) -> Array:
    """
    The weights of the backward pass, exp(s - lse) with lse = top + log(total).

    Where top is so large that adding the logarithm leaves it as it is, lse cannot tell the sum: the weights are
    exp(s - top), divided by the sum if that is kept elsewhere.
    """
    again = weights(fresh, arithmetic.rounded(top + np.log(total), "lse"), arithmetic)
    swallowing = top + np.log(2.0) == top
    if not swallowing.any():
        return again
    alike = weights(fresh, top, arithmetic) / (total if state.normalises else 1.0)
    return np.where(swallowing, alike, again)


def scores(
    state: State, query: Array, key: Array, scale: float, bend: Bend | None, arithmetic: Arithmetic
) -> tuple[Array, Array]:
    """Logits as the softmax sees them, -inf where not attended, and their derivative by the scaled products."""
    scaled = arithmetic.rounded(arithmetic.dot(query, key.swapaxes(-1, -2)), "score")
    scaled, slope = capped(bend, arithmetic.rounded(scaled * scale, "score"), arithmetic)
    visible = attended(state)
    if state.bias is not None:
        bias = np.where(visible, state.bias, 0.0)
        total = scaled + bias
        scaled = np.where(swallowed(scaled, bias), total, arithmetic.rounded(total, "score"))
    return np.where(visible, scaled, -np.inf), slope


def swallowed(logits: Array, bias: Array) -> Array:
    """Where a bias is so large that every logit of that size leaves the sum as it is, which is then exact."""
    return np.asarray((bias + 2.0 * np.abs(logits) == bias) & (bias - 2.0 * np.abs(logits) == bias))


def capped(bend: Bend | None, scaled: Array, arithmetic: Arithmetic) -> tuple[Array, Array]:
    """
    C tanh(a / C) and its derivative 1 - tanh^2(a / C), where there is a softcap C, in the operations of `caps`.

    The derivative comes from the tangent as it is held, and is rounded like the gradient that it is multiplied by.
    """
    if bend is None:
        return scaled, np.ones(())
    quotient = arithmetic.rounded(scaled * bend.inverse, "score")
    tangent = arithmetic.rounded(arithmetic.tanh(quotient), "score")
    slope = arithmetic.rounded(1.0 - arithmetic.rounded(tangent**2, "soft"), "soft")
    return arithmetic.rounded(bend.limit * tangent, "score"), slope


def unbent(bend: Bend, by_capped: Array, slope: Array, arithmetic: Arithmetic) -> Array:
    """The gradient by scaled products from that by capped ones, through C, the tangent and 1 / C, each rounded."""
    by_tangent = arithmetic.rounded(bend.limit * by_capped, "score")
    by_quotient = arithmetic.rounded(by_tangent * slope, "score")
    return arithmetic.rounded(by_quotient * bend.inverse, "score")


def highest(logits: Array) -> Array:
    """Largest logit of a row, (batch, num_heads, seq_len_q, 1); 0 where nothing is attended."""
    top = logits.max(axis=-1, keepdims=True)
    return np.where(top == -np.inf, 0.0, top)


def weights(logits: Array, below: Array, arithmetic: Arithmetic) -> Array:
    """exp(logit - below), exactly 0 where not attended."""
    attended = logits > -np.inf
    with np.errstate(invalid="ignore"):  # a mask that is read the other way adds infinity
        return np.where(attended, arithmetic.exp(np.where(attended, logits - below, 0.0)), 0.0)


# `grad_NAME` -> the gradient of the loss by NAME, of the shape of NAME.
Gradients = dict[str, Array]


def gradients(state: State, arithmetic: Arithmetic = EXACT) -> Gradients:
    """
    Every gradient that the problem of `state` has: by query, key, value, and in mha by each parameter.

    `state` says which positions are attended, what is added, the scale, and the weights of rows that are constants.
    """
    inputs = entering(state, arithmetic)
    heads, grad = meeting(state, inputs, arithmetic)
    back = backward(state, heads, grad, arithmetic)
    found = {"query": back.query, "key": gathered(state, back.key, arithmetic)}
    found["value"] = gathered(state, back.value, arithmetic)
    if state.problem.operator == "mha":
        found = _through_projections(state, inputs, found, back.context, arithmetic)
    return {GRADIENT + name: array for name, array in found.items()}


def _through_projections(
    state: State, inputs: dict[str, Array], heads: Gradients, context: Array, arithmetic: Arithmetic
) -> Gradients:
    """Gradients by query, key, value and every parameter, from those by the heads and the context of these."""
    found: Gradients = {}
    for name, array in heads.items():
        merged = merge_heads(arithmetic.rounded(array, "store"))
        found[name] = arithmetic.dot(merged, inputs[weight_of(name)].T)
        found |= of_linear(inputs[name], merged, name[0], bias_of(name) in inputs, arithmetic)
    found |= of_linear(merge_heads(context), inputs["output"], "o", "bo" in inputs, arithmetic)
    return {name: found[name] for name in ("query", "key", "value", *state.problem.params)}


def entering(state: State, arithmetic: Arithmetic) -> dict[str, Array]:
    """Inputs and parameters as the implementation holds them."""
    problem = state.problem
    arrays = {"query": problem.query, "key": problem.key, "value": problem.value, **problem.params}
    arrays["output"] = gradient_of_output(state)
    return {name: arithmetic.rounded(array, "entry") for name, array in arrays.items()}


def gradient_of_output(state: State) -> Array:
    """
    Return what the caller gives as the gradient of the output.

    Raises:
        ValueError: the problem asks for gradients and gives none.
    """
    if state.problem.grad_output is None:
        raise ValueError("a problem with the output gradients needs grad_output")
    return state.problem.grad_output


def meeting(state: State, inputs: dict[str, Array], arithmetic: Arithmetic) -> tuple[Heads, Array]:
    """Heads as they meet, projected in mha, and the gradient of their context."""
    problem = state.problem
    if problem.operator == "sdpa":
        heads = Heads(inputs["query"], shared(state, inputs["key"]), shared(state, inputs["value"]))
        return heads, inputs["output"]
    counts = {"query": problem.num_heads, "key": problem.num_kv_heads, "value": problem.num_kv_heads}
    split = {}
    for name, number in counts.items():
        projected = arithmetic.dot(inputs[name], inputs[weight_of(name)])
        if bias_of(name) in inputs:
            projected = arithmetic.rounded(projected + inputs[bias_of(name)], "store")
        split[name] = split_heads(arithmetic.rounded(projected, "store"), number)
    heads = Heads(split["query"], shared(state, split["key"]), shared(state, split["value"]))
    grad = arithmetic.rounded(arithmetic.dot(inputs["output"], inputs["wo"].T), "store")
    return heads, split_heads(grad, problem.num_heads)


def weight_of(name: str) -> str:
    """Name the weight that projects `name`: wq for query."""
    return "w" + name[0]


def bias_of(name: str) -> str:
    """Name the bias that is added to `name`: bq for query."""
    return "b" + name[0]


def of_linear(entered: Array, left: Array, letter: str, biased: bool, arithmetic: Arithmetic) -> Gradients:  # noqa: FBT001 - a fact of the layer
    """Gradients by weight and bias of x W + b over all batch items and positions, from x and the gradient by it."""
    flat = left.reshape(-1, left.shape[-1])
    found = {"w" + letter: arithmetic.dot(entered.reshape(-1, entered.shape[-1]).T, flat)}
    if biased:
        found["b" + letter] = arithmetic.total(flat.T, "bias_sum")[..., 0]
    return found


def shared(state: State, array: Array) -> Array:
    """Each key or value head for every query head of its group."""
    return np.repeat(array, state.problem.num_heads // state.problem.num_kv_heads, axis=1)


def gathered(state: State, array: Array, arithmetic: Arithmetic) -> Array:
    """Sum the gradients of the query heads that share a key or value head."""
    problem = state.problem
    if problem.num_heads == problem.num_kv_heads:
        return array
    batch, _, length, width = array.shape
    stored = arithmetic.rounded(array, "store").reshape(batch, problem.num_kv_heads, -1, length, width)
    return arithmetic.total(np.moveaxis(stored, 2, -1), "acc")[..., 0]
