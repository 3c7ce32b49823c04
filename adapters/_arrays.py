"""Conversion of tensors to NumPy arrays, bit for bit. Adapters of frameworks that take NumPy arrays share it."""

from typing import Any

import ml_dtypes

from conformance.bridge import Tensor


def to_numpy(tensor: Tensor) -> Any:
    """Return a NumPy array with the bits of the tensor. A bfloat16 array has the dtype of ml_dtypes."""
    return tensor.bits.view(ml_dtypes.bfloat16) if tensor.dtype == "bfloat16" else tensor.bits
