"""The range of the values that a query may attend: what an error is compared with."""

import numpy as np

from conformance.spec.problem import Array


def extremes(reachable: Array, values: Array) -> tuple[Array, Array]:
    """
    Largest and smallest value over the keys that some query of a head may attend, two (b, h, 1, e) arrays.

    Values that no query attends are left out, however large; 0 where nothing is attended.
    """
    keys = np.any(reachable, axis=2)[..., None]
    some = np.any(keys, axis=2, keepdims=True)
    top = np.where(keys, values, -np.inf).max(axis=2, keepdims=True)
    low = np.where(keys, values, np.inf).min(axis=2, keepdims=True)
    return np.where(some, top, 0.0), np.where(some, low, 0.0)


def spread(top: Array, low: Array) -> Array:
    """The range of values; where there is only one, its size: there is nothing else to confuse it with."""
    return np.where(top > low, top - low, np.abs(top))


def farthest(top: Array, low: Array, context: Array) -> Array:
    """Distance of the context from the value farthest from it, max_j |V_j - o|, (b, h, q, e)."""
    apart: Array = np.maximum(np.maximum(top - context, context - low), 0.0)
    return apart
