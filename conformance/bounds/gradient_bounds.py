"""
The bounds of gradients: the noise that the declared roundings cause (docs/tolerance.md, section 3, C).

The reverse accumulation of `reference.gradients` is run with each rounding replaced by an independent random error of
the same size; sigma is the root mean square of the change. No worst case is derived, so no error of a gradient is
called impossible for its size alone.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from conformance.bounds.bound import Bound
from conformance.bounds.roundings import Roundings, recursive_sum, result_rounding, roundings
from conformance.bridge.profile import Profile
from conformance.deviations.catalogue import OracleAnswer
from conformance.reference.gradients import (
    EXACT,
    Arithmetic,
    Backward,
    Gradients,
    Heads,
    backward,
    entering,
    gathered,
    gradients,
    meeting,
    through_projections,
)
from conformance.spec.problem import GRADIENT, Array
from conformance.spec.rounding import largest

# Number of random runs per sigma; the relative standard error of sigma is 1 / sqrt(2 * 32) = 12 %.
RUNS = 32

# Fixed seed, so that the noise is the same in every run of the harness.
SEED = 20261120


class Noisy(Arithmetic):
    """Arithmetic in which every rounding is replaced by a random error of the declared size."""

    def __init__(self, rounds: Roundings, generator: np.random.Generator) -> None:
        """Store the sizes of the roundings and the source of the noise."""
        self._rounds = rounds
        self._generator = generator

    def _noise(self, shape: tuple[int, ...]) -> Array:
        return self._generator.standard_normal(shape)

    def dot(self, one: Array, other: Array) -> Array:
        """
        Matrix product, with the errors of rounded operands and of a recursive sum in any order.

        Truncated operands also make it too small, all of its elements by about the same factor.
        """
        one, other = self.rounded(one, "mm"), self.rounded(other, "mm")
        product = one @ other
        if self._rounds.shrink:
            product = product * (1.0 + self._rounds.shrink * self._generator.standard_normal())
        variances = recursive_sum(one.shape[-1], product, one**2 @ other**2, self._rounds.acc)
        return np.asarray(product + self._noise(product.shape) * np.sqrt(variances))

    def total(self, terms: Array, field: str) -> Array:
        """Sum over the last axis, which is kept with size one, with the error of a recursive sum."""
        total = terms.sum(axis=-1, keepdims=True)
        squares = (terms**2).sum(axis=-1, keepdims=True)
        variances = recursive_sum(terms.shape[-1], total, squares, getattr(self._rounds, field))
        return np.asarray(total + self._noise(total.shape) * np.sqrt(variances))

    def rounded(self, values: Array, field: str) -> Array:
        """Values times 1 + u/sqrt(3) n, with n standard normal."""
        unit = getattr(self._rounds, field)
        return values if unit == 0.0 else np.asarray(values * (1.0 + unit / np.sqrt(3.0) * self._noise(values.shape)))

    def exp(self, values: Array) -> Array:
        """Exponential, with a relative error of (exp_ulp + 2|x|) u/sqrt(3)."""
        size = self._rounds.soft / np.sqrt(3.0) * (self._rounds.exp_ulp + 2.0 * np.abs(values))
        return np.asarray(np.exp(values) * (1.0 + size * self._noise(values.shape)))

    def tanh(self, values: Array) -> Array:
        """Hyperbolic tangent, with a relative error of exp_ulp u/sqrt(3)."""
        size = self._rounds.soft / np.sqrt(3.0) * self._rounds.exp_ulp
        return np.asarray(np.tanh(values) * (1.0 + size * self._noise(values.shape)))

    def constant(self, value: float, times: float) -> float:
        """A number with one relative error of `times` u: 2 for a scale that is applied in two halves."""
        return float(value * (1.0 + times * self._rounds.scale / np.sqrt(3.0) * self._generator.standard_normal()))


@dataclass(frozen=True, eq=False)
class GradientBounds:
    """The bounds of all gradients of one answer under one profile; each noise run gives all gradients at once."""

    answer: OracleAnswer
    profile: Profile

    @cached_property
    def exact(self) -> Gradients:
        """The gradients without noise."""
        return gradients(self.answer.state)

    @cached_property
    def rounds(self) -> Roundings:
        """The sizes of the roundings."""
        return roundings(self.profile, self.answer.state.problem.dtype)

    @cached_property
    def sigma(self) -> Gradients:
        """Root mean square of the changes by noise, over `RUNS` runs."""
        generator = np.random.Generator(np.random.PCG64(SEED))
        squares = {name: np.zeros_like(array) for name, array in self.exact.items()}
        for _ in range(RUNS):
            noisy = gradients(self.answer.state, Noisy(self.rounds, generator))
            for name, array in noisy.items():
                squares[name] += (array - self.exact[name]) ** 2
        return {name: np.sqrt(array / RUNS) for name, array in squares.items()}

    @cached_property
    def meeting(self) -> tuple[Heads, Array]:
        """The heads, and the gradient by their context."""
        state = self.answer.state
        return meeting(state, entering(state, EXACT), EXACT)

    @cached_property
    def backward(self) -> Backward:
        """The backward pass without noise."""
        return backward(self.answer.state, *self.meeting, EXACT)

    @cached_property
    def lost(self) -> Gradients:
        """
        The loss by underflow of a weight or of the gradient by a score, to first order.

        A number below twice the smallest normal one may be wrong by eta: eta_P |dO| in dV, eta_S c |K| in dQ,
        eta_S c |Q| in dK, where eta_S also counts the loss of the weight: eta_P |dP - mean|. A kernel may store c dS in
        place of dS: then eta_S is lost from c dS, which is eta_S / c of dS. A softcap stores the gradient by a score
        three more times. Weights do not affect the gradient by the bias of the output projection.
        """
        rounds, back, state = self.rounds, self.backward, self.answer.state
        eta, tiny = rounds.eta_prob + rounds.eta_soft, max(rounds.tiny_prob, rounds.tiny_soft)
        live = back.probs > 0.0
        weight = np.where(live & (back.probs < tiny), eta, 0.0)
        stored = eta if state.problem.softcap is None else eta + 3.0 * rounds.eta_score
        shrunk = min(1.0, abs(state.scale)) or 1.0  # with a scale of 0, nothing of dS is left that could be lost
        score = np.where(live & (np.abs(back.by_scores) * shrunk < tiny), stored / shrunk, 0.0)
        score = score + weight * np.abs(back.by_probs - back.mean)
        losses = self._passed(weight, score, np.zeros_like(back.context))
        return losses | {name: np.zeros_like(array) for name, array in losses.items() if name == GRADIENT + "bo"}

    @cached_property
    def size(self) -> Gradients:
        """The sum of absolute terms of each gradient: P |dO|, c P (|dP| + |mean|) |K|, and so on."""
        back = self.backward
        score = back.probs * (np.abs(back.by_probs) + np.abs(back.mean))
        return self._passed(back.probs, score, np.abs(back.context))

    def _passed(self, weight: Array, score: Array, context: Array) -> Gradients:
        """Propagate magnitudes of weights, gradients by the scores, and context to every gradient: through |W|, |x|."""
        state, (heads, grad) = self.answer.state, self.meeting
        sizes = {
            "query": abs(state.scale) * score @ np.abs(heads.key),
            "key": gathered(state, abs(state.scale) * score.swapaxes(-1, -2) @ np.abs(heads.query), EXACT),
            "value": gathered(state, weight.swapaxes(-1, -2) @ np.abs(grad), EXACT),
        }
        if state.problem.operator == "mha":
            inputs = {name: np.abs(array) for name, array in entering(state, EXACT).items()}
            sizes = through_projections(state, inputs, sizes, context, EXACT)
        return {GRADIENT + name: array for name, array in sizes.items()}

    def bound(self, name: str, dtype: str) -> Bound:
        """Return the bound of one gradient that is returned as `dtype`."""
        exact, sigma, lost = self.exact[name], self.sigma[name], self.lost[name]
        unit, eta = result_rounding(self.profile, dtype)
        hard = unit * np.abs(exact) + lost + np.where((sigma > 0.0) | (lost > 0.0), eta, 0.0)
        return Bound(
            hard=hard,
            sigma=sigma,
            worst=np.full_like(exact, np.inf),
            judged=np.full(exact.shape, self.fits),
            spread=self.size[name],
            common=np.zeros_like(exact),
        )

    @cached_property
    def fits(self) -> bool:
        """Whether no intermediate result can overflow its dtype; otherwise no gradient is judged."""
        state, profile, back, (heads, grad) = self.answer.state, self.profile, self.backward, self.meeting
        logits = np.where(state.allowed, np.abs(state.products), 0.0)
        stored = (heads.query, heads.value, grad, back.context, back.query, back.key, back.value)
        limits = (
            (min(largest(profile.score), largest(profile.acc)), (logits, back.by_probs)),
            (largest(profile.prob), (back.by_scores, state.scale * back.by_scores)),
            (largest(profile.store), stored),
        )
        return all(np.abs(array).max(initial=0.0) <= top for top, arrays in limits for array in arrays)


def gradient_bounds(answer: OracleAnswer, profile: Profile) -> dict[str, Bound]:
    """Return the bounds of the gradients among the outputs of `answer`."""
    names = [name for name in answer.reply if name.startswith(GRADIENT)]
    made = GradientBounds(answer, profile)
    return {name: made.bound(name, answer.reply[name].dtype) for name in names}
