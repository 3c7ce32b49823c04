"""One output compared with the oracle: first the exact rules, then the bound, then the root mean square."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from conformance.bounds.bound import Bound
from conformance.bridge.profile import Profile
from conformance.bridge.tensor import Tensor
from conformance.deviations.deviation import Expected
from conformance.spec.problem import Array
from conformance.verdicts.compare import OutputComparison, compare, differs, elements_beyond, has_rms_gate


def bound(shape: tuple[int, ...], hard: float = 1.0, sigma: float = 0.0, worst: float = 4.0) -> Bound:
    def full(x: float) -> Array:
        return np.full(shape, x)

    return Bound(full(hard), full(sigma), full(worst), np.ones(shape, dtype=bool), full(1000.0), full(0.0))


def judged(
    expected: Array, actual: Array, limit: Bound, dtype: str = "float64", *, rms: bool = False
) -> OutputComparison:
    return compare("output", Expected(expected, dtype), Tensor.of(actual), limit, rms_gate=rms)


def test_a_wrong_shape_is_impossible_and_says_both() -> None:
    found = judged(np.zeros((2, 3)), np.zeros((3, 2)), bound((2, 3)))
    assert (found.verdict, found.impossible) == ("fail", True)
    assert found.message == "output: shape (3, 2), expected (2, 3)"


def test_a_wrong_dtype_is_impossible_also_with_equal_numbers() -> None:
    found = judged(np.zeros(3), np.zeros(3, dtype=np.float32), bound((3,)))
    assert found.message == "output: dtype float32, expected float64"
    assert found.budget == float("inf")


@pytest.mark.parametrize(("wrong", "name"), [(np.nan, "NaN"), (np.inf, "inf"), (-np.inf, "-inf")])
def test_a_non_finite_number_where_a_finite_one_belongs(wrong: float, name: str) -> None:
    found = judged(np.array([1.0, 2.0]), np.array([1.0, wrong]), bound((2,)))
    assert found.verdict == "fail"
    assert found.impossible
    kind = f"1 of 2 elements are {name} where a finite number is expected"
    assert found.message == f"output: {kind}: {wrong:.6g} at [1], expected 2"


def test_every_kind_of_wrong_element_is_said() -> None:
    found = judged(np.array([np.nan, 1.0, 2.0, 3.0]), np.array([0.0, np.nan, np.inf, 3.0]), bound((4,)))
    kind = "3 of 4 elements are finite or NaN or inf where a finite number or NaN is expected"
    assert found.message == f"output: {kind}: 0 at [0], expected nan"


def test_nan_must_be_nan() -> None:
    expected = np.array([np.nan, 1.0])
    assert judged(expected, np.array([np.nan, 1.0]), bound((2,))).verdict == "pass"
    assert judged(expected, np.array([0.0, 1.0]), bound((2,))).verdict == "fail"


def test_an_exact_zero_has_no_tolerance() -> None:
    exact = bound((2,), hard=0.0, worst=0.0)
    assert judged(np.zeros(2), np.zeros(2), exact).verdict == "pass"
    found = judged(np.zeros(2), np.array([0.0, 1e-300]), exact)
    assert found.verdict == "fail"
    assert found.budget == float("inf")


@given(st.floats(0.0, 3.0), st.floats(0.01, 2.0), st.floats(0.0, 2.0))
def test_a_value_inside_passes_and_outside_fails(fraction: float, hard: float, sigma: float) -> None:
    limit = bound((5,), hard, sigma, worst=1e9)
    error = fraction * (hard + 8 * sigma)
    found = judged(np.zeros(5), np.array([0.0, 0.0, error, 0.0, 0.0]), limit)
    assert found.budget == pytest.approx(fraction)
    if abs(fraction - 1.0) > 1e-9:
        assert found.verdict == ("pass" if fraction < 1.0 else "fail")


def test_the_message_says_what_where_how_much_and_how_much_was_allowed() -> None:
    found = judged(np.zeros((2, 3)), np.array([[0.0, 0.0, 0.0], [0.0, 2.5, 0.0]]), bound((2, 3)))
    assert found.message == (
        "output: 1 of 6 elements beyond the bound; worst: error 2.5 at [1, 1] (2.5, expected 0), allowed 1"
    )
    assert found.numbers["at"] == [1, 1]


def test_beyond_the_worst_case_is_impossible() -> None:
    assert not judged(np.zeros(2), np.array([0.0, 3.0]), bound((2,))).impossible
    assert judged(np.zeros(2), np.array([0.0, 5.0]), bound((2,))).impossible


def test_many_small_errors_fail_by_their_root_mean_square() -> None:
    limit = bound((100,), hard=0.0, sigma=1.0, worst=1e9)
    expected, errors = np.arange(100.0), np.full(100, 1.5)
    assert judged(expected, expected + errors, limit).verdict == "pass"
    found = judged(expected, expected + errors, limit, rms=True)
    assert found.verdict == "fail"
    assert found.budget == pytest.approx(1.5 / 1.25)
    assert "root mean square of error / expected standard deviation of the error is 1.5, allowed 1.25" in found.message
    few = bound((63,), 0.0, 1.0, 1e9)
    assert judged(expected[:63], (expected + errors)[:63], few, rms=True).verdict == "pass"


def test_of_few_different_elements_the_root_mean_square_may_be_larger() -> None:
    expected, limit = np.arange(64.0).repeat(100), bound((6400,), hard=0.0, sigma=1.0, worst=1e9)
    assert judged(expected, expected + 1.3, limit, rms=True).verdict == "fail"
    few = expected % 16
    assert judged(few, few + 1.3, limit, rms=True).verdict == "pass"
    found = judged(few, few + 1.6, limit, rms=True)
    assert found.verdict == "fail"
    assert found.budget == pytest.approx(1.6 / (1 + 0.25 * 2))
    assert "is 1.6, allowed 1.5" in found.message


def test_low_coverage_is_inconclusive_and_never_hides_a_failure() -> None:
    wide = bound((10,), hard=500.0)
    found = judged(np.zeros(10), np.zeros(10), wide)
    assert found.verdict == "inconclusive"
    assert (
        "only 0% of the elements have a meaningful tolerance (90% needed): the bounds of the others are too wide"
        in found.message
    )
    assert judged(np.zeros(10), np.full(10, 600.0), wide).verdict == "fail"


def test_what_is_not_judged_is_counted_and_lowers_the_coverage() -> None:
    whole = bound((10,))
    half = Bound(whole.hard, whole.sigma, whole.worst, np.arange(10) < 5, whole.spread, whole.common)
    found = judged(np.zeros(10), np.where(np.arange(10) < 5, 0.0, np.inf), half)
    assert found.verdict == "inconclusive"
    assert found.numbers["not_judged"] == 5


def test_two_oracles_differ_beyond_the_bound_or_in_form() -> None:
    limit = bound((2,))
    one = Expected(np.array([0.0, np.nan]), "float32")
    assert not differs(one, Expected(np.array([0.9, np.nan]), "float32"), limit)
    assert differs(one, Expected(np.array([1.1, np.nan]), "float32"), limit)
    assert differs(one, Expected(np.array([0.0, 0.0]), "float32"), limit)
    assert differs(one, Expected(np.array([0.0, np.nan]), "float16"), limit)
    assert differs(one, Expected(np.zeros((2, 1)), "float32"), limit)


def test_a_common_error_may_be_attained_everywhere_and_another_may_not() -> None:
    expected, errors = np.arange(100.0), np.full(100, 0.99)
    ordinary = bound((100,), worst=1e9)
    assert judged(expected, expected + errors, ordinary, rms=True).verdict == "fail"
    common = Bound(ordinary.hard, ordinary.sigma, ordinary.worst, ordinary.judged, ordinary.spread, np.ones(100))
    assert judged(expected, expected + errors, common, rms=True).verdict == "pass"


def test_the_rms_gate_needs_independent_errors() -> None:
    plain = Profile.uniform("float32")
    assert has_rms_gate(plain)
    assert has_rms_gate(plain.but(mm="tf32"))
    assert not has_rms_gate(plain.but(mm="tf32x3"))
    assert not has_rms_gate(plain.but(acc="float16"))


def test_nan_and_infinities_are_within_the_bound_where_the_same_is_expected() -> None:
    expected = np.array([[0.5, np.nan, np.inf], [-np.inf, np.nan, 0.25], [np.inf, 2.0, 3.0]])
    actual = np.array([[0.5, np.nan, np.inf], [-np.inf, 1.0, np.nan], [-np.inf, 2.5, 3.0]])
    tolerance = np.full(expected.shape, 0.125)
    assert elements_beyond(expected, expected, tolerance) == 0
    assert elements_beyond(expected, actual, tolerance) == 4
