"""Bounds small enough to compute by hand, and properties of every bound."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.bounds import derivation, rows
from conformance.bridge.profile import UNIT, Profile
from conformance.deviations.catalogue import evaluate
from conformance.spec.problem import Array, MaskOperand, Problem
from conformance.spec.rounding import round_to, smallest_normal
from conformance.verdicts.compare import root_mean_square

from ..problems import answered, random_mha, random_sdpa, sdpa

FLOAT32, FLOAT64 = Profile.uniform("float32"), Profile.uniform("float64")
U = UNIT["float32"]


def problem(query: Any, key: Any, value: Any, dtype: str = "float32", **more: Any) -> Problem:
    """Return a problem of one batch element and one head from lists of rows."""
    fields = {"outputs": ("output", "weights")} | more
    return sdpa([[query]], [[key]], [[value]], dtype=dtype, **fields)


def random_problem(seed: int, dtype: str = "float32", **more: Any) -> Problem:
    fields = {"outputs": ("output", "weights", "weights_mean")} | more
    return random_sdpa(seed, dtype=dtype, seq_len_k=11, head_dim=7, **fields)


def masked(allowed: Array) -> tuple[MaskOperand, ...]:
    return (MaskOperand("mask", ("attention",), "bool", allowed),)


def test_one_key_is_copied_with_the_errors_of_a_sum_of_one_term() -> None:
    _, bounds = answered(problem([[3.0]], [[2.0]], [[5.0]]), FLOAT32)
    output = bounds["output"]
    assert output.hard.item() == pytest.approx(5 * U + smallest_normal("float32"))
    # denominator 1/3 + 1/6 + 1 + 2, sum 1 + 1 (natural order), weight 1: each times u^2/3 o^2
    assert output.sigma.item() == pytest.approx(5 * U * np.sqrt(6.5 / 3))
    assert output.spread.item() == 5.0
    assert bounds["weights"].sigma.item() == pytest.approx(U * np.sqrt(3.5 / 3))


def test_two_equal_keys_have_the_bound_of_their_logits() -> None:
    profile = FLOAT64.but(score="float32")
    _, bounds = answered(problem([[1.0]], [[2.0], [2.0]], [[1.0], [-1.0]]), profile)
    # each logit is 2 and rounded twice; d o / d logit_j = p_j (V_j - o) = +-1/2: 1/4 of each logit's variance
    variance = 2 * 2.0**2 * U**2 / 3
    assert bounds["output"].sigma.item() == pytest.approx(np.sqrt(2 * variance / 4), rel=1e-6)
    assert bounds["weights"].sigma[0, 0, 0] == pytest.approx([np.sqrt(2 * variance) / 4] * 2, rel=1e-6)


def test_an_inexact_scale_is_hard_and_moves_weights_by_their_slope() -> None:
    case = problem([[1.0]], [[np.log(3.0)], [0.0]], [[1.0], [0.0]], dtype="float64")
    _, bounds = answered(case, FLOAT64.but(scale="float32"))
    slope = 0.75 * 0.25 * np.log(3.0)
    assert bounds["output"].hard.item() == pytest.approx(2 * U * slope, rel=1e-6)
    assert bounds["weights"].hard[0, 0, 0] == pytest.approx([2 * U * slope] * 2, rel=1e-6)


def test_an_inexact_value_errs_by_its_weight() -> None:
    case = problem([[0.0]], [[1.0], [1.0]], [[2.0], [6.0]], dtype="float64")
    _, bounds = answered(case, FLOAT64.but(store="float32"))
    output = bounds["output"]
    assert output.hard.item() == pytest.approx(4 * U, rel=1e-6)
    assert output.sigma.item() == pytest.approx(U * np.sqrt((0.25 * 4 + 0.25 * 36) / 3), rel=1e-6)


def test_the_worst_case_of_two_equal_keys() -> None:
    profile = FLOAT64.but(score="float32")
    _, bounds = answered(problem([[1.0]], [[2.0], [2.0]], [[1.0], [-1.0]], dtype="float64"), profile)
    rho = 4 * U  # 2 (u_score + u_scale) |a| with |a| = 2; u_scale is negligible: the scale is float64
    assert bounds["weights"].worst[0, 0, 0] == pytest.approx([np.tanh(rho) / 2] * 2, rel=1e-3)
    assert bounds["output"].worst.item() == pytest.approx(np.expm1(rho) * np.exp(rho), rel=1e-3)


def test_logits_that_nothing_is_known_about_leave_the_range_of_the_values() -> None:
    bias = np.full((1, 1, 1, 2), -1e9)
    case = problem(
        [[1.0]], [[2.0], [1.0]], [[3.0], [-1.0]], mask_operands=(MaskOperand("bias", ("additive",), "float", bias),)
    )
    answer, bounds = answered(case, FLOAT32)
    reach = max(3.0 - answer.state.context.item(), answer.state.context.item() + 1.0)
    assert bounds["output"].worst.item() == pytest.approx(reach, rel=1e-5)
    assert bounds["output"].coverage == 0.0


def test_masked_weights_must_be_exactly_zero() -> None:
    allowed = np.random.default_rng(1).random((2, 3, 5, 11)) < 0.7
    for profile in (FLOAT32, FLOAT64, Profile.fused("float16"), Profile.naive("bfloat16")):
        _, bounds = answered(random_problem(1, profile.store, mask_operands=masked(allowed)), profile)
        weights = bounds["weights"]
        assert (weights.tolerance[~allowed] == 0.0).all()
        assert (weights.worst[~allowed] == 0.0).all()
        assert (weights.tolerance[allowed] > 0.0).all()


@pytest.mark.parametrize("leak", [1e30, np.inf, np.nan])
def test_what_is_masked_for_every_query_does_not_widen_any_bound(leak: float) -> None:
    allowed = np.ones((1, 1, 1, 11), dtype=bool)
    allowed[..., 3] = False
    clean = random_problem(2, mask_operands=masked(allowed))
    key, value = clean.key.copy(), clean.value.copy()
    key[:, :, 3], value[:, :, 3] = leak, leak
    _, plain = answered(clean, FLOAT32)
    _, poisoned = answered(clean.but(key=key, value=value), FLOAT32)
    for name, bound in poisoned.items():
        for part in ("hard", "sigma", "worst", "judged", "spread"):
            np.testing.assert_allclose(getattr(bound, part), getattr(plain[name], part), rtol=1e-12)


def test_an_answer_that_is_not_finite_is_exact() -> None:
    case = random_problem(3)
    value = case.value.copy()
    value[0, 0, 0, 0], value[1, 2, 5, 7] = np.nan, np.inf
    answer, bounds = answered(case.but(value=value), FLOAT32)
    known = np.isfinite(answer.reply["output"].values)
    assert not known.all()
    assert (bounds["output"].tolerance[~known] == 0.0).all()
    assert (bounds["output"].tolerance[known] > 0.0).all()


def test_values_that_are_all_zero_give_exactly_zero() -> None:
    case = problem([[1.0]], [[2.0], [1.0]], [[0.0, 1.0], [0.0, 2.0]])
    _, bounds = answered(case, FLOAT32)
    assert bounds["output"].tolerance[0, 0, 0, 0] == 0.0
    assert bounds["output"].tolerance[0, 0, 0, 1] > 0.0


def test_float16_scores_that_may_overflow_are_not_judged() -> None:
    query, key = [[300.0], [1.0]], [[250.0], [1.0]]
    case = problem(query, key, [[1.0], [2.0]], dtype="float16")
    late = Profile.naive("float16").but(pre=None)
    judged = answered(case, late)[1]["output"].judged
    assert judged[0, 0, :, 0].tolist() == [False, True]
    assert answered(case, Profile.fused("float16"))[1]["output"].judged.all()
    hidden = case.but(mask_operands=masked(np.array([False, True])[None, None, None]))
    assert answered(hidden, late)[1]["output"].judged.all()
    assert np.isinf(answered(case, late)[1]["output"].tolerance[0, 0, 0, 0])


def test_a_bias_that_overflows_float16_scores_leaves_no_row_that_only_it_masks() -> None:
    case = random_problem(7)
    bias = np.zeros((1, 1, *case.logits_shape[2:]))
    bias[..., 0, :] = bias[..., 1, 1] = np.finfo(np.float32).min
    case = case.but(mask_operands=(MaskOperand("bias", ("additive",), "float", bias),))
    judged = answered(case, FLOAT32.but(score="float16", acc="float32"))[1]["output"].judged
    assert not judged[:, :, 0].any()
    assert judged[:, :, 1:].all()
    assert answered(case, FLOAT32)[1]["output"].judged.all()


def test_a_scale_before_the_product_can_save_it_from_overflow() -> None:
    case = problem([[300.0]], [[250.0]], [[1.0]], dtype="float16", scale=0.5)
    assert answered(case, Profile.naive("float16"))[1]["output"].judged.all()
    assert not answered(case, Profile.naive("float16").but(pre=None))[1]["output"].judged.any()


def test_in_float64_the_oracle_errs_as_well() -> None:
    case = random_problem(4, "float64")
    _, alike = answered(case, FLOAT64)
    _, coarse = answered(case, FLOAT32)
    ratio = UNIT["float64"] / UNIT["float32"]
    entry = case.but(dtype="float32")  # taken as float32 numbers: nothing is rounded on entry
    _, coarse = answered(entry, FLOAT32)
    for name in ("output", "weights"):
        # the effect of a logit's error on its weight is not quite linear in the larger unit
        np.testing.assert_allclose(alike[name].sigma, 2 * ratio * coarse[name].sigma, rtol=1e-5)
        np.testing.assert_allclose(alike[name].worst, 2 * ratio * coarse[name].worst, rtol=1e-3)


def test_a_coarser_store_rounds_what_enters() -> None:
    case = random_problem(5, "float64")
    _, entered = answered(case, FLOAT32)
    _, exact = answered(case.but(dtype="float32"), FLOAT32)
    assert (entered["output"].sigma > exact["output"].sigma).all()
    assert (entered["output"].worst > exact["output"].worst).all()


def test_narrow_operands_widen_the_bound_only_where_they_are_narrower() -> None:
    plain, tf32 = (answered(random_problem(6), FLOAT32.but(mm=mm))[1]["output"] for mm in (None, "tf32"))
    assert np.median(tf32.sigma / plain.sigma) > 100
    half = Profile.fused("bfloat16")
    without, within = (answered(random_problem(6, "bfloat16"), half.but(mm=mm))[1]["output"] for mm in (None, "tf32"))
    np.testing.assert_array_equal(without.sigma, within.sigma)


def cut(values: Array) -> Array:
    """Drop the last 13 bits of float32 numbers."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32) & np.uint32(0xFFFFE000)
    return bits.view(np.float32).astype(np.float64)


def truncated(case: Problem) -> Array:
    """Compute attention, and the projections of mha, in float32 with products of operands cut to TF32."""
    arrays = [case.query, case.key, case.value]
    if case.operator == "mha":
        projected = [
            cut(x) @ cut(case.params["w" + n]) + case.params["b" + n] for n, x in zip("qkv", arrays, strict=True)
        ]
        arrays = [x.reshape(*x.shape[:2], case.num_heads, -1).swapaxes(1, 2) for x in projected]
    query, key, value = arrays
    logits = cut(query) @ cut(key).swapaxes(-1, -2) * case.applied_scale
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    context = cut(weights / weights.sum(axis=-1, keepdims=True)) @ cut(value)
    if case.operator == "mha":
        merged = context.swapaxes(1, 2).reshape(*case.query.shape[:2], -1)
        context = cut(merged) @ cut(case.params["wo"]) + case.params["bo"]
    return context.astype(np.float32).astype(np.float64)


@pytest.mark.parametrize("make", [random_problem, random_mha], ids=["sdpa", "mha"])
@pytest.mark.parametrize("shift", [0.0, 20.0], ids=["centred", "large values"])
def test_operands_truncated_to_tf32_are_within_their_bound_and_shrink_the_result(make: Any, shift: float) -> None:
    used, beyond = [], []
    for seed in range(12):
        case = make(seed, dtype="float32", outputs=("output",))
        case = case.but(value=round_to(case.value + shift, "float32"))
        answer, bounds = answered(case, FLOAT32.but(mm="tf32_truncated"))
        error = truncated(case) - answer.reply["output"].values
        used.append(np.abs(error / bounds["output"].tolerance).max())
        rounded = answered(case, FLOAT32.but(mm="tf32"))[1]["output"]
        beyond.append(root_mean_square(np.abs(error), rounded))
    assert 0.1 < max(used) < 1.0
    assert max(beyond) > 1.25  # the bound of rounded operands is too small for them


def test_a_mean_of_one_value_shrinks_by_its_truncation_alone_by_hand() -> None:
    # All weights are 1, and 1 + 2^-10 (1 - 2^-13) becomes 1.
    value = 1.0 + 2.0**-10 * (1.0 - 2.0**-13)
    case = problem([[1.0]], [[0.0]], [[value]], outputs=("output",))
    _, bounds = answered(case, FLOAT32.but(mm="tf32_truncated"))
    assert bounds["output"].hard.item() == pytest.approx((2.0**-10 + U) * value, rel=1e-6)
    assert truncated(case).item() == 1.0


def split(values: Array) -> tuple[Array, Array]:
    """Return the two numbers of 3xTF32: `values` truncated to 11 significant bits, and the rest rounded to 11 bits."""
    unit = 2.0 ** (np.floor(np.log2(np.abs(values))) - 10)
    big = np.trunc(values / unit) * unit
    rest = values - big
    unit = 2.0 ** (np.floor(np.log2(np.maximum(np.abs(rest), 1e-30))) - 10)
    return big, np.round(rest / unit) * unit


def test_the_unit_of_3xtf32_bounds_its_products() -> None:
    rng = np.random.default_rng(23)
    one, other = (round_to(rng.uniform(1.0, 2.0, (100_000,)), "float32") for _ in "ab")
    (big, small), (other_big, other_small) = split(one), split(other)
    error = (big * other_big + big * other_small + small * other_big) / (one * other) - 1.0
    assert error.max() < 2.0**-22  # the dropped product is positive, so most errors are negative
    assert error.mean() < -(2.0**-24)
    assert 0.25 < -error.min() / (2.0 * UNIT["tf32x3"]) <= 1.0


def test_the_variance_agrees_with_random_roundings_of_what_enters() -> None:
    profile = FLOAT64.but(store="bfloat16")
    case = random_problem(7, "float64")
    rng = np.random.default_rng(8)
    u = UNIT["bfloat16"]
    answer, bounds = answered(case, profile)

    def rounded(array: Array) -> Array:
        return array * (1.0 + u * rng.uniform(-1.0, 1.0, array.shape))

    runs = [
        evaluate(case.but(query=rounded(case.query), key=rounded(case.key), value=rounded(case.value))).reply
        for _ in range(200)
    ]
    for name in ("output", "weights"):
        errors = np.stack([run[name].values - answer.reply[name].values for run in runs])
        ratio = bounds[name].sigma / np.sqrt((errors**2).mean(axis=0))
        assert 0.97 < np.median(ratio) < 1.03
        assert ratio.min() > 0.7
        assert ratio.max() < 1.4


def test_the_mean_over_heads_is_as_certain_as_independent_rows() -> None:
    _, bounds = answered(random_problem(9), FLOAT32)
    heads, mean = bounds["weights"].sigma, bounds["weights_mean"].sigma
    alone = np.sqrt((heads**2).sum(axis=1)) / 3
    assert (mean >= alone).all()
    assert np.median(mean / alone) < 2.0
    assert (bounds["weights_mean"].hard >= bounds["weights"].hard.mean(axis=1)).all()


def test_the_spread_leaves_out_what_nobody_attends() -> None:
    allowed = np.array([True, True, False])[None, None, None]
    case = problem([[1.0]], [[1.0], [2.0], [3.0]], [[1.0], [4.0], [1e5]], mask_operands=masked(allowed))
    assert answered(case, FLOAT32)[1]["output"].spread.item() == 3.0


profiles = st.sampled_from(
    [FLOAT32, *(make(dtype) for make in (Profile.fused, Profile.naive) for dtype in ("float16", "bfloat16"))]
)


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), profile=profiles, share=st.floats(-0.999, 0.999))
def test_what_is_inside_passes_and_what_is_outside_fails(seed: int, profile: Profile, share: float) -> None:
    answer, bounds = answered(random_problem(seed, profile.store), profile)
    for name, bound in bounds.items():
        expected, tolerance = answer.reply[name].values, bound.tolerance
        assert np.isfinite(tolerance).all()
        assert bound.coverage > 0.5
        assert (np.abs(expected + share * tolerance - expected) <= tolerance).all()
        assert (np.abs(expected + 1.01 * tolerance - expected) > tolerance).all()
        assert (np.minimum(bound.hard, np.minimum(bound.sigma, bound.worst)) >= 0.0).all()


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**32 - 1), power=st.integers(-5, 5))
def test_the_bound_of_the_output_scales_with_the_values(seed: int, power: int) -> None:
    case = random_problem(seed)
    _, plain = answered(case, FLOAT32)
    _, scaled = answered(case.but(value=case.value * 2.0**power), FLOAT32)
    for part in ("hard", "sigma", "worst", "spread"):
        one, other = getattr(plain["output"], part), getattr(scaled["output"], part)
        np.testing.assert_allclose(other, one * 2.0**power, rtol=1e-9)
    np.testing.assert_array_equal(scaled["weights"].tolerance, plain["weights"].tolerance)


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_coarser_arithmetic_is_never_held_to_a_tighter_bound(seed: int) -> None:
    case = random_problem(seed, "bfloat16")
    _, fused = answered(case, Profile.fused("bfloat16"))
    _, naive = answered(case, Profile.naive("bfloat16"))
    for name, bound in fused.items():
        assert (bound.tolerance <= naive[name].tolerance).all()
        assert (bound.worst <= naive[name].worst).all()


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**32 - 1), shift=st.integers(0, 10))
def test_the_order_of_the_keys_hardly_matters(seed: int, shift: int) -> None:
    case = random_problem(seed)
    order = np.roll(np.arange(11), shift)
    _, plain = answered(case, FLOAT32)
    _, moved = answered(case.but(key=case.key[:, :, order], value=case.value[:, :, order]), FLOAT32)
    np.testing.assert_allclose(moved["output"].worst, plain["output"].worst, rtol=1e-9)
    np.testing.assert_allclose(moved["weights"].sigma, plain["weights"].sigma[..., order], rtol=1e-9)
    ratio = moved["output"].sigma / plain["output"].sigma
    assert ratio.min() > 0.5
    assert ratio.max() < 2.0


def test_long_rows_are_cut_into_pieces_without_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    case = random_problem(10, "float64")
    whole = answered(case, FLOAT32)[1]["output"]
    for module in (rows, derivation):
        monkeypatch.setattr(module, "BLOCK", 1)
    pieces = answered(case, FLOAT32)[1]["output"]
    np.testing.assert_allclose(pieces.sigma, whole.sigma, rtol=1e-9)
    np.testing.assert_allclose(pieces.worst, whole.worst, rtol=1e-9)
