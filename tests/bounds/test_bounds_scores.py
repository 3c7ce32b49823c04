"""Outputs from before the softmax: values computed by hand, no false alarms, and small errors are caught."""

from typing import Any

import numpy as np
import pytest

from conformance.bounds.outputs import bound_reply
from conformance.bridge.profile import UNIT, Profile
from conformance.deviations.catalogue import evaluate
from conformance.spec.problem import SCORES, Array, MaskOperand, Problem
from conformance.spec.rounding import round_to

from ..problems import HEADS, KEYS, QUERIES, one_query, random_sdpa

U = UNIT["float32"]


def problem(dtype: str = "float32", seed: int = 0, **more: Any) -> Problem:
    """Return random operands with a mask, a bias and a softcap."""
    rng = np.random.default_rng(seed)
    plain = random_sdpa(rng, dtype=dtype)
    mask = MaskOperand("mask", ("attention",), "bool", rng.random((1, 1, QUERIES, KEYS)) < 0.7)
    numbers = round_to(rng.standard_normal((1, HEADS, QUERIES, KEYS)), dtype)
    bias = MaskOperand("bias", ("additive",), "float", numbers)
    fields: dict[str, Any] = {"outputs": SCORES, "softcap": 1.5, "mask_operands": (mask, bias)} | more
    return plain.but(**fields)


def answered(asked: Problem, dtype: str, scale: float = 1.0) -> dict[str, Array]:
    """Return the outputs with every operation in `dtype` and sequential sums; `scale` multiplies the right scale."""
    total = np.zeros(asked.logits_shape)
    for number in range(asked.head_dim):
        one, other = asked.query[..., number, None], asked.key[..., None, :, number]
        total = round_to(total + round_to(one * other, dtype), dtype)
    factor = round_to(np.asarray(asked.head_dim**-0.5), dtype) * scale
    scaled = round_to(total * factor, dtype)
    cap = float(asked.softcap or 0.0)
    capped = round_to(cap * round_to(np.tanh(round_to(scaled / cap, dtype)), dtype), dtype)
    bias = asked.bias()
    logits = round_to(capped + (0.0 if bias is None else bias), dtype)
    return {"scaled": scaled, "capped": capped, "logits": np.where(asked.allowed(), logits, -np.inf)}


def used(asked: Problem, profile: Profile, found: dict[str, Array]) -> dict[str, float]:
    answer = evaluate(asked)
    bounds = bound_reply(answer, profile)
    budgets = {}
    for name, values in found.items():
        expected = answer.reply[name].values
        assert np.array_equal(np.isfinite(values), np.isfinite(expected))
        finite = np.isfinite(values)
        error = np.abs(np.where(finite, values, 0.0) - np.where(finite, expected, 0.0))
        assert (error <= bounds[name].worst).all(), name
        assert bounds[name].coverage == 1.0
        budgets[name] = float((error[finite] / bounds[name].tolerance[finite]).max())
    return budgets


def test_by_hand() -> None:
    # q.k is 2 and 6, and the scale is 1/2; tanh(log 3) = 4/5, and the mask hides the second key
    mask = MaskOperand("mask", ("attention",), "bool", np.array([[[[True, False]]]]))
    bias = MaskOperand("bias", ("additive",), "float", np.array([[[[0.25, 0.5]]]]))
    asked = one_query([2.0, 6.0], None, mask, bias, outputs=SCORES, softcap=1 / np.log(3), scale=0.5)
    reply = evaluate(asked).reply
    assert reply["scaled"].values.ravel() == pytest.approx([1.0, 3.0])
    assert reply["capped"].values.ravel()[0] == pytest.approx(0.8 / np.log(3))
    assert reply["logits"].values.ravel() == pytest.approx([0.8 / np.log(3) + 0.25, -np.inf])


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_correct_programs_stay_within(dtype: str) -> None:
    for seed in range(40):
        asked = problem(dtype, seed)
        assert max(used(asked, Profile.naive(dtype), answered(asked, "float32")).values()) <= 1.0
        assert max(used(asked, Profile.uniform(dtype), answered(asked, dtype)).values()) <= 1.0


def test_a_scale_that_is_wrong_by_some_roundings_is_caught() -> None:
    asked = problem()
    wrong = answered(asked, "float32", scale=1.0 + 200 * U)
    with pytest.raises(AssertionError, match="scaled"):
        used(asked, Profile.uniform("float32"), wrong)


def test_masked_logits_are_exact_and_a_finite_fill_is_none() -> None:
    bounds = bound_reply(evaluate(problem()), Profile.uniform("float32"))
    masked = ~np.broadcast_to(problem().allowed(), problem().logits_shape)
    assert (bounds["logits"].tolerance[masked] == 0.0).all()
    assert (bounds["scaled"].tolerance > 0.0).all()
    filled = evaluate(problem(), {"mask_fill": "finite_minimum"}, "float32")
    assert (filled.reply["logits"].values[masked] == -np.finfo(np.float32).max).all()
    assert (bound_reply(filled, Profile.uniform("float32"))["logits"].tolerance[masked] == 0.0).all()


def test_what_is_handed_back_is_exact_unless_it_enters_rounded() -> None:
    asked = problem(outputs=("present_key",), past=3)
    assert (bound_reply(evaluate(asked), Profile.uniform("float32"))["present_key"].tolerance == 0.0).all()
    rounded = bound_reply(evaluate(asked), Profile.uniform("float16"))["present_key"]
    assert rounded.tolerance == pytest.approx(UNIT["float16"] * np.abs(asked.key))
    returned = bound_reply(evaluate(asked, {"result_dtype": "bfloat16"}), Profile.uniform("float32"))["present_key"]
    assert returned.tolerance == pytest.approx(UNIT["bfloat16"] * np.abs(asked.key))


@pytest.mark.parametrize(("dtype", "returned"), [("bfloat16", -998244352.0), ("float16", -np.inf), ("float32", -1e9)])
def test_a_returned_fill_is_rounded_to_the_dtype_of_the_result(dtype: str, returned: float) -> None:
    """-1e9 lies between two numbers of bfloat16, and beyond the numbers of float16."""
    asked = problem(dtype, outputs=("logits",), softcap=None).but(mask_operands=problem(dtype).mask_operands[:1])
    answer = evaluate(asked, {"mask_fill": "minus_1e9"}, "float32")
    bound = bound_reply(answer, Profile.ordinary(dtype).but(score="float32"))["logits"]
    filled = ~np.broadcast_to(asked.allowed(), asked.logits_shape)
    expected = answer.reply["logits"].values[filled]
    allowed = np.broadcast_to(bound.tolerance, filled.shape)[filled]
    assert filled.any()
    with np.errstate(invalid="ignore"):
        assert ((expected == returned) | (np.abs(expected - returned) <= allowed)).all()
    assert (allowed <= UNIT[dtype] * 1e9 if dtype == "bfloat16" else allowed == 0.0).all()
