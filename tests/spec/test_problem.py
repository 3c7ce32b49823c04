"""The sizes of a problem, and its masks combined."""

from collections.abc import Callable

import numpy as np

from conformance.spec.case import Case
from conformance.spec.materialise import materialise

Make = Callable[..., Case]


def test_sizes_of_both_operators(make: Make) -> None:
    sdpa = materialise(make(num_heads=6, num_kv_heads=2, value_dim=9)).sizes()
    assert sdpa == {
        "batch": 2,
        "num_heads": 6,
        "num_kv_heads": 2,
        "seq_len_q": 5,
        "seq_len_k": 7,
        "head_dim": 4,
        "value_dim": 9,
    }
    mha = materialise(make(operator="mha", query_dim=11, kdim=13, vdim=17, output_dim=19)).sizes()
    assert [mha[name] for name in ("query_dim", "kdim", "vdim", "output_dim")] == [11, 13, 17, 19]
    assert (mha["seq_len_q"], mha["seq_len_k"]) == (5, 7)


def test_masks_are_and_and_sum(make: Make) -> None:
    masks = [
        {"kind": "key_padding", "lengths": [7, 4]},
        {"kind": "additive", "axes": ["k"], "values": [0, 1, 2, 3, 4, 5, -np.inf]},
        {"kind": "additive", "axes": ["b", "k"], "values": [[1] * 7, [2] * 7]},
    ]
    problem = materialise(make(masks=masks))
    bias = problem.bias()
    assert bias is not None
    assert bias.shape == (2, 1, 1, 7)
    np.testing.assert_array_equal(bias[1, 0, 0], [2, 3, 4, 5, 6, 7, -np.inf])
    assert problem.allowed().shape == problem.logits_shape == (2, 3, 5, 7)
    np.testing.assert_array_equal(problem.attended()[:, 0, 0].sum(axis=-1), [6, 4])


def test_nothing_is_added_where_no_mask_adds(make: Make) -> None:
    problem = materialise(make(masks=[{"kind": "causal"}]))
    assert problem.bias() is None
    (group,) = problem.mask_operands
    assert group.bias is None
    assert group.allowed is not None
    assert problem.but(scale=2.0).scale == 2.0
