"""Whether a failing reply is nearer to another answer than to the declared one: what explains it brings it nearer."""

from collections.abc import Mapping

import numpy as np

from conformance.bridge.tensor import Tensor
from conformance.deviations.deviation import Reply
from conformance.judge.expectation import Expectation
from conformance.spec.problem import Array

AT_MOST = 1.25
"""The largest error, in tolerances, falls by this factor at least,"""
TOGETHER = 2.0
"""or the root mean square of all errors by this one."""
EXACT = 1e-3
"""Where the declared answer is exact, errors count in this part of what the two answers are apart."""


def is_closer(actual: Mapping[str, Tensor], declared: Expectation, reply: Reply) -> bool:
    """
    Whether `reply`, with which the finite numbers of `actual` agree, is nearer to them than what is declared.

    A bound that is wider than the declared one can hold a reply that goes another way.
    """
    return any(_closer(actual[name], declared, name, reply[name].values) for name in reply)


def _closer(actual: Tensor, declared: Expectation, name: str, other: Array) -> bool:
    first, tolerance, got = declared.reply[name], declared.bounds[name].tolerance, actual.float64()
    if first.values.shape != got.shape or first.dtype != actual.dtype:
        return True
    if not np.array_equal(np.isfinite(first.values), np.isfinite(got)):
        return True
    with np.errstate(invalid="ignore", divide="ignore"):
        far, near = (np.nan_to_num(np.abs(got - values), nan=0.0) for values in (first.values, other))
        unit = np.where(tolerance == 0.0, EXACT * np.abs(first.values - other), tolerance)
        most_far, most_near = (float(np.max(np.where(e == 0, 0, e / unit), initial=0.0)) for e in (far, near))
    fallen = most_far > AT_MOST * most_near
    return fallen or float(np.sum(far**2)) > TOGETHER**2 * float(np.sum(near**2))
