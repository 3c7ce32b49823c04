"""A dialect that explains a reply is closer to it, in the largest error or in all errors together."""

import numpy as np
import pytest

from conformance.bounds.bound import Bound
from conformance.deviations.deviation import Expected
from conformance.diagnosis.suspect import is_closer
from conformance.spec.problem import Array
from conformance.spec.rounding import to_tensor
from conformance.verdicts.expectation import Expectation

SHAPE = (3, 5)
GOT = np.zeros(SHAPE)


def off_by(largest: float, rest: float) -> dict[str, Expected]:
    """An answer that differs from GOT by `largest` in one element, and by `rest` in the fourteen others."""
    values = np.full(SHAPE, rest)
    values[1, 2] = largest
    return {"output": Expected(values, "float32")}


def declared(values: dict[str, Expected]) -> Expectation:
    """The expectation with these values and a tolerance of 1 everywhere."""
    one, nothing = np.ones(SHAPE), np.zeros(SHAPE)
    return Expectation({}, values, {"output": Bound(one, nothing, one, one.astype(bool), one, nothing)})


@pytest.mark.parametrize(
    ("before", "under", "found"),
    [
        ((9.0, 0.5), (6.0, 0.5), True),  # the largest error falls by a factor of 1.5
        ((9.0, 0.5), (8.0, 0.5), False),
        ((9.0, 2.0), (9.0, 0.1), False),  # 9^2 + 14 * 2^2 = 137 against 81: less than twice as far off
        ((9.0, 6.0), (9.0, 0.1), True),  # 9^2 + 14 * 6^2 = 585 against 81
        ((9.0, 0.5), (10.0, 0.6), False),
    ],
)
def test_by_the_largest_error_or_by_all_together(
    before: tuple[float, float], under: tuple[float, float], found: object
) -> None:
    actual = {"output": to_tensor(GOT, "float32")}
    assert is_closer(actual, declared(off_by(*before)), off_by(*under)) is found


@pytest.mark.parametrize("values", [np.full(SHAPE, np.nan), np.zeros((5, 3))])
def test_what_is_no_matter_of_distance_is_closer(values: Array) -> None:
    actual = {"output": to_tensor(GOT, "float32")}
    before = declared(off_by(9.0, 0.5))
    assert is_closer(actual, Expectation({}, {"output": Expected(values, "float32")}, before.bounds), off_by(9.0, 0.5))


def test_infinity_where_nan_is_expected_is_no_matter_of_distance() -> None:
    infinite = np.where(np.arange(5) < 2, np.inf, GOT)
    before = declared({"output": Expected(np.where(np.isinf(infinite), np.nan, infinite), "float32")})
    actual = {"output": to_tensor(infinite, "float32")}
    assert is_closer(actual, before, {"output": Expected(infinite, "float32")})
