"""Rounding to the dtypes under test: exact, and the same with every NumPy version."""

from collections.abc import Callable
from typing import Any

import numpy as np

from conformance.bridge.tensor import Tensor

Array = np.ndarray[Any, Any]

FORMATS = {
    # significand bits including the hidden one, smallest normal exponent, largest exponent
    "float64": (53, -1022, 1023),
    "float32": (24, -126, 127),
    "tf32": (11, -126, 127),
    "float16": (11, -14, 15),
    "bfloat16": (8, -126, 127),
}


def largest(dtype: str) -> float:
    """Return the largest finite number of `dtype`."""
    bits, _, top = FORMATS[dtype]
    return (2.0 - 2.0 ** (1 - bits)) * 2.0**top


def smallest_normal(dtype: str) -> float:
    """Return the smallest positive normal number of `dtype`."""
    return float(2.0 ** FORMATS[dtype][1])


def smallest_subnormal(dtype: str) -> float:
    """Return the smallest positive number of `dtype`."""
    bits, low, _ = FORMATS[dtype]
    return float(2.0 ** (low - bits + 1))


def round_to(values: Array, dtype: str) -> Array:
    """
    Round float64 `values` to the nearest number of `dtype`, ties to even; the result is still float64.

    Results beyond the largest number are infinite; NaN and infinities are unchanged. Each value is rounded only once:
    a conversion to float16 through float32 would round twice.
    """
    if dtype == "float32":  # NumPy rounds once, and much faster
        with np.errstate(invalid="ignore", over="ignore"):
            return np.asarray(values, dtype=np.float64).astype(np.float32).astype(np.float64)
    return _to_integers(values, dtype, np.rint)


def truncate_to(values: Array, dtype: str) -> Array:
    """Round float64 `values` towards zero to numbers of `dtype`, as `round_to` does to the nearest."""
    return _to_integers(values, dtype, np.trunc)


def _to_integers(values: Array, dtype: str, to_integer: Callable[[Array], Array]) -> Array:
    """Round values, in units of the last place of `dtype`, to integers."""
    exact = np.asarray(values, dtype=np.float64)
    if dtype == "float64":
        return exact.copy()
    bits, low, _ = FORMATS[dtype]
    with np.errstate(invalid="ignore", over="ignore"):
        _, exponent = np.frexp(exact)
        quantum = np.ldexp(1.0, np.maximum(exponent - 1, low) - (bits - 1))
        rounded = np.where(np.isfinite(exact), to_integer(exact / quantum) * quantum, exact)
        return np.where(np.isfinite(exact) & (np.abs(rounded) > largest(dtype)), np.copysign(np.inf, exact), rounded)


def to_tensor(values: Array, dtype: str) -> Tensor:
    """
    Convert values that are exact in `dtype` to a tensor (problems are rounded once, when they are made).

    Raises:
        ValueError: a value is not exact in `dtype`, so the conversion would change it.
    """
    exact = np.ascontiguousarray(values, dtype=np.float64)
    if dtype == "bfloat16":
        wide = exact.astype(np.float32)
        tensor = Tensor(dtype, (wide.view(np.uint32) >> np.uint32(16)).astype(np.uint16))
    else:
        with np.errstate(over="ignore"):
            tensor = Tensor(dtype, exact.astype(dtype))
    sent = tensor.float64()
    if not (np.array_equal(sent, exact) or np.array_equal(sent, exact, equal_nan=True)):  # the first is faster
        raise ValueError(f"values are not exact in {dtype}: round them first")
    return tensor
