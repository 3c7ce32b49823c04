"""The per-element tolerance of one output (docs/tolerance.md, sections 1 to 4)."""

from dataclasses import dataclass

import numpy as np

from conformance.spec.problem import Array

# How many standard deviations an implementation may be off: measured need is 4.3 (section 5).
SIGMAS = 8.0


@dataclass(frozen=True, eq=False)
class Bound:
    """
    How far an output may be from the oracle; every array has the shape of the output.

    hard: roundings that do not average. sigma: standard deviation of all declared roundings, to first order.
    worst: what no implementation of the declared arithmetic can exceed, in any order of summation (the (A) mark).
    judged: False where the tolerance is infinite (a score dtype of float16 may overflow). spread: the range of the
    attended values from which the element is averaged; the tolerance means something where it is below a tenth of it.
    common: the part of `hard` that one single error, an inexact constant 1/sqrt(head_dim), causes everywhere alike: it
    may be attained by all elements at once, so that it does not average over a tensor either.
    """

    hard: Array
    sigma: Array
    worst: Array
    judged: Array
    spread: Array
    common: Array

    @property
    def tolerance(self) -> Array:
        """The sum of `hard` and 8 `sigma`; infinite where not judged."""
        return np.where(self.judged, self.hard + SIGMAS * self.sigma, np.inf)

    @property
    def coverage(self) -> float:
        """Fraction of elements whose tolerance is below a tenth of the spread, or that must be exact."""
        tolerance = self.tolerance
        return float(np.mean((tolerance < 0.1 * self.spread) | (tolerance == 0.0))) if tolerance.size else 1.0
