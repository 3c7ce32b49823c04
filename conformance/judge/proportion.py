"""Of numbers that are wrong, by what one factor all of them are."""

from collections.abc import Iterable

import numpy as np

from conformance.spec.problem import Array

FEWEST = 8
"""Of fewer numbers a factor may be chance."""
NEAR = 1e-3
"""A factor that is so near to a whole number, or to one over it, is meant to be that."""

Side = tuple[Array, Array, Array]
"""Of the elements that are wrong: what is expected, what was returned, the tolerance."""


def proportion(sides: Iterable[Side]) -> str:
    """In words, "" where no one factor gives every number within its tolerance: "2 times the expected number"."""
    every = [np.concatenate([np.ravel(side) for side in some]) for some in zip(*sides, strict=True)]
    if not every or every[0].size < FEWEST or not all(np.isfinite(side).all() for side in every):
        return ""
    expected, actual, tolerance = every
    largest = int(np.argmax(np.abs(expected)))
    if expected[largest] == 0.0:
        return ""
    factor = _plain(float(actual[largest] / expected[largest]))
    if (np.abs(actual - factor * expected) > max(1.0, abs(factor)) * tolerance).any():
        return ""
    return _words(factor)


def _plain(factor: float) -> float:
    """The factor, or the whole number or one over it that it is near to."""
    if abs(factor) < NEAR:
        return 0.0
    whole = round(factor) if abs(factor) >= 1.0 else 1.0 / round(1.0 / factor)
    return float(whole) if abs(factor - whole) <= NEAR * abs(whole) else factor


def _words(factor: float) -> str:
    if factor == 0.0:
        return "zero"
    if factor == -1.0:
        return "the expected number with the opposite sign"
    return f"{factor:.4g} times the expected number"
