"""
One output against the oracle: shape, dtype, pattern of non-finite values, then values within the bound.

The rules and their order are those of docs/tolerance.md, sections 1, 4 and 11.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from conformance.bounds.bound import Bound
from conformance.bridge.profile import Profile
from conformance.bridge.tensor import Tensor
from conformance.deviations.deviation import Expected
from conformance.spec.problem import GRADIENT, Array
from conformance.spec.rounding import smallest_subnormal

# The root mean square of error / standard deviation that no correct implementation exceeds (measured: 1.00).
RMS_LIMIT = 1.25
# Below this many elements the root mean square is too noisy to judge by.
RMS_ELEMENTS = 64
# A cell of which a smaller part has a meaningful tolerance is inconclusive.
COVERAGE = 0.9


def has_rms_gate(profile: Profile) -> bool:
    """Whether the second gate holds: a half-precision accumulator stagnates, which no independent errors model."""
    return profile.acc in ("float32", "float64")


def averages(name: str, size: int) -> bool:
    """Whether errors of an output average: a few do not, nor those of a gradient, which share recomputed weights."""
    return size >= RMS_ELEMENTS and not name.startswith(GRADIENT)


@dataclass(frozen=True, eq=False)
class Comparison:
    """
    How one output stands; `numbers` goes into the run log as it is.

    verdict: pass, fail or inconclusive. budget: the one number people read, at most 1 conforms; inf where a
    rule without a tolerance is broken. impossible: what no implementation of the declared arithmetic can produce.
    """

    output: str
    verdict: str
    budget: float
    impossible: bool
    message: str
    numbers: dict[str, Any] = field(default_factory=dict)


def compare(name: str, expected: Expected, actual: Tensor, bound: Bound, *, rms_gate: bool) -> Comparison:
    """Judge the output `name`; rms_gate says whether the second gate holds for the declared accumulator."""
    if actual.shape != expected.values.shape:
        return _broken(name, f"shape {actual.shape}, expected {expected.values.shape}")
    if actual.dtype != expected.dtype:
        return _broken(name, f"dtype {actual.dtype}, expected {expected.dtype}")
    values = actual.float64()
    if (pattern := _pattern(name, expected.values, values, bound)) is not None:
        return pattern
    return _values(name, expected.values, values, bound, rms_gate=rms_gate)


def _broken(name: str, what: str, **numbers: Any) -> Comparison:
    return Comparison(name, "fail", float("inf"), impossible=True, message=f"{name}: {what}", numbers=numbers)


def _kind(values: Array) -> Array:
    """0 for a finite number, 1 for NaN, 2 and 3 for the infinities."""
    if np.isfinite(values).all():
        return np.zeros(values.shape, dtype=np.int8)
    return np.select([np.isnan(values), values == np.inf, values == -np.inf], [1, 2, 3], 0)


def _pattern(name: str, expected: Array, actual: Array, bound: Bound) -> Comparison | None:
    """Non-finite values must stand exactly where the oracle has them (not asked where nothing is judged)."""
    wrong = (_kind(expected) != _kind(actual)) & bound.judged
    if not wrong.any():
        return None
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    count = int(wrong.sum())
    what = (
        f"{count} of {wrong.size} elements are of the wrong kind (NaN, infinite or finite): "
        f"{actual[at]:.6g} at {list(at)}, expected {expected[at]:.6g}"
    )
    return _broken(
        name,
        what,
        at=list(at),
        expected=float(expected[at]),
        actual=float(actual[at]),
        beyond=count,
        elements=int(wrong.size),
        beyond_worst=True,
    )


def beyond(expected: Expected, actual: Tensor, bound: Bound) -> Array | None:
    """Which elements lie beyond the bound, or differ in being finite; None if shape or dtype is another."""
    if actual.shape != expected.values.shape or actual.dtype != expected.dtype:
        return None
    values = actual.float64()
    with np.errstate(invalid="ignore"):
        far = np.abs(values - expected.values) > bound.tolerance
    return np.asarray((far | (_kind(expected.values) != _kind(values))) & bound.judged)


def budgets(error: Array, tolerance: Array) -> Array:
    """Error / tolerance by element; 0/0 is 0, anything else over 0 is infinite."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(error == 0, 0.0, error / tolerance)


def counted_variance(bound: Bound) -> Array:
    """
    What the square of an element's error is compared with; 0 where the element does not count.

    What is hard is uniform within its limits, at random from element to element; what is common may be attained by all.
    """
    with np.errstate(over="ignore"):  # of a suspect: numbers that are far off have bounds as wide
        variance = bound.sigma**2 + (bound.hard - bound.common) ** 2 / 3 + bound.common**2
    return np.where(bound.judged, variance, 0.0)


def root_mean_square(error: Array, bound: Bound) -> float:
    """Root mean square of error / sqrt(counted_variance), over the elements that count."""
    variance = counted_variance(bound)
    counted = (variance > 0) & np.isfinite(error) & np.isfinite(variance)
    if not counted.any():
        return 0.0
    with np.errstate(over="ignore"):
        return float(np.sqrt(np.mean(error[counted] ** 2 / variance[counted])))


def _values(name: str, expected: Array, actual: Array, bound: Bound, *, rms_gate: bool) -> Comparison:
    finite = np.isfinite(expected) & np.isfinite(actual) & bound.judged
    error = np.where(finite, np.abs(np.where(finite, actual, 0.0) - np.where(finite, expected, 0.0)), 0.0)
    tolerance = bound.tolerance
    used = budgets(error, tolerance)
    rms = root_mean_square(error, bound)
    gated = rms_gate and averages(name, error.size)
    largest = float(used.max(initial=0.0))
    budget = max(largest, rms / RMS_LIMIT if gated else 0.0)
    coverage = bound.coverage
    at = _worst_position(used, error)
    beyond = int((used > 1.0).sum())
    impossible = bool(np.any(error > bound.worst))
    numbers = {
        "max_error": float(error.max(initial=0.0)),
        "at": list(at),
        "expected": float(expected[at]) if used.size else 0.0,
        "actual": float(actual[at]) if used.size else 0.0,
        "error": float(error[at]) if used.size else 0.0,
        "bound": float(tolerance[at]) if used.size else 0.0,
        "rms": rms,
        "coverage": coverage,
        "not_judged": int((~bound.judged).sum()),
        "beyond": beyond,
        "elements": int(error.size),
        "beyond_worst": impossible,
    }
    verdict, message = _decide(name, numbers, budget, largest, coverage)
    return Comparison(name, verdict, budget, impossible and verdict == "fail", message, numbers)


def _worst_position(used: Array, error: Array) -> tuple[int, ...]:
    """Where most of the tolerance is used; among places that have none, where the error is largest."""
    if not used.size:
        return ()
    candidates = np.where(used == used.max(), error, -1.0)
    return tuple(int(i) for i in np.unravel_index(int(candidates.argmax()), used.shape))


def _decide(name: str, numbers: dict[str, Any], budget: float, largest: float, coverage: float) -> tuple[str, str]:
    where = (
        f"error {numbers['error']:.3g} at {numbers['at']} "
        f"({numbers['actual']:.9g}, expected {numbers['expected']:.9g}), allowed {numbers['bound']:.3g}"
    )
    if largest > 1.0:
        count = f"{numbers['beyond']} of {numbers['elements']} elements beyond the bound"
        return "fail", f"{name}: {count}; {where}"
    if budget > 1.0:
        rms = f"root mean square of error / standard deviation is {numbers['rms']:.3g}, allowed {RMS_LIMIT}"
        return "fail", f"{name}: {rms}; largest {where}"
    if coverage < COVERAGE:
        return "inconclusive", (
            f"{name}: only {coverage:.0%} of the elements have a meaningful tolerance ({COVERAGE:.0%} needed)"
        )
    return "pass", f"{name}: {budget:.0%} of the allowed error used"


def differs(one: Expected, other: Expected, bound: Bound) -> bool:
    """Whether two oracles disagree beyond the bound of the first, or in shape, dtype or non-finite pattern."""
    if one.values.shape != other.values.shape or one.dtype != other.dtype:
        return True
    if bool(np.any(_kind(one.values) != _kind(other.values))):
        return True
    with np.errstate(invalid="ignore"):
        gap = np.nan_to_num(np.abs(one.values - other.values), nan=0.0)
    return bool(np.any(gap > bound.tolerance))


def distance(one: Expected, other: Expected, bound: Bound) -> float:
    """
    How many bounds of the first two oracles are apart; inf where shape, dtype or non-finite pattern differ.

    Numbers that are less apart than the smallest one of their dtype may be the same, rounded.
    """
    if one.dtype != other.dtype or one.values.shape != other.values.shape:
        return float("inf")
    if one.values is other.values:
        return 0.0
    if not np.array_equal(_kind(one.values), _kind(other.values)):
        return float("inf")
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        apart = np.abs(one.values - other.values)
        used = np.where(apart < smallest_subnormal(one.dtype), 0.0, apart) / bound.tolerance
    # NaN is 0/0, or where both are alike in not being finite
    return float(np.fmax.reduce(used, axis=None, initial=0.0))
