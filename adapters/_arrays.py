"""Tensors to NumPy arrays, bit for bit: shared by the adapters of frameworks that take NumPy arrays."""

from typing import Any

import ml_dtypes

from conformance.bridge import Tensor


def to_numpy(tensor: Tensor) -> Any:
    """The same bits as a NumPy array."""
    return tensor.bits.view(ml_dtypes.bfloat16) if tensor.dtype == "bfloat16" else tensor.bits
