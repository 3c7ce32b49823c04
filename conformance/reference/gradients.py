"""
The gradients of attention by reverse accumulation, in one code that runs exactly or with declared roundings as noise.

L = sum(grad_output * output): through the projections of mha to the inputs and parameters; `backward` does the heads.
"""

import numpy as np

from conformance.reference.arithmetic import EXACT, Arithmetic
from conformance.reference.backward import Heads, backward
from conformance.reference.state import State
from conformance.reference.steps import merge_heads, split_heads
from conformance.spec.problem import GRADIENT, Array

Gradients = dict[str, Array]
"""`grad_NAME` -> the gradient of the loss by NAME, of the shape of NAME."""


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
        raise ValueError("a problem that asks for gradients needs grad_output")
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
