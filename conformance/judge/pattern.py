"""An attention matrix next to the one that is expected: what may be asked of the two."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from conformance.deviations.deviation import Dialect
from conformance.oracle.evaluate import evaluate
from conformance.reference.state import State
from conformance.spec.problem import Array, Problem

SLACK = 2.0
"""Two replies are compared, each of which may err."""

CLEAR = 0.25
"""A weight that may err by a larger part of itself says nothing of its logarithm."""

FREEDOM = 4
"""A rule must hold in so many more weights than it has numbers to choose."""


@dataclass(frozen=True, eq=False)
class Pattern:
    """Weights of a problem under a dialect, expected and actual, and their tolerance: each of the logits' shape."""

    problem: Problem
    dialect: Dialect
    expected: Array
    actual: Array
    tolerance: Array

    @cached_property
    def state(self) -> State:
        """What the oracle computes on its way."""
        return evaluate(self.problem, self.dialect).state

    @cached_property
    def logits(self) -> Array:
        """What the softmax sees, -inf where nothing may be attended; without keys that are appended."""
        return self.state.logits[..., : self.expected.shape[-1]]

    @cached_property
    def wrong(self) -> Array:
        """Weights beyond the tolerance."""
        return np.asarray(np.abs(self.actual - self.expected) > self.tolerance)

    @cached_property
    def masked(self) -> Array:
        """What must have no weight."""
        return np.asarray((self.expected == 0.0) & ~np.isfinite(self.logits))

    @cached_property
    def lost(self) -> Array:
        """Weights that must not be zero and are."""
        return np.asarray((self.actual == 0.0) & (self.expected > self.tolerance))

    @cached_property
    def leaked(self) -> Array:
        """Weights that must be zero and are not."""
        return np.asarray(self.masked & self.wrong)

    @cached_property
    def relative(self) -> Array:
        """The tolerance of a weight as a part of it, as it is in the middle of its row: (..., seq_len_q, 1)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            parts = np.where(self.expected > 0.0, self.tolerance / self.expected, np.inf)
        parts = np.sort(parts, axis=-1)
        middle = np.maximum(np.sum(self.expected > 0.0, axis=-1, keepdims=True) - 1, 0) // 2
        return np.asarray(np.take_along_axis(parts, middle, axis=-1))

    @cached_property
    def clear(self) -> Array:
        """Where the logarithm of a weight tells something."""
        least = self.tolerance / CLEAR
        return np.asarray((self.expected > least) & (self.actual > least))

    @cached_property
    def change(self) -> Array:
        """log(actual / expected) where that is clear, else 0."""
        ones = np.ones(1)
        return np.log(np.where(self.clear, self.actual, ones) / np.where(self.clear, self.expected, ones))

    @cached_property
    def trust(self) -> Array:
        """How much a logarithm counts: one over its variance, at most; 0 where it tells nothing."""
        least = np.where(self.clear, np.minimum(self.expected, self.actual), 1.0)
        return np.asarray(np.where(self.clear, 1.0 / np.maximum(self.tolerance / least, 1e-15) ** 2, 0.0))

    @property
    def sums(self) -> Array:
        """What the rows add up to, (batch, num_heads, seq_len_q)."""
        return np.asarray(self.actual.sum(axis=-1))

    def centred(self, values: Array) -> Array:
        """Values less the mean of their row, over what is clear."""
        total = self.trust.sum(axis=-1, keepdims=True)
        mean = (self.trust * values).sum(axis=-1, keepdims=True) / np.where(total > 0.0, total, 1.0)
        return np.asarray(values - mean)

    def slope(self, values: Array) -> float | None:
        """How often these are added to the logits, up to one number in each row; None where too little tells."""
        most, least = (np.where(self.clear, values, -np.inf), np.where(self.clear, values, np.inf))
        varies = most.max(axis=-1) > least.min(axis=-1)
        if np.sum(self.clear[varies]) - np.sum(varies) < 1 + FREEDOM:
            return None
        steps = self.centred(values)
        square = np.sum(self.trust * steps**2)
        return float(np.sum(self.trust * steps * self.change) / square) if square > 0.0 else None

    def follows(self, added: Array, stretch: float = 1.0) -> bool:
        """Whether every weight is as if this had been added to the logits, whatever its row adds up to."""
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(self.expected) + np.where(self.expected > 0.0, added, 0.0)
            top = logs.max(axis=-1, keepdims=True)
            weights = np.exp(logs - np.where(np.isfinite(top), top, 0.0))
            parts = weights / weights.sum(axis=-1, keepdims=True)
            found = np.nan_to_num(parts) * self.sums[..., None]
            allowed = SLACK * max(1.0, stretch) * (self.tolerance + np.abs(found) * self.relative)
        return bool(np.all(np.abs(self.actual - found) <= np.where(found == 0.0, SLACK * self.tolerance, allowed)))
