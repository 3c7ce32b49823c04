"""
Compares one output with the oracle: shape, dtype, positions of non-finite values, then values within the bound.

docs/tolerance.md, sections 1, 4 and 11, defines the rules and their order.

Repeated replies to one call are compared with each other: the same, nondeterministic, or order dependent. The call is
repeated three times in a row in the old worker, so that two of the replies follow the very same call. It is repeated
more often if another call of the subject had two different replies. Then it is made once alone in a fresh worker. Two
replies are the same if all their bits are equal.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from conformance.bounds.bound import Bound
from conformance.bridge.profile import Profile
from conformance.bridge.tensor import Tensor
from conformance.deviations.deviation import Expected
from conformance.spec.problem import GRADIENT, Array
from conformance.spec.rounding import smallest_subnormal

# Maximum root mean square of error / standard deviation of a correct implementation (largest measured: 1.00).
RMS_LIMIT = 1.25
# Minimum number of elements for which the root mean square is judged; with fewer it is too noisy.
RMS_ELEMENTS = 64
# Number of elements, the first ones, that are nearly always enough to see as many different ones.
RMS_LOOK = 1024
# Minimum share of the elements that need a meaningful tolerance; below it the cell is inconclusive.
COVERAGE = 0.9


def has_rms_gate(profile: Profile) -> bool:
    """
    Whether the RMS gate applies: only if errors of different elements are independent.

    Those of a half-precision accumulator, which stagnates, are not. Neither are those of 3xTF32: what it drops from
    products of positive numbers is always positive.
    """
    return profile.acc in ("float32", "float64") and profile.mm != "tf32x3"


def rms_limit(name: str, expected: Array) -> float | None:
    """
    The limit of the root mean square; None for few elements, and for gradients, whose elements share weights.

    Equal elements are the same computation, and have the same error: if all keys are equal, so are the results of all
    queries. What the limit allows beyond 1, for chance, grows as with so few elements: with the inverse of the square
    root of their number.
    """
    if expected.size < RMS_ELEMENTS or name.startswith(GRADIENT):
        return None
    flat = expected.ravel()
    different = np.unique(flat[:RMS_LOOK]).size
    if different < RMS_ELEMENTS:
        different = np.unique(flat).size
    return 1.0 + (RMS_LIMIT - 1.0) * max(1.0, math.sqrt(RMS_ELEMENTS / different))


@dataclass(frozen=True, eq=False)
class OutputComparison:
    """
    The result of comparing one output with the oracle.

    verdict: pass, fail or inconclusive. budget: the share of the bound that is used; at most 1 conforms; inf if a rule
    without a tolerance is broken. impossible: whether no implementation of the declared arithmetic can produce the
    output. numbers: goes into the run log unchanged.
    """

    output: str
    verdict: str
    budget: float
    impossible: bool
    message: str
    numbers: dict[str, Any] = field(default_factory=dict)


def compare(name: str, expected: Expected, actual: Tensor, bound: Bound, *, rms_gate: bool) -> OutputComparison:
    """Compare the output `name` with the oracle; rms_gate: whether the RMS gate applies to the declared profile."""
    if actual.shape != expected.values.shape:
        return _broken(name, f"shape {actual.shape}, expected {expected.values.shape}")
    if actual.dtype != expected.dtype:
        return _broken(name, f"dtype {actual.dtype}, expected {expected.dtype}")
    values = actual.float64()
    if (pattern := _pattern(name, expected.values, values, bound)) is not None:
        return pattern
    return _values(name, expected.values, values, bound, rms_gate=rms_gate)


def _broken(name: str, message: str, **numbers: Any) -> OutputComparison:
    return OutputComparison(name, "fail", float("inf"), impossible=True, message=f"{name}: {message}", numbers=numbers)


# The kinds of elements, by number.
KINDS = ("finite", "NaN", "inf", "-inf")


def kinds(values: Array) -> Array:
    """The kind of each element, as an index of KINDS."""
    if np.isfinite(values).all():
        return np.zeros(values.shape, dtype=np.int8)
    return np.select([np.isnan(values), values == np.inf, values == -np.inf], [1, 2, 3], 0)


def elements_beyond(expected: Array, actual: Array, tolerance: Array) -> int:
    """The number of elements beyond the bound; NaN or an infinity is within it where the same is expected."""
    as_expected = ~np.isfinite(expected) & (kinds(actual) == kinds(expected))
    with np.errstate(invalid="ignore"):
        within = budgets(np.abs(actual - expected), tolerance) <= 1.0
    return int((~(within | as_expected)).sum())


def _pattern(name: str, expected: Array, actual: Array, bound: Bound) -> OutputComparison | None:
    """Check that non-finite values are exactly where the oracle has them; elements that are not judged are skipped."""
    wrong = (kinds(expected) != kinds(actual)) & bound.judged
    if not wrong.any():
        return None
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    count = int(wrong.sum())
    got, due = (" or ".join(KINDS[kind] for kind in np.unique(kinds(values)[wrong])) for values in (actual, expected))
    message = (
        f"{count} of {wrong.size} elements are {got} where {due.replace(KINDS[0], 'a finite number')} is expected: "
        f"{actual[at]:.6g} at {list(at)}, expected {expected[at]:.6g}"
    )
    return _broken(
        name,
        message,
        at=list(at),
        expected=float(expected[at]),
        actual=float(actual[at]),
        beyond=count,
        elements=int(wrong.size),
        beyond_worst=True,
    )


def beyond(expected: Expected, actual: Tensor, bound: Bound) -> Array | None:
    """Which elements are beyond the bound or of the wrong kind; None if shape or dtype differ."""
    if actual.shape != expected.values.shape or actual.dtype != expected.dtype:
        return None
    values = actual.float64()
    with np.errstate(invalid="ignore"):
        far = np.abs(values - expected.values) > bound.tolerance
    return np.asarray((far | (kinds(expected.values) != kinds(values))) & bound.judged)


def budgets(error: Array, tolerance: Array) -> Array:
    """Error / tolerance of each element; 0/0 is 0, any other error over 0 is inf."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(error == 0, 0.0, error / tolerance)


def counted_variance(bound: Bound) -> Array:
    """
    The variance that the squared error of each element is compared with; 0 where the element does not count.

    The hard part of the bound is modelled as uniform and independent between elements. The common part may be attained
    by all elements at once.
    """
    with np.errstate(over="ignore"):  # bounds of a suspect's far-off numbers may be huge
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


def _values(name: str, expected: Array, actual: Array, bound: Bound, *, rms_gate: bool) -> OutputComparison:
    finite = np.isfinite(expected) & np.isfinite(actual) & bound.judged
    error = np.where(finite, np.abs(np.where(finite, actual, 0.0) - np.where(finite, expected, 0.0)), 0.0)
    tolerance = bound.tolerance
    used = budgets(error, tolerance)
    rms = root_mean_square(error, bound)
    limit = rms_limit(name, expected) if rms_gate else None
    largest = float(used.max(initial=0.0))
    budget = max(largest, rms / limit if limit else 0.0)
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
    return OutputComparison(name, verdict, budget, impossible and verdict == "fail", message, numbers)


def _worst_position(used: Array, error: Array) -> tuple[int, ...]:
    """The index of the element that uses most of its tolerance; of equal ones, that with the largest error."""
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
        return "fail", f"{name}: {count}; worst: {where}"
    if budget > 1.0:
        rms = f"root mean square of error / expected standard deviation of the error is {numbers['rms']:.3g}"
        return "fail", f"{name}: {rms}, allowed {numbers['rms'] / budget:.3g}; worst: {where}"
    if coverage < COVERAGE:
        return "inconclusive", (
            f"{name}: only {coverage:.0%} of the elements have a meaningful tolerance ({COVERAGE:.0%} needed): "
            "the bounds of the others are too wide to judge them"
        )
    return "pass", f"{name}: {budget:.0%} of the allowed error used"


def differs(one: Expected, other: Expected, bound: Bound) -> bool:
    """Whether two oracle outputs differ beyond the bound of the first, or in shape, dtype or non-finite values."""
    if one.values.shape != other.values.shape or one.dtype != other.dtype:
        return True
    if bool(np.any(kinds(one.values) != kinds(other.values))):
        return True
    with np.errstate(invalid="ignore"):
        gap = np.nan_to_num(np.abs(one.values - other.values), nan=0.0)
    return bool(np.any(gap > bound.tolerance))


def distance(one: Expected, other: Expected, bound: Bound) -> float:
    """
    The largest difference of two oracle outputs, in units of the first one's bound.

    It is inf if shape, dtype or the positions of non-finite values differ. A difference below the smallest subnormal of
    the dtype counts as 0: rounding can make such numbers equal.
    """
    if one.dtype != other.dtype or one.values.shape != other.values.shape:
        return float("inf")
    if one.values is other.values:
        return 0.0
    if not np.array_equal(kinds(one.values), kinds(other.values)):
        return float("inf")
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        gap = np.abs(one.values - other.values)
        used = np.where(gap < smallest_subnormal(one.dtype), 0.0, gap) / bound.tolerance
    # NaN: 0/0, or both values are non-finite and of the same kind
    return float(np.fmax.reduce(used, axis=None, initial=0.0))


# The classes of non-reproducible replies, the most severe first.
NON_REPRODUCIBLE = (NONDETERMINISTIC, ORDER_DEPENDENT) = ("nondeterministic", "order_dependent")
# Number of times that a call is repeated in the same worker.
IN_A_ROW = 3

# The reply to a call; None if it raised an exception.
Reply = Mapping[str, Tensor] | None


@dataclass(frozen=True)
class Repetition:
    """
    The result of repeating one call.

    found: `same`, or one of NON_REPRODUCIBLE with the reason. again, alone: how many times the call was repeated in the
    same worker and in a fresh one.
    """

    found: str
    again: int
    alone: int
    reason: str = ""


def repetition(first: Reply, again: Sequence[Reply], alone: Sequence[Reply]) -> Repetition:
    """Compare the replies to one call: the first, those in the same worker in order, and those in a fresh worker."""
    counts = (len(again), len(alone))
    # the first reply of a row is left out: it follows a different call
    in_a_row = (pair for row in (again[:IN_A_ROW], again[IN_A_ROW:]) for pair in pairwise(row[1:]))
    for one, other in in_a_row:
        if how := _spread(one, other):
            return Repetition(
                NONDETERMINISTIC, *counts, f"the same call, made twice in a row, returns two different results: {how}"
            )
    for where, others in (("after other calls", again), ("alone in a fresh worker", alone)):
        for other in others:
            if how := _spread(other, first):
                return Repetition(ORDER_DEPENDENT, *counts, f"{where}, the same call returns a different result: {how}")
    return Repetition("same", *counts)


def _spread(one: Reply, other: Reply) -> str:
    """Describe the first difference of two replies; "" if they are the same."""
    if one is None or other is None:
        return "" if one is other else "one of the two calls raises an exception"
    return next((how for name, tensor in one.items() if (how := _difference(name, tensor, other[name]))), "")


def _difference(name: str, one: Tensor, other: Tensor) -> str:
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return f"{name} is {one.dtype} {list(one.shape)}, then {other.dtype} {list(other.shape)}"
    if one.bits.tobytes() == other.bits.tobytes():
        return ""
    first, second = one.float64(), other.float64()
    with np.errstate(invalid="ignore"):
        gap = np.where(first == second, 0.0, np.abs(first - second))
    gap = np.where(np.isnan(gap) & ~(np.isnan(first) & np.isnan(second)), np.inf, np.nan_to_num(gap, nan=0.0))
    at = np.unravel_index(int(gap.argmax()), gap.shape)
    return f"{name} {first[at]:.9g}, then {second[at]:.9g} at {[int(each) for each in at]}"
