"""Variations of kernels for prefill and decoding, on problems small enough to be worked by hand."""

import pytest

from .test_tiles_by_hand import LOG2, LOG3, mask, output, sdpa

# ---- sums over keys ----------------------------------------------------------------------------------------------


def test_parts_that_are_put_together_count_alike() -> None:
    """Of 4 and 8 keys alone: weights of 3/6, 1/6, 1/6, 1/6, then 2/3 and 1/3, each halved; a part of -500 as well."""
    lie = "online_softmax=parts_alike_4"
    values = [[6.0], [0.0], [0.0], [12.0], [3.0], [9.0]]
    logits = [[LOG3, 0, 0, 0, LOG2, 0], [LOG3, 0, 0, 0, LOG2 - 500, -500]]
    assert output(sdpa(logits, values), lie).ravel().tolist() == pytest.approx([((18 + 12) / 6 + (6 + 9) / 3) / 2] * 2)
    assert output(sdpa([logits[0]], values), "online_softmax=parts_alike_8")[0, 0] == pytest.approx(5.0 * 6 / 9 + 15 / 9)
    hidden = sdpa(logits, values, mask([[0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 0, 0]]))
    assert output(hidden, lie).ravel().tolist() == pytest.approx([(6 + 9) / 3 / 2, 0])
