"""
How an array can lie in memory other than densely: the same numbers, seen through strides.

A framework that takes strided tensors sees `memory` as an array of the shape with `strides` from `offset` on, all
counted in elements: NumPy by `view`, torch by torch.as_strided.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from conformance.bridge.tensor import Tensor

LAYOUTS = ("contiguous", "transposed", "column_major", "offset", "expanded")
"""
contiguous: dense. transposed: the axis of the sequence and the one before it are exchanged in memory: (batch, seq_len,
num_heads, head_dim) seen as (batch, num_heads, seq_len, head_dim), (seq_len, batch, dim) as (batch, seq_len, dim).
column_major: the last two axes are exchanged in memory. offset: the first number of every row is not seen, so that rows
are apart and no row is aligned. expanded: one item, seen as all of the batch with a stride of zero.
"""


@dataclass(frozen=True, eq=False)
class Strided:
    """One dimension of `memory` (in the storage dtype of a Tensor), and how it is seen; strides in elements."""

    memory: "np.ndarray[Any, Any]"
    shape: "tuple[int, ...]"
    strides: "tuple[int, ...]"
    offset: int

    def view(self) -> "np.ndarray[Any, Any]":
        """The array as NumPy sees it, without a copy."""
        size = self.memory.itemsize
        steps = tuple(stride * size for stride in self.strides)
        return np.lib.stride_tricks.as_strided(self.memory[self.offset :], self.shape, steps)


def strided(tensor: Tensor, layout: str) -> Strided:
    """
    Lay a query, key or value out in memory of its own.

    Raises:
        ValueError: there is no such layout, or the items of an expanded batch differ.
    """
    array = tensor.bits
    if layout == "expanded":
        if not (array == array[:1]).all():
            raise ValueError("layout expanded is one item seen as many, but the items differ")
        dense = _dense(array[:1])
        return Strided(dense.memory, array.shape, (0, *dense.strides[1:]), 0)
    if layout == "offset":
        padded = np.zeros((*array.shape[:-1], array.shape[-1] + 1), array.dtype)
        padded[..., 1:] = array
        return Strided(padded.reshape(-1), array.shape, _dense(padded).strides, 1)
    if layout == "contiguous":
        return _dense(array)
    if layout not in LAYOUTS:
        raise ValueError(f"layout is {layout!r}, expected one of {', '.join(LAYOUTS)}")
    one, other = (-1, -2) if layout == "column_major" else (-2, -3)
    dense = _dense(array.swapaxes(one, other))
    strides = list(dense.strides)
    strides[one], strides[other] = strides[other], strides[one]
    return Strided(dense.memory, array.shape, tuple(strides), 0)


def _dense(array: "np.ndarray[Any, Any]") -> Strided:
    copy = array.copy(order="C")
    steps = tuple(step // array.itemsize for step in copy.strides)
    return Strided(copy.reshape(-1), array.shape, steps, 0)
