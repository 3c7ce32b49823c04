"""The softcap: values computed by hand, its derivative, and deviations in where it is applied."""

from typing import Any

import numpy as np
import pytest

from conformance.bounds.outputs import bound_reply
from conformance.bounds.roundings import slope
from conformance.bridge.profile import UNIT, Profile
from conformance.deviations.catalogue import evaluate
from conformance.spec.problem import Array, MaskOperand, Problem

from ..problems import LOG3, one_query

U = UNIT["float32"]


def problem(logits: list[float], **more: Any) -> Problem:
    """Return one query with head_dim 1 whose products are `logits`, with unit vectors as values."""
    return one_query(logits, np.eye(len(logits)), **{"outputs": ("output", "weights"), "softcap": 2.0, **more})


def weights(case: Problem, **dialect: str) -> Array:
    values: Array = evaluate(case, dialect).reply["weights"].values
    return values.reshape(-1)


def softmax(*logits: float) -> Any:
    exponentials = np.exp(logits)
    return pytest.approx(exponentials / exponentials.sum())


# tanh(log(3) / 2) = (3 - 1) / (3 + 1) = 1/2, tanh(log 3) = (9 - 1) / (9 + 1) = 4/5, tanh(2 log 3) = 80/82.


def test_a_capped_logit_is_the_cap_times_a_tangent() -> None:
    assert weights(problem([LOG3, 0.0])) == softmax(1.0, 0.0)
    assert weights(problem([1e6, -1e6])) == softmax(2.0, -2.0)


def test_the_cap_comes_after_the_scale_and_before_the_bias() -> None:
    assert weights(problem([2.0 * LOG3, 0.0], scale=0.5)) == softmax(1.0, 0.0)
    bias = MaskOperand("bias", ("additive",), "float", np.asarray([5.0, -np.inf, 0.0])[None, None, None])
    assert weights(problem([LOG3, 0.0, 0.0], mask_operands=(bias,))) == softmax(6.0, -np.inf, 0.0)


@pytest.mark.parametrize(
    ("name", "logit"),
    [("ignored", 2.0 * LOG3), ("unmultiplied", 0.8), ("before_scale", 80.0 / 82.0)],
)
def test_the_cap_taken_otherwise(name: str, logit: float) -> None:
    case = problem([4.0 * LOG3, 0.0], scale=0.5)
    assert weights(case) == softmax(1.6, 0.0)
    assert weights(case, softcap=name) == softmax(logit, 0.0)


def test_a_cap_after_the_mask_lets_it_leak() -> None:
    mask = MaskOperand("mask", ("attention",), "bool", np.asarray([True, False])[None, None, None])
    case = problem([LOG3, 0.0], mask_operands=(mask,))
    assert weights(case).tolist() == [1.0, 0.0]
    assert weights(case, softcap="after_mask") == softmax(1.0, -2.0)
    assert weights(case, softcap="after_bias").tolist() == [1.0, 0.0]


def test_a_cap_after_the_bias_caps_it_too() -> None:
    bias = MaskOperand("bias", ("additive",), "float", np.asarray([LOG3, 0.0])[None, None, None])
    case = problem([0.0, 0.0], mask_operands=(bias,))
    assert weights(case) == softmax(LOG3, 0.0)
    assert weights(case, softcap="after_bias") == softmax(1.0, 0.0)
    masking = MaskOperand("bias", ("additive",), "float", np.asarray([LOG3, -np.inf])[None, None, None])
    case = problem([0.0, 0.0], mask_operands=(masking,))
    assert weights(case).tolist() == [1.0, 0.0]
    assert weights(case, softcap="after_bias") == softmax(1.0, -2.0)


def test_without_a_cap_its_deviations_change_nothing() -> None:
    case = problem([1.0, 2.0], softcap=None)
    for name in ("ignored", "before_scale", "after_bias", "after_mask", "unmultiplied"):
        np.testing.assert_array_equal(weights(case, softcap=name), weights(case))


def test_a_limit_holds_before_the_bias_or_after_it() -> None:
    bias = MaskOperand("bias", ("additive",), "float", np.asarray([3.0, 4.0, -np.inf])[None, None, None])
    case = problem([12.0, -14.0, 50.0], softcap=None, mask_operands=(bias,))
    assert weights(case) == softmax(15.0, -10.0, -np.inf)
    assert weights(case, logit_limit="10") == softmax(13.0, -6.0, -np.inf)
    assert weights(case, logit_limit="10_after_bias") == softmax(10.0, -10.0, -np.inf)
    np.testing.assert_array_equal(weights(case, logit_limit="80_after_bias"), weights(case))


def test_a_limit_leaves_masked_keys_masked_and_holds_behind_a_cap() -> None:
    mask = MaskOperand("mask", ("attention",), "bool", np.asarray([True, True, False])[None, None, None])
    case = problem([60.0, 55.0, 70.0], softcap=None, mask_operands=(mask,))
    assert weights(case, logit_limit="50").tolist() == [0.5, 0.5, 0.0]
    assert weights(problem([1e6, -1e6]), logit_limit="10") == softmax(2.0, -2.0)


def test_errors_pass_by_the_derivative() -> None:
    gain = slope(evaluate(problem([LOG3, 0.0])).state)
    assert gain is not None
    assert gain.reshape(-1) == pytest.approx([0.75, 1.0])  # 1 - (1/2)^2


def test_the_variance_of_two_capped_keys() -> None:
    # weights 1/2 each: d p / d z = 1/4. Rounded to float32: only a (twice), the quotient, the tanh and the product.
    answer = evaluate(problem([LOG3, LOG3]))
    bound = bound_reply(answer, Profile.uniform("float64").but(score="float32"))["weights"]
    variance = U**2 / 3 * (0.75**2 * 3 * LOG3**2 + 2 * 1.0**2)
    assert bound.sigma.reshape(-1) == pytest.approx([np.sqrt(2 * variance) / 4] * 2, rel=1e-6)


def test_an_inexact_cap_is_hard() -> None:
    answer = evaluate(problem([LOG3, 0.0]))
    bound = bound_reply(answer, Profile.uniform("float64").but(scale="float32"))["weights"]
    p = 1.0 / (1.0 + np.exp(-1.0))
    # errors of the scale (two) and of 1/C each move z by 3/4 log 3; the error of C moves it by z = 1
    assert bound.hard.reshape(-1) == pytest.approx([U * p * (1 - p) * (3 * 0.75 * LOG3 + 1.0)] * 2, rel=1e-6)


def test_far_beyond_the_cap_logits_are_nearly_exact() -> None:
    profile = Profile.uniform("float64").but(score="float32")
    bound = bound_reply(evaluate(problem([1e4, 0.0])), profile)["weights"]
    p = 1.0 / (1.0 + np.exp(-2.0))
    # z = 2 has the errors of the tanh and the product only, not 1e4 u
    assert bound.sigma.reshape(-1) == pytest.approx([p * (1 - p) * U * np.sqrt(2 / 3) * 2] * 2, rel=1e-6)
    assert bound.worst.max() == pytest.approx(p * (1 - p) * 4 * U, rel=1e-3)


def test_the_worst_case_is_that_of_the_ends() -> None:
    bound = bound_reply(evaluate(problem([LOG3, 0.0])), Profile.uniform("float64").but(score="float32"))["weights"]
    p = 1.0 / (1.0 + np.exp(-1.0))
    # the error of a is 2 u |a|, of the quotient u |a|, and of the tanh and the product u |z| each
    assert bound.worst.max() == pytest.approx(p * (1 - p) * U * (0.75 * 3 * LOG3 + 2 * 1.0), rel=1e-3)
