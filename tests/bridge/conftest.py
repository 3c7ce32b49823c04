"""Random tensors of every dtype, with any shape and any bit pattern."""

from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from conformance.bridge.tensor import STORAGE, Tensor


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    dtype = draw(st.sampled_from(sorted(STORAGE)))
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=4)))
    storage = np.dtype(STORAGE[dtype])
    size = int(np.prod(shape)) * storage.itemsize
    content = np.frombuffer(draw(st.binary(min_size=size, max_size=size)), np.uint8)
    bits = (content & 1).view(bool) if dtype == "bool" else content.view(storage)
    return Tensor(dtype, bits.reshape(shape))


@pytest.fixture(scope="session")
def any_tensor() -> st.SearchStrategy[Tensor]:
    return tensors()


def same(one: Any, other: Any) -> bool:
    """Whether both are tensors with the same dtype, shape and bits."""
    return (
        isinstance(one, Tensor)
        and isinstance(other, Tensor)
        and (one.dtype, one.shape, one.bits.tobytes()) == (other.dtype, other.shape, other.bits.tobytes())
    )


@pytest.fixture(scope="session")
def same_bits() -> Any:
    return same
