"""Attention in float64, as short named steps on a record of all intermediate results."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from conformance.spec.problem import Array, Problem


@dataclass(frozen=True, eq=False)
class State:
    """
    All intermediate results of an attention call.

    query, key, value: after projection, head split and repetition of grouped heads, (batch, num_heads, seq_len,
    head_dim or value_dim). scale: the factor of the products. allowed: True = attend, shape of the logits. bias: added
    to the logits, or None. products: query . key. scaled: products * scale. capped: cap * tanh(scaled / cap), or scaled
    if there is no softcap. logits: the input of the softmax, -inf where not attended. probs: the output of the softmax.
    fully_masked: rows (batch, num_heads, seq_len_q) without an attended key. absorbed: rows whose logits a finite fill
    made equal, so that their weights are uniform. softmax_axes: the axes over which the exponentials are summed.
    subtracted: what a deviating softmax subtracts from the logits; None for the maximum over these axes. underflown:
    the weights of a row if all its exponentials become 0. added: a function of what is subtracted, which it adds to the
    sum of exponentials; None for nothing. passes: whether masked logits still depend on their products. normalises:
    whether a backward pass still divides by the sum of exponentials in a row whose logits are so large that adding its
    logarithm does not change them. context: probs . value. output, weights: the reply.
    """

    problem: Problem
    query: Array
    key: Array
    value: Array
    scale: float
    allowed: Array
    bias: Array | None
    products: Array
    scaled: Array
    capped: Array
    logits: Array
    probs: Array
    fully_masked: Array
    absorbed: Array
    softmax_axes: tuple[int, ...]
    subtracted: Array | None
    underflown: float
    added: Callable[[Array], Array] | None
    passes: bool
    normalises: bool
    context: Array
    output: Array
    weights: Array

    def but(self, **fields: Any) -> "State":
        """
        Return a copy with other `fields`; much faster than `dataclasses.replace`.

        Raises:
            TypeError: there is no such field.
        """
        changed = object.__new__(State)
        vars(changed).update(vars(self), **fields)
        if len(vars(changed)) > len(vars(self)):
            raise TypeError(f"State has no field {' or '.join(fields.keys() - vars(self).keys())}")
        return changed


def begin(problem: Problem) -> State:
    """Make the state in which nothing has been computed yet."""
    nothing = np.empty(0)
    return State(
        problem=problem,
        query=problem.query,
        key=problem.key,
        value=problem.value,
        scale=problem.applied_scale,
        allowed=problem.allowed(),
        bias=problem.bias(),
        products=nothing,
        scaled=nothing,
        capped=nothing,
        logits=nothing,
        probs=nothing,
        fully_masked=nothing,
        absorbed=np.zeros(problem.logits_shape[:3], dtype=bool),
        softmax_axes=(-1,),
        subtracted=None,
        underflown=0.0,
        added=None,
        passes=False,
        normalises=True,
        context=nothing,
        output=nothing,
        weights=nothing,
    )


def linear(x: Array, weight: Array, bias: Array | None) -> Array:
    """Compute x @ weight + bias, with weight (in, out)."""
    with np.errstate(invalid="ignore", over="ignore"):
        product = x @ weight
        return product if bias is None else product + bias


def project(state: State) -> State:
    """Apply the three input projections of multi-head attention."""
    params = state.problem.params
    projected = {
        name: linear(array, params["w" + name[0]], params.get("b" + name[0]))
        for name, array in (("query", state.query), ("key", state.key), ("value", state.value))
    }
    return state.but(**projected)


def activate(state: State) -> State:
    """Apply the activation, if any, to the projected query, key and value."""
    if state.problem.activation is None:
        return state
    return state.but(**{name: np.maximum(getattr(state, name), 0.0) for name in ("query", "key", "value")})


def split_heads(x: Array, heads: int) -> Array:
    """Reshape (batch, seq_len, heads * dim) to (batch, heads, seq_len, dim): head h has columns h*dim to (h+1)*dim."""
    batch, length, width = x.shape
    return x.reshape(batch, length, heads, width // heads).transpose(0, 2, 1, 3)


def split(state: State) -> State:
    """Split query, key and value into heads."""
    problem = state.problem
    return state.but(
        query=split_heads(state.query, problem.num_heads),
        key=split_heads(state.key, problem.num_kv_heads),
        value=split_heads(state.value, problem.num_kv_heads),
    )


def append(state: State) -> State:
    """
    Append the learned key and value, then those of zeros; masks never hide them.

    As add_bias_kv and add_zero_attn of torch.nn.MultiheadAttention: after the projection, with extended masks.
    """
    problem = state.problem
    extra = problem.weights_shape[-1] - problem.seq_len_k
    if not extra:
        return state
    return state.but(
        key=lengthened(state.key, problem.params.get("bias_k"), zero=problem.zero_key),
        value=lengthened(state.value, problem.params.get("bias_v"), zero=problem.zero_key),
        allowed=widened(state.allowed, extra, fill=True),
        bias=None if state.bias is None else widened(whole_rows(state.bias, problem.seq_len_k), extra, fill=0.0),
    )


def lengthened(array: Array, learned: Array | None, *, zero: bool) -> Array:
    """Append to (batch, heads, seq_len, dim) a learned row (heads * dim,), if any, and a row of zeros if `zero`."""
    batch, heads, _, dim = array.shape
    rows = [array]
    if learned is not None:
        rows.append(np.broadcast_to(learned.reshape(1, heads, 1, dim), (batch, heads, 1, dim)))
    if zero:
        rows.append(np.zeros((batch, heads, 1, dim)))
    return np.concatenate(rows, axis=2)


def widened(values: Array, extra: int, *, fill: float) -> Array:
    """Extend an array (..., keys) by `extra` keys with the value `fill`."""
    return np.concatenate([values, np.full((*values.shape[:-1], extra), fill, dtype=values.dtype)], axis=-1)


def whole_rows(values: Array, keys: int) -> Array:
    """Broadcast an array (..., keys or 1) to all keys."""
    return np.broadcast_to(values, (*values.shape[:-1], keys))


def group_heads(state: State) -> State:
    """Share each key and value head among consecutive query heads."""
    repeats = state.problem.num_heads // state.problem.num_kv_heads
    if repeats == 1:
        return state
    return state.but(key=np.repeat(state.key, repeats, axis=1), value=np.repeat(state.value, repeats, axis=1))


def multiply(state: State) -> State:
    """Compute query . key; NaN at a position that is not attended is masked later."""
    with np.errstate(invalid="ignore", over="ignore"):
        return state.but(products=state.query @ state.key.swapaxes(-1, -2))


def scale(state: State) -> State:
    """Multiply the products by the scale."""
    with np.errstate(invalid="ignore", over="ignore"):
        return state.but(scaled=state.products * state.scale)


def cap(state: State) -> State:
    """Apply the softcap to the scaled products, before bias and mask (ONNX Attention, opset 23)."""
    limit = state.problem.softcap
    return state.but(capped=state.scaled if limit is None else softcapped(state.scaled, limit))


def softcapped(scaled: Array, limit: float) -> Array:
    """Compute limit * tanh(scaled / limit)."""
    with np.errstate(invalid="ignore"):
        return np.asarray(limit * np.tanh(scaled / limit))


def add_bias(state: State) -> State:
    """Add the additive masks to the logits."""
    with np.errstate(invalid="ignore"):
        return state.but(logits=state.capped if state.bias is None else state.capped + state.bias)


def mask(state: State) -> State:
    """Set the logits of positions that are not attended to -inf."""
    return state.but(logits=np.where(attended(state), state.logits, -np.inf))


def attended(state: State) -> Array:
    """Return the positions masked by neither a boolean mask nor a bias of -inf, in the shape of the logits."""
    return state.allowed if state.bias is None else state.allowed & (state.bias != -np.inf)


def softmax(state: State) -> State:
    """Compute the weights over the keys; a fully masked row is NaN (0/0) here."""
    fully_masked = np.all(state.logits == -np.inf, axis=-1)
    with np.errstate(invalid="ignore"):
        exponentials = np.exp(state.logits - state.logits.max(axis=-1, keepdims=True))
        probs = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return state.but(probs=probs, fully_masked=fully_masked)


def without_logits(state: State) -> Array:
    """Return where everything over which the softmax sums is masked: fully masked rows, if it sums over the keys."""
    if state.softmax_axes == (-1,):
        return state.fully_masked[..., None]
    return np.asarray(np.all(state.logits == -np.inf, axis=state.softmax_axes, keepdims=True))


def settle_fully_masked_rows(state: State) -> State:
    """Set the weights of fully masked rows to zero (ONNX Attention since 1.23, torch SDPA)."""
    return state.but(probs=np.where(without_logits(state), 0.0, state.probs))


def weigh(state: State) -> State:
    """Compute weights . value; a masked value without weight does not reach the output, even if it is not finite."""
    value = state.value
    if not np.isfinite(value).all():
        return state.but(context=_weigh_nonfinite(state, value))
    with np.errstate(invalid="ignore"):  # weights may be NaN
        return state.but(context=state.probs @ value)


def _weigh_nonfinite(state: State, value: Array) -> Array:
    """Compute weights . value with non-finite values: an attended weight that underflowed to 0 gives 0 * inf = NaN."""
    counts = (state.probs != 0.0) | attended(state)
    with np.errstate(invalid="ignore"):
        terms = np.where(counts[..., None], state.probs[..., None] * value[..., None, :, :], 0.0)
        return np.asarray(terms.sum(axis=-2))


def merge_heads(x: Array) -> Array:
    """Reshape (batch, heads, seq_len, dim) to (batch, seq_len, heads * dim)."""
    batch, heads, length, dim = x.shape
    return x.transpose(0, 2, 1, 3).reshape(batch, length, heads * dim)


def merge(state: State) -> State:
    """Concatenate the heads."""
    return state.but(output=merge_heads(state.context))


def project_out(state: State) -> State:
    """Apply the output projection, if any."""
    params = state.problem.params
    if "wo" not in params:
        return state
    return state.but(output=linear(state.output, params["wo"], params.get("bo")))


def add_residual(state: State) -> State:
    """Add the input query to the output, if the problem has a residual."""
    return state.but(output=state.output + state.problem.query) if state.problem.residual else state


def answer_context(state: State) -> State:
    """Return the context as the output of sdpa."""
    return state.but(output=state.context)


def answer_weights(state: State) -> State:
    """Return the weights as they were multiplied by the values."""
    return state.but(weights=state.probs)
