"""Simulated arithmetic: attention as an implementation computes it that rounds where a profile says."""

import numpy as np

from conformance.bridge.profile import Profile
from conformance.reference.gradients import Arithmetic, entering, forward, gradients, heads_of, merged_output
from conformance.reference.steps import State
from conformance.spec.problem import Array
from conformance.spec.rounding import round_to, truncate_to


class Rounded(Arithmetic):
    """
    Arithmetic that rounds every result to the dtype that a profile has for it.

    inputs: whether the inputs are rounded. fused: whether logits are rounded only after they are scaled, and weights
    before they are normalised.
    """

    def __init__(self, profile: Profile, *, inputs: bool = True, fused: bool = False) -> None:
        """Store what is rounded."""
        self._profile, self._inputs, self.fused = profile, inputs, fused

    def _dtype(self, field: str) -> str | None:
        if (field == "entry" and not self._inputs) or (field == "product" and self.fused):
            return None
        name = {"entry": "store", "product": "score"}.get(field, field)
        found: str | None = getattr(self._profile, name)
        return self._profile.acc if field == "bias_sum" and found is None else found

    def rounded(self, values: Array, field: str) -> Array:
        """Round values as when they are stored; nothing is rounded for a field without a dtype."""
        dtype = self._dtype(field)
        if dtype is None:
            return values
        cut = dtype.endswith("_truncated") or (self._profile.truncated and field in ("store", "product"))
        return (truncate_to if cut else round_to)(values, dtype.removesuffix("_truncated"))

    def _is_wide(self, accumulator: str | None) -> bool:
        """Whether the errors of an accumulator are those of the ordinary arithmetic of the inputs, or smaller."""
        return accumulator in ("float64", None) or (accumulator == "float32" and self._profile.store != "float64")

    def dot(self, one: Array, other: Array) -> Array:
        """Matrix product of rounded operands; a narrow accumulator rounds after each term."""
        one, other = self.rounded(one, "mm"), self.rounded(other, "mm")
        if self._is_wide(self._profile.acc):
            return super().dot(one, other)
        total = np.zeros(())
        for term in range(one.shape[-1]):
            total = self.rounded(total + one[..., term, None] * other[..., term, None, :], "acc")
        return total

    def total(self, terms: Array, field: str) -> Array:
        """Sum over the last axis, which is kept with size one; a narrow sum rounds after each term."""
        if self._is_wide(self._dtype(field)):
            return super().total(terms, field)
        total = np.zeros(())
        for term in range(terms.shape[-1]):
            total = self.rounded(total + terms[..., term, None], field)
        return total


def simulated(state: State, arithmetic: Rounded) -> dict[str, Array]:
    """
    Compute the requested outputs of the problem of `state`: output, weights of each head, and gradients.

    `state` provides the attended positions, the bias, the scale, and the weights of rows whose weights are constant.
    """
    problem = state.problem
    with np.errstate(invalid="ignore", over="ignore"):  # a narrow dtype may overflow
        inputs = entering(state, arithmetic)
        heads = heads_of(state, inputs, arithmetic)
        ran = forward(state, heads, arithmetic)
        context = ran.context
        if arithmetic.fused:
            unnormalised = arithmetic.rounded(ran.probs * ran.total, "prob")
            context = arithmetic.rounded(arithmetic.dot(unnormalised, heads.value) / ran.total, "store")
        made = {"output": merged_output(state, inputs, context, arithmetic), "weights": ran.probs}
        made |= gradients(state, arithmetic) if problem.differentiated else {}
    return {name: made[name] for name in problem.outputs if name in made}
