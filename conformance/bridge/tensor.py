"""Arrays with the name of their dtype (NumPy has no bfloat16), and their memory layouts."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

# Name of a dtype -> NumPy dtype of its bits.
STORAGE = {
    "float64": "float64",
    "float32": "float32",
    "float16": "float16",
    "bfloat16": "uint16",
    "bool": "bool",
    "int8": "int8",
    "uint8": "uint8",
    "int16": "int16",
    "int32": "int32",
    "int64": "int64",
}


@dataclass(frozen=True, eq=False)
class Tensor:
    """
    An array: `dtype` is a key of STORAGE, `bits` a C-contiguous array of dtype STORAGE[dtype].

    Raises:
        ValueError: the dtype is not in STORAGE, or the bits have another dtype.
    """

    dtype: str
    bits: np.ndarray[Any, Any]

    def __post_init__(self) -> None:
        if self.dtype not in STORAGE:
            raise ValueError(f"dtype {self.dtype!r} is not supported; supported dtypes are {', '.join(STORAGE)}")
        if self.bits.dtype.name != STORAGE[self.dtype]:
            raise ValueError(f"a {self.dtype} tensor is stored as {STORAGE[self.dtype]}, not {self.bits.dtype.name}")

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the axes."""
        return tuple(self.bits.shape)

    @cached_property
    def digest(self) -> bytes:
        """The sha256 of dtype, shape and bits, computed once: most tensors are sent to many subjects."""
        about = f"{self.dtype} {self.shape} ".encode()
        return hashlib.sha256(about + np.ascontiguousarray(self.bits).tobytes()).digest()

    @classmethod
    def of(cls, value: Any) -> "Tensor":
        """
        Wrap a NumPy array (also of dtype bfloat16 from ml_dtypes); return a Tensor unchanged.

        Raises:
            ValueError: the array's dtype is not in STORAGE, or it is a masked array with masked elements.
        """
        if isinstance(value, Tensor):
            return value
        if isinstance(value, np.ma.MaskedArray) and (masked := int(np.ma.getmaskarray(value).sum())):
            raise ValueError(
                f"{masked} of {value.size} elements of a masked array have no value: fill them, or return the data"
            )
        array = np.asarray(value)
        array = array if array.flags["C_CONTIGUOUS"] else array.copy(order="C")
        name = array.dtype.name
        return cls(name, array.view(np.uint16) if name == "bfloat16" else array)

    def float64(self) -> np.ndarray[Any, Any]:
        """The values as float64; exact for every dtype except int64 beyond 2**53."""
        if self.dtype == "bfloat16":
            return (self.bits.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
        return self.bits.astype(np.float64)


# Memory layouts.
# contiguous: dense, C order.
# transposed: the sequence axis and the axis before it are swapped in memory. (batch, num_heads, seq_len, head_dim) is a
#   view of (batch, seq_len, num_heads, head_dim), and (batch, seq_len, dim) a view of (seq_len, batch, dim).
# column_major: the last two axes are swapped in memory.
# offset: each row is preceded by a number that the view skips, so that the data does not begin where the memory does.
# expanded: one batch element, viewed as the whole batch with a stride of zero.
LAYOUTS = ("contiguous", "transposed", "column_major", "offset", "expanded")


@dataclass(frozen=True, eq=False)
class Strided:
    """A strided view of one-dimensional `memory` (of the storage dtype); strides and offset are in elements."""

    memory: "np.ndarray[Any, Any]"
    shape: "tuple[int, ...]"
    strides: "tuple[int, ...]"
    offset: int

    def view(self) -> "np.ndarray[Any, Any]":
        """The view as a NumPy array, without a copy."""
        size = self.memory.itemsize
        steps = tuple(stride * size for stride in self.strides)
        return np.lib.stride_tricks.as_strided(self.memory[self.offset :], self.shape, steps)


def strided(tensor: Tensor, layout: str) -> Strided:
    """
    Copy a query, key or value into new memory of the given layout.

    Raises:
        ValueError: the layout is unknown, or it is "expanded" and the batch elements differ.
    """
    array = tensor.bits
    if layout == "expanded":
        if any(element.tobytes() != array[0].tobytes() for element in array):  # `==` is False for NaN
            raise ValueError("layout expanded needs equal batch elements, but they differ")
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
