"""What a gradient is computed with: exactly here, with declared roundings as noise in `bounds_gradients`."""

from typing import Protocol

import numpy as np

from conformance.spec.problem import Array

SCALE_TIMES = 2.0
"""How often the scale is inexact: for its root on the query and on the key."""


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
