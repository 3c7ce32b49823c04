"""Rounding compared with NumPy's dtypes, and with bit operations for bfloat16, which NumPy lacks."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from conformance.spec.rounding import (
    FORMATS,
    largest,
    round_to,
    smallest_normal,
    smallest_subnormal,
    to_tensor,
    truncate_to,
)

SIGNALLING_NAN = float(np.uint64(0x7FF0000000000001).view(np.float64))
FLOATS = st.floats(allow_nan=True, allow_infinity=True)
DTYPES = ("float64", "float32", "float16", "bfloat16")


@settings(deadline=None)
@given(FLOATS, st.sampled_from(["float64", "float32", "float16"]))
@example(65519.99999999999, "float16")
@example(65520.0, "float16")
@example(2.0**-25, "float16")
@example(-(2.0**-25) * (1 + 2.0**-52), "float16")
@example(1 + 2.0**-11, "float16")
@example(-0.0, "float32")
@example(SIGNALLING_NAN, "float32")
def test_rounding_is_that_of_numpy(value: float, dtype: str) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        expected = np.float64(value).astype(dtype).astype(np.float64)
    rounded = round_to(np.array([value]), dtype)
    np.testing.assert_array_equal(rounded, [expected])
    np.testing.assert_array_equal(np.signbit(rounded), np.signbit([expected]))


@settings(deadline=None)
@given(st.floats(width=32, allow_nan=False))
def test_bfloat16_is_the_upper_half_of_float32(value: float) -> None:
    bits = int(np.float32(value).view(np.uint32))
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    expected = np.uint32(bits).view(np.float32).astype(np.float64)
    np.testing.assert_array_equal(round_to(np.array([value]), "bfloat16"), [expected])


@settings(deadline=None)
@given(st.floats(width=32, allow_nan=False))
@example(2.0 - 2.0**-23)
@example(-(2.0**-126) * (1.0 - 2.0**-23))
def test_truncated_tf32_is_float32_without_its_last_13_bits(value: float) -> None:
    bits = int(np.float32(value).view(np.uint32)) & 0xFFFFE000
    expected = np.uint32(bits).view(np.float32).astype(np.float64)
    np.testing.assert_array_equal(truncate_to(np.array([value]), "tf32"), [expected])


@pytest.mark.parametrize("dtype", FORMATS)
def test_limits_of_a_dtype_are_its_own_numbers(dtype: str) -> None:
    limits = np.array([largest(dtype), smallest_normal(dtype), smallest_subnormal(dtype), 1.0, 0.0])
    np.testing.assert_array_equal(round_to(limits, dtype), limits)
    if dtype != "float64":
        assert round_to(np.array(smallest_subnormal(dtype) / 2), dtype) == 0
        assert round_to(np.array(largest(dtype) * (1 + 2.0**-20)), dtype) in (largest(dtype), np.inf)


def test_one_rounding_is_not_two() -> None:
    """The value is just above a tie of float16. Float32 rounds it to the tie, and float16 rounds the tie to even."""
    value = np.array(1 + 2.0**-11 + 2.0**-40)
    assert round_to(value, "float16") == 1 + 2.0**-10
    assert round_to(round_to(value, "float32"), "float16") == 1


@settings(deadline=None)
@given(st.lists(FLOATS, min_size=1, max_size=5), st.sampled_from(DTYPES))
def test_a_tensor_holds_what_was_rounded(values: list[float], dtype: str) -> None:
    rounded = round_to(np.array(values), dtype)
    np.testing.assert_array_equal(to_tensor(rounded, dtype).float64(), rounded)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_tensor_of_numbers_that_were_not_rounded_is_refused(dtype: str) -> None:
    with pytest.raises(ValueError, match=f"values are not exact in {dtype}"):
        to_tensor(np.array([0.1]), dtype)
