"""
An array with the name of its dtype, since NumPy alone has no bfloat16.

`bits` holds the values in a NumPy dtype of the same width; bfloat16 travels as uint16 patterns, so
it crosses process and framework borders without being rounded or widened.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

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
    `dtype` is a name of STORAGE; `bits` a C-contiguous array of STORAGE[dtype].

    Raises:
        ValueError: the dtype has no name here, or the bits are stored in another width.
    """

    dtype: str
    bits: np.ndarray[Any, Any]

    def __post_init__(self) -> None:
        if self.dtype not in STORAGE:
            raise ValueError(f"dtype {self.dtype!r} cannot cross the bridge; it carries {', '.join(STORAGE)}")
        if self.bits.dtype.name != STORAGE[self.dtype]:
            raise ValueError(f"a {self.dtype} tensor is stored as {STORAGE[self.dtype]}, not {self.bits.dtype.name}")

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the axes."""
        return tuple(self.bits.shape)

    @classmethod
    def of(cls, value: Any) -> "Tensor":
        """
        Wrap a NumPy array (also one of ml_dtypes' bfloat16) or pass a Tensor through.

        Raises:
            ValueError: the array's dtype cannot cross, or it is masked: some of its elements have no value.
        """
        if isinstance(value, Tensor):
            return value
        if isinstance(value, np.ma.MaskedArray) and (masked := int(np.ma.getmaskarray(value).sum())):
            raise ValueError(
                f"{masked} of {value.size} elements of a masked array have no value: fill them, or return its data"
            )
        array = np.asarray(value)
        array = array if array.flags["C_CONTIGUOUS"] else array.copy(order="C")
        name = array.dtype.name
        return cls(name, array.view(np.uint16) if name == "bfloat16" else array)

    def float64(self) -> np.ndarray[Any, Any]:
        """The values as float64; exact for every dtype but int64 beyond 2**53."""
        if self.dtype == "bfloat16":
            return (self.bits.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
        return self.bits.astype(np.float64)
