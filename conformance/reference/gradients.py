"""The gradients of attention by reverse accumulation: exact, or with the declared roundings as noise."""

from dataclasses import dataclass

import numpy as np

from conformance.reference.steps import State, attended, merge_heads, split_heads
from conformance.spec.problem import GRADIENT, Array

# Number of roundings of the scale: its root is applied to the query and to the key.
SCALE_TIMES = 2.0


class Arithmetic:
    """
    The operations that may err; `field` names a rounding of the profile, a field of `Roundings`.

    This is the arithmetic of the oracle, without errors. Every result but sums and products passes through `rounded`.
    """

    def dot(self, one: Array, other: Array) -> Array:
        """Matrix product, accumulated."""
        return np.asarray(one @ other)

    def total(self, terms: Array, field: str) -> Array:  # noqa: ARG002 - nothing is rounded here
        """Sum over the last axis, which is kept with size one."""
        return np.asarray(terms.sum(axis=-1, keepdims=True))

    def rounded(self, values: Array, field: str) -> Array:  # noqa: ARG002 - nothing is rounded here
        """Round values as when they are stored."""
        return values

    def exp(self, values: Array) -> Array:
        """Exponential of values that are not much above zero."""
        return np.asarray(self.rounded(np.exp(values), "soft"))

    def tanh(self, values: Array) -> Array:
        """Hyperbolic tangent."""
        return np.asarray(self.rounded(np.tanh(values), "soft"))

    def constant(self, value: float, times: float) -> float:  # noqa: ARG002 - its only error is that of `rounded`
        """A scale or a softcap: one number that is rounded `times` times, with the same error everywhere."""
        return float(self.rounded(np.asarray(value), "scale"))


EXACT = Arithmetic()


@dataclass(frozen=True, eq=False)
class Heads:
    """Query, key and value of each head, (batch, num_heads, seq_len, dim); grouped key and value heads are repeated."""

    query: Array
    key: Array
    value: Array


@dataclass(frozen=True, eq=False)
class Backward:
    """
    The results of a backward pass, shapes (batch, num_heads, seq_len_q or seq_len_k, ...).

    query, key, value: gradients by the fields of `Heads`. by_scores, by_probs: gradients by the scaled logits and by
    the weights. mean: the row mean that the softmax subtracts from by_probs. probs: the recomputed weights. context:
    the output of the forward pass.
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
class Cap:
    """A softcap C and its inverse 1 / C, each rounded once."""

    limit: float
    inverse: float

    @classmethod
    def of(cls, softcap: float | None, arithmetic: Arithmetic) -> "Cap | None":
        """Make it from the softcap of a problem; None if there is none."""
        if softcap is None:
            return None
        return cls(arithmetic.constant(softcap, 1.0), arithmetic.constant(1.0 / softcap, 1.0))


@dataclass(frozen=True, eq=False)
class Forward:
    """
    The results of a forward pass, shapes (batch, num_heads, seq_len_q, ...).

    scale, cap: as they are stored. query, key: as they enter the products. top, total: the largest logit of each row,
    and the sum of the exponentials. probs: the weights. context: their products with the values.
    """

    scale: float
    cap: Cap | None
    query: Array
    key: Array
    top: Array
    total: Array
    probs: Array
    context: Array


def forward(state: State, heads: Heads, arithmetic: Arithmetic) -> Forward:
    """Run attention forward."""
    scale, cap = arithmetic.constant(state.scale, SCALE_TIMES), Cap.of(state.problem.softcap, arithmetic)
    query, key = (arithmetic.rounded(array, "pre") for array in (heads.query, heads.key))
    masked = ~attended(state).any(axis=-1, keepdims=True)
    frozen = arithmetic.rounded(np.where(masked, state.probs, 0.0), "soft")
    logits = scores(state, query, key, scale, cap, arithmetic)[0]
    top = highest(logits)
    exponentials = weights(logits, top, arithmetic)
    total = arithmetic.total(exponentials, "sum")
    total = np.where(total == 0.0, 1.0, total)
    probs = np.where(masked, frozen, arithmetic.rounded(exponentials / total, "soft"))
    context = arithmetic.rounded(arithmetic.dot(arithmetic.rounded(probs, "prob"), heads.value), "store")
    return Forward(scale, cap, query, key, top, total, probs, context)


def backward(state: State, heads: Heads, grad: Array, arithmetic: Arithmetic) -> Backward:
    """Run attention forward and backward; grad: gradient by the context, (batch, num_heads, seq_len_q, value_dim)."""
    ran = forward(state, heads, arithmetic)
    masked = ~attended(state).any(axis=-1, keepdims=True)
    logits, slope = scores(state, ran.query, ran.key, ran.scale, ran.cap, arithmetic)
    again = recomputed(state, logits, ran.top, ran.total, arithmetic)
    lost = (state.fully_masked | state.absorbed)[..., None] & (not state.normalises)
    again = np.where(masked, np.where(lost, 1.0, ran.probs), again)
    # Kernels that round the weights for the product with grad may use the rounded ones here too; others err less.
    stored = arithmetic.rounded(again, "prob")
    by_value = arithmetic.dot(stored.swapaxes(-1, -2), grad)
    by_probs = arithmetic.rounded(arithmetic.dot(grad, heads.value.swapaxes(-1, -2)), "score")
    mean = arithmetic.total(grad * ran.context, "acc")
    live = (~masked | state.passes) & (again > 0.0)
    by_scores = np.where(live, stored * arithmetic.rounded(by_probs - mean, "soft"), 0.0)
    by_scores = arithmetic.rounded(arithmetic.rounded(by_scores, "soft"), "prob")
    by_scores = by_scores if ran.cap is None else gradient_before_cap(ran.cap, by_scores, slope, arithmetic)
    by_query = ran.scale * arithmetic.rounded(arithmetic.dot(by_scores, ran.key), "pre")
    by_key = ran.scale * arithmetic.rounded(arithmetic.dot(by_scores.swapaxes(-1, -2), ran.query), "pre")
    return Backward(by_query, by_key, by_value, by_scores, by_probs, mean, again, ran.context)


def recomputed(state: State, logits: Array, top: Array, total: Array, arithmetic: Arithmetic) -> Array:
    """
    Recompute the weights for the backward pass: exp(s - lse) with lse = top + log(total).

    If top is so large that adding the logarithm does not change it, lse loses the sum: the weights are exp(s - top),
    divided by the sum only if the implementation keeps it elsewhere (`State.normalises`).
    """
    again = weights(logits, arithmetic.rounded(top + np.log(total), "lse"), arithmetic)
    swallowing = top + np.log(2.0) == top
    if not swallowing.any():
        return again
    without_sum = weights(logits, top, arithmetic) / (total if state.normalises else 1.0)
    return np.where(swallowing, without_sum, again)


def scores(
    state: State, query: Array, key: Array, scale: float, cap: Cap | None, arithmetic: Arithmetic
) -> tuple[Array, Array]:
    """Return the input of the softmax, -inf where not attended, and its derivative by the scaled products."""
    scaled = arithmetic.rounded(arithmetic.dot(query, key.swapaxes(-1, -2)), "product")
    scaled, slope = capped(cap, arithmetic.rounded(scaled * scale, "score"), arithmetic)
    visible = attended(state)
    if state.bias is not None:
        bias = np.where(visible, state.bias, 0.0)
        total = scaled + bias
        scaled = np.where(swallowed(scaled, bias), total, arithmetic.rounded(total, "score"))
    return np.where(visible, scaled, -np.inf), slope


def swallowed(logits: Array, bias: Array) -> Array:
    """Return where a bias is so large that adding logits of this size does not change it; the sum is exact there."""
    return np.asarray((bias + 2.0 * np.abs(logits) == bias) & (bias - 2.0 * np.abs(logits) == bias))


def capped(cap: Cap | None, scaled: Array, arithmetic: Arithmetic) -> tuple[Array, Array]:
    """
    Compute C tanh(a / C) and its derivative 1 - tanh^2(a / C) for a softcap C.

    The derivative is computed from the stored tanh, and rounded like the gradient that it is multiplied by.
    """
    if cap is None:
        return scaled, np.ones(())
    quotient = arithmetic.rounded(scaled * cap.inverse, "score")
    tangent = arithmetic.rounded(arithmetic.tanh(quotient), "score")
    slope = arithmetic.rounded(1.0 - arithmetic.rounded(tangent**2, "soft"), "soft")
    return arithmetic.rounded(cap.limit * tangent, "score"), slope


def gradient_before_cap(cap: Cap, by_capped: Array, slope: Array, arithmetic: Arithmetic) -> Array:
    """Convert the gradient by capped products to that by scaled products: times C, slope and 1 / C, each rounded."""
    by_tangent = arithmetic.rounded(cap.limit * by_capped, "score")
    by_quotient = arithmetic.rounded(by_tangent * slope, "score")
    return arithmetic.rounded(by_quotient * cap.inverse, "score")


def highest(logits: Array) -> Array:
    """Return the largest logit of each row, (batch, num_heads, seq_len_q, 1); 0 in fully masked rows."""
    top = logits.max(axis=-1, keepdims=True)
    return np.where(top == -np.inf, 0.0, top)


def weights(logits: Array, subtracted: Array, arithmetic: Arithmetic) -> Array:
    """Compute exp(logit - subtracted), exactly 0 where not attended."""
    attended = logits > -np.inf
    with np.errstate(invalid="ignore"):  # a mask read with the opposite sign adds +inf
        return np.where(attended, arithmetic.exp(np.where(attended, logits - subtracted, 0.0)), 0.0)


# `grad_NAME` -> the gradient of the loss by NAME, of the shape of NAME.
Gradients = dict[str, Array]


def gradients(state: State, arithmetic: Arithmetic = EXACT) -> Gradients:
    """
    Compute all gradients of the problem of `state`: by query, key and value, and in mha by each parameter.

    `state` provides the attended positions, the bias, the scale, and the weights of rows whose weights are constant.
    """
    inputs = entering(state, arithmetic)
    heads, grad = meeting(state, inputs, arithmetic)
    back = backward(state, heads, grad, arithmetic)
    by_name = {"query": back.query, "key": gathered(state, back.key, arithmetic)}
    by_name["value"] = gathered(state, back.value, arithmetic)
    if state.problem.operator == "mha":
        by_name = through_projections(state, inputs, by_name, back.context, arithmetic)
    return {GRADIENT + name: array for name, array in by_name.items()}


def through_projections(
    state: State, inputs: dict[str, Array], heads: Gradients, context: Array, arithmetic: Arithmetic
) -> Gradients:
    """Compute the gradients by query, key, value and all parameters from those by the heads."""
    by_name: Gradients = {}
    for name, array in heads.items():
        merged = merge_heads(arithmetic.rounded(array, "store"))
        by_name[name] = arithmetic.dot(merged, inputs[weight_of(name)].T)
        by_name |= of_linear(inputs[name], merged, name[0], bias_of(name) in inputs, arithmetic)
    by_name |= of_linear(merge_heads(context), inputs["output"], "o", "bo" in inputs, arithmetic)
    return {name: by_name[name] for name in ("query", "key", "value", *state.problem.params)}


def entering(state: State, arithmetic: Arithmetic) -> dict[str, Array]:
    """Return inputs, parameters and the gradient of the output as the implementation stores them."""
    problem = state.problem
    arrays = {"query": problem.query, "key": problem.key, "value": problem.value, **problem.params}
    if problem.differentiated:
        arrays["output"] = gradient_of_output(state)
    return {name: arithmetic.rounded(array, "entry") for name, array in arrays.items()}


def gradient_of_output(state: State) -> Array:
    """
    Return the gradient of the loss by the output, which the caller passes.

    Raises:
        ValueError: the problem requests gradients but has no grad_output.
    """
    if state.problem.grad_output is None:
        raise ValueError("a problem with the output gradients needs grad_output")
    return state.problem.grad_output


def meeting(state: State, inputs: dict[str, Array], arithmetic: Arithmetic) -> tuple[Heads, Array]:
    """Return the heads (projected in mha) and the gradient by their context."""
    heads = heads_of(state, inputs, arithmetic)
    if state.problem.operator == "sdpa":
        return heads, inputs["output"]
    grad = arithmetic.rounded(arithmetic.dot(inputs["output"], inputs["wo"].T), "store")
    return heads, split_heads(grad, state.problem.num_heads)


def heads_of(state: State, inputs: dict[str, Array], arithmetic: Arithmetic) -> Heads:
    """Return query, key and value of each head, projected in mha."""
    problem = state.problem
    if problem.operator == "sdpa":
        return Heads(inputs["query"], shared(state, inputs["key"]), shared(state, inputs["value"]))
    counts = {"query": problem.num_heads, "key": problem.num_kv_heads, "value": problem.num_kv_heads}
    split = {}
    for name, number in counts.items():
        projected = arithmetic.dot(inputs[name], inputs[weight_of(name)])
        if bias_of(name) in inputs:
            projected = arithmetic.rounded(projected + inputs[bias_of(name)], "store")
        split[name] = split_heads(arithmetic.rounded(projected, "store"), number)
    return Heads(split["query"], shared(state, split["key"]), shared(state, split["value"]))


def merged_output(state: State, inputs: dict[str, Array], context: Array, arithmetic: Arithmetic) -> Array:
    """Return the output from the context of the heads: merged and projected in mha."""
    if state.problem.operator == "sdpa":
        return context
    output = merge_heads(context)
    if "wo" in inputs:
        output = arithmetic.rounded(arithmetic.dot(output, inputs["wo"]), "store")
    return arithmetic.rounded(output + inputs["bo"], "store") if "bo" in inputs else output


def weight_of(name: str) -> str:
    """Return the name of the weight that projects `name`: wq for query."""
    return "w" + name[0]


def bias_of(name: str) -> str:
    """Return the name of the bias that is added to `name`: bq for query."""
    return "b" + name[0]


def of_linear(x: Array, grad: Array, letter: str, biased: bool, arithmetic: Arithmetic) -> Gradients:  # noqa: FBT001 - a fact of the layer
    """Compute the gradients by weight and bias of x W + b from x and the gradient by the result, over all positions."""
    flat = grad.reshape(-1, grad.shape[-1])
    by_name = {"w" + letter: arithmetic.dot(x.reshape(-1, x.shape[-1]).T, flat)}
    if biased:
        by_name["b" + letter] = arithmetic.total(flat.T, "bias_sum")[..., 0]
    return by_name


def shared(state: State, array: Array) -> Array:
    """Repeat each key or value head for every query head of its group."""
    return np.repeat(array, state.problem.num_heads // state.problem.num_kv_heads, axis=1)


def gathered(state: State, array: Array, arithmetic: Arithmetic) -> Array:
    """Sum the gradients of the query heads that share a key or value head."""
    problem = state.problem
    if problem.num_heads == problem.num_kv_heads:
        return array
    batch, _, length, width = array.shape
    stored = arithmetic.rounded(array, "store").reshape(batch, problem.num_kv_heads, -1, length, width)
    return arithmetic.total(np.moveaxis(stored, 2, -1), "acc")[..., 0]
