"""
Attention forward and backward, from the heads as they meet to the gradients by them.

With P the weights, O = P V, dO the gradient of the context:

    dV = P^T dO,   dP = dO V^T,   dS = P (dP - rowsum(dO O)),   dQ = c dS K,   dK = c dS^T Q

(the backward pass of Dao et al., FlashAttention, 2022, section 3.1 and appendix B.4). P is recomputed from the
log-sum-exp of the forward pass, as fused kernels do. Weights of rows without an attended key are taken as they are;
they are constants, unless a finite number was added to their logits.
"""

from dataclasses import dataclass

import numpy as np

from conformance.reference.arithmetic import SCALE_TIMES, Arithmetic
from conformance.reference.state import State
from conformance.reference.steps import attended
from conformance.spec.problem import Array


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
    lost = (state.dead | state.absorbed)[..., None] & (not state.normalises)
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
