"""The per-element tolerance of one output (docs/tolerance.md, sections 1 to 4)."""

from dataclasses import dataclass

import numpy as np

from conformance.spec.problem import Array

# Allowed error in standard deviations; measurements need 4.3 (section 5).
SIGMAS = 8.0


@dataclass(frozen=True, eq=False)
class Bound:
    """
    How far an output may be from the oracle; every array has the shape of the output.

    hard: roundings that do not average out. sigma: standard deviation of all declared roundings, to first order.
    worst: the error that no implementation of the declared arithmetic can exceed, in any order of summation (the (A)
    mark). judged: False where the tolerance is infinite (for example, a score dtype of float16 may overflow). spread:
    the range of the attended values that the element averages; the tolerance is meaningful if it is below a tenth of
    the spread. common: the part of `hard` caused by a single error, the inexact constant 1/sqrt(head_dim); all elements
    may attain it at once, so it does not average out over a tensor either.
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
