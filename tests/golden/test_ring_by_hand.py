"""Heads, halves and pages that are put together wrongly, on problems small enough to be worked by hand."""

import numpy as np
import pytest

from conformance.oracle.evaluate import evaluate
from conformance.oracle.variations import candidates
from conformance.spec.problem import Array, Problem

from .test_tiles_by_hand import even, flag, mask, output, seen

LOG4, LOG9 = float(np.log(4.0)), float(np.log(9.0))

# ---- means over heads --------------------------------------------------------------------------------------------


def two_heads(*outputs: str) -> Problem:
    """One query, two keys of logits ln 4 and 0 in the first head, 0 and ln 9 in the second."""
    key = np.array([[[[LOG4], [0.0]], [[0.0], [LOG9]]]])
    return Problem("sdpa", "float64", 2, 2, 1, 1, np.ones((1, 2, 1, 1)), key, key, scale=1.0, outputs=outputs)


def weights(problem: Problem, **dialect: str) -> Array:
    return evaluate(problem, dialect).reply[problem.outputs[-1]].values


def test_the_softmax_of_the_mean_of_the_logits_is_no_mean_of_weights() -> None:
    """Weights 4/5 1/5 and 1/10 9/10 have the mean 9/20 11/20; logits ln 2 and ln 3 on average make 2/5 3/5."""
    asked, lie = two_heads("output", "weights_mean"), {"returned_weights": "of_mean_logits"}
    assert weights(asked).ravel() == pytest.approx([9 / 20, 11 / 20])
    assert weights(asked, **lie).ravel() == pytest.approx([2 / 5, 3 / 5])
    assert weights(two_heads("output", "weights"), **lie).ravel() == pytest.approx([4 / 5, 1 / 5, 1 / 10, 9 / 10])
    plain = two_heads("weights_mean", "output")
    assert np.array_equal(weights(plain, **lie), weights(plain))


def test_a_key_that_one_head_masks_has_no_mean_of_logits() -> None:
    lie = {"returned_weights": "of_mean_logits"}
    one = two_heads("weights_mean").but(groups=(mask(np.array([[[[1, 0]], [[1, 1]]]])),))
    assert weights(one).ravel() == pytest.approx([11 / 20, 9 / 20])
    assert weights(one, **lie).ravel().tolist() == [1, 0]
    none = two_heads("weights_mean").but(groups=(mask(np.array([[[[1, 0]], [[0, 1]]]])),))
    assert weights(none, **lie).ravel().tolist() == [0, 0]


def test_calls_without_a_mean_of_several_heads_are_left_alone() -> None:
    mean = two_heads("output", "weights_mean")
    one = mean.but(query=mean.query[:, :1], key=mean.key[:, :1], value=mean.value[:, :1], num_heads=1, num_kv_heads=1)
    asked = ["of_mean_logits" in {row.name for row in candidates(each)} for each in (mean, two_heads("weights"), one)]
    assert asked == [True, False, False]


# ---- halves of a sequence ----------------------------------------------------------------------------------------


def test_a_causal_flag_begins_anew_in_the_second_half() -> None:
    """Of 5 queries the first half has 3, of 8 keys 4, of 3 keys 2."""
    lie = "causal_alignment=anew_in_second_half"
    assert seen(even(5, 8, flag(5, 8)), lie) == ["x-------", "xx------", "xxx-----", "xxxxx---", "xxxxxx--"]
    assert seen(even(5, 3, flag(5, 3)), lie) == ["x--", "xx-", "xx-", "xxx", "xxx"]
    assert seen(even(7, 3, flag(7, 3)), lie) == ["x--", "xx-", "xx-", "xx-", "xxx", "xxx", "xxx"]
    for other in (even(5, 5, flag(5, 5)), even(1, 8, flag(1, 8)), even(3, 5, flag(3, 5, 2)), even(4, 1, flag(4, 1))):
        assert np.array_equal(output(other, lie), output(other))
