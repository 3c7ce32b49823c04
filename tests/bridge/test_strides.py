"""Memory layouts: each shows the same numbers and has the strides that it promises."""

import numpy as np
import pytest

from conformance.bridge import Tensor, strided
from conformance.bridge.tensor import LAYOUTS

SDPA = np.arange(2 * 3 * 5 * 7, dtype=np.float32).reshape(2, 3, 5, 7)
MHA = np.arange(2 * 3 * 5, dtype=np.uint16).reshape(2, 3, 5)


def test_every_layout_shows_the_same_numbers_in_memory_of_its_own() -> None:
    for layout in LAYOUTS:
        array = np.repeat(SDPA[:1], 2, axis=0) if layout == "expanded" else SDPA
        tensor = Tensor.of(array)
        seen = strided(tensor, layout).view()
        np.testing.assert_array_equal(seen, array)
        assert not np.shares_memory(seen, tensor.bits)


@pytest.mark.parametrize(
    ("layout", "strides", "offset"),
    [
        ("contiguous", (105, 35, 7, 1), 0),
        ("transposed", (105, 7, 21, 1), 0),  # (batch, seq_len, num_heads, head_dim) in memory
        ("column_major", (105, 35, 1, 5), 0),
        ("offset", (120, 40, 8, 1), 1),
    ],
)
def test_strides_of_sdpa(layout: str, strides: tuple[int, ...], offset: int) -> None:
    seen = strided(Tensor.of(SDPA), layout)
    assert (seen.shape, seen.strides, seen.offset) == (SDPA.shape, strides, offset)


def test_an_expanded_batch_lies_in_memory_once() -> None:
    seen = strided(Tensor.of(np.repeat(SDPA[:1], 2, axis=0)), "expanded")
    assert (seen.strides, seen.memory.size) == ((0, 35, 7, 1), 105)
    nothing = np.full((2, 3, 5, 7), np.nan)
    np.testing.assert_array_equal(strided(Tensor.of(nothing), "expanded").view(), nothing)
    with pytest.raises(ValueError, match="layout expanded needs equal batch elements, but they differ"):
        strided(Tensor.of(SDPA), "expanded")


def test_mha_has_its_sequence_first_in_memory() -> None:
    seen = strided(Tensor("bfloat16", MHA), "transposed")
    assert seen.strides == (5, 10, 1)
    np.testing.assert_array_equal(seen.memory.reshape(3, 2, 5), MHA.swapaxes(0, 1))


def test_an_offset_row_starts_where_no_vector_does() -> None:
    view = strided(Tensor.of(SDPA), "offset").view()
    base = strided(Tensor.of(SDPA), "offset")
    assert view.strides[-2] == 8 * 4
    assert base.memory[0] == 0.0
    assert base.memory[1:8].tolist() == SDPA[0, 0, 0].tolist()


def test_an_unknown_layout_is_refused() -> None:
    with pytest.raises(ValueError, match="layout is 'diagonal', expected one of contiguous, transposed"):
        strided(Tensor.of(SDPA), "diagonal")
