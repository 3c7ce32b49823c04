"""The bound of multi-head attention: projections, fully masked rows, and every way of merging heads."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from conformance.bounds.roundings import projection_error, roundings
from conformance.bridge.profile import UNIT, Profile
from conformance.deviations.catalogue import evaluate
from conformance.spec.problem import Array, MaskOperand, Problem
from conformance.spec.rounding import smallest_normal

from ..problems import BATCH, DIM, HEADS, KEYS, OUTPUT_DIM, QUERIES, VALUE_DIM, answered, random_mha, sdpa

FLOAT32, FLOAT64 = Profile.uniform("float32"), Profile.uniform("float64")
MERGES: dict[str, Callable[[Array], Array]] = {
    "canonical": lambda context: context.transpose(0, 2, 1, 3),
    "interleaved": lambda context: context.transpose(0, 2, 3, 1),
    "untransposed": lambda context: context,
}


def problem(seed: int, dtype: str = "float32", **more: Any) -> Problem:
    return random_mha(seed, dtype=dtype, outputs=("output", "weights", "weights_mean"), **more)


def fully_masked(*, heads: int) -> MaskOperand:
    """Return a mask under which query 1 of batch element 0 attends nothing in the first `heads` heads."""
    allowed = np.ones((BATCH, HEADS, QUERIES, KEYS), dtype=bool)
    allowed[0, :heads, 1] = False
    return MaskOperand("mask", ("attention",), "bool", allowed)


def test_a_projection_of_one_number_errs_by_its_roundings() -> None:
    u = UNIT["float32"]
    x, weight, bias = np.array([[[3.0]]]), np.array([[2.0]]), np.array([1.0])
    variance, worst = projection_error(x, weight, bias, roundings(FLOAT32, "float32"))
    summed = 2 / 3 * 7**2 + (2 / 6 + 1) * (36 + 1)
    stored = 2 * 7**2 + 1
    assert variance.item() == pytest.approx(u**2 / 3 * (summed + stored))
    assert worst.item() == pytest.approx(2 * u * 7 + u * (2 * 7 + 1) + smallest_normal("float32"), rel=1e-6)


def test_a_projection_without_bias_is_rounded_once() -> None:
    u = UNIT["float32"]
    variance, worst = projection_error(np.array([[[3.0]]]), np.array([[2.0]]), None, roundings(FLOAT32, "float32"))
    assert variance.item() == pytest.approx(u**2 / 3 * ((1 / 3 + 1 / 6 + 1) * 36 + 36))
    assert worst.item() == pytest.approx(2 * u * 6, rel=1e-6)


@pytest.mark.parametrize("merge", MERGES)
def test_the_variance_agrees_with_random_roundings_between_projections(merge: str) -> None:
    profile = FLOAT64.but(store="bfloat16")
    case = problem(1, "bfloat16", biases=False)
    dialect = {} if merge == "canonical" else {"head_merge": merge}
    answer, bounds = answered(case, profile, **dialect)
    rng, u = np.random.default_rng(2), UNIT["bfloat16"]

    def rounded(array: Array) -> Array:
        return array * (1.0 + u * rng.uniform(-1.0, 1.0, array.shape))

    def heads(array: Array) -> Array:
        return array.reshape(*array.shape[:2], HEADS, -1).swapaxes(1, 2)

    def run() -> Array:
        q, k, v = (
            heads(rounded(x @ case.params["w" + n])) for n, x in (("q", case.query), ("k", case.key), ("v", case.value))
        )
        context = evaluate(sdpa(q, k, v, scale=None)).state.context
        merged = MERGES[merge](rounded(context)).reshape(BATCH, QUERIES, -1)
        return rounded(merged @ case.params["wo"])

    errors = np.stack([run() - answer.reply["output"].values for _ in range(200)])
    ratio = bounds["output"].sigma / np.sqrt((errors**2).mean(axis=0))
    assert 0.97 < np.median(ratio) < 1.03
    assert ratio.min() > 0.7
    assert ratio.max() < 1.4


def test_the_bound_is_far_tighter_than_the_worst_case() -> None:
    answer, bounds = answered(problem(3, widths=(17, 17, 17), output_dim=19), FLOAT32)
    tolerance = np.median(bounds["output"].tolerance)
    assert 5 < np.median(bounds["output"].worst) / tolerance < 60
    assert tolerance < 30 * UNIT["float32"] * np.abs(answer.reply["output"].values).max()


def test_a_query_whose_heads_are_all_dead_returns_exactly_the_bias() -> None:
    case = problem(4, mask_operands=(fully_masked(heads=HEADS),))
    answer, bounds = answered(case, FLOAT32)
    np.testing.assert_array_equal(answer.reply["output"].values[0, 1], case.params["bo"])
    assert (bounds["output"].tolerance[0, 1] == 0.0).all()
    assert (bounds["output"].worst[0, 1] == 0.0).all()
    assert (bounds["weights"].tolerance[0, :, 1] == 0.0).all()
    assert (np.delete(bounds["output"].tolerance[0], 1, axis=0) > 0.0).all()


def test_a_bias_that_is_stored_coarser_is_rounded_even_there() -> None:
    case = problem(4, "float32", mask_operands=(fully_masked(heads=HEADS),))
    _, bounds = answered(case, Profile.fused("bfloat16"))
    np.testing.assert_allclose(bounds["output"].hard[0, 1], UNIT["bfloat16"] * np.abs(case.params["bo"]))
    _, bounds = answered(case, FLOAT32, result_dtype="float16")
    np.testing.assert_allclose(bounds["output"].hard[0, 1], UNIT["float16"] * np.abs(case.params["bo"]))


def test_a_dead_head_beside_live_ones_adds_no_error() -> None:
    _, whole = answered(problem(5), FLOAT32)
    _, partial = answered(problem(5, mask_operands=(fully_masked(heads=1),)), FLOAT32)
    assert (partial["output"].sigma[0, 1] > 0.0).all()
    assert np.median(partial["output"].sigma[0, 1] / whole["output"].sigma[0, 1]) < 1.0
    np.testing.assert_allclose(partial["output"].sigma[1], whole["output"].sigma[1])


def test_without_biases_a_dead_query_is_zero() -> None:
    answer, bounds = answered(problem(6, biases=False, mask_operands=(fully_masked(heads=HEADS),)), FLOAT32)
    assert (answer.reply["output"].values[0, 1] == 0.0).all()
    assert (bounds["output"].tolerance[0, 1] == 0.0).all()


def test_a_nan_row_is_exactly_nan() -> None:
    case = problem(7, mask_operands=(fully_masked(heads=1),))
    answer, bounds = answered(case, FLOAT32, fully_masked_row="nan")
    assert np.isnan(answer.reply["output"].values[0, 1]).all()
    assert (bounds["output"].tolerance[0, 1] == 0.0).all()
    assert bounds["output"].judged.all()


def test_interleaved_columns_of_heads_are_followed_through_both_projections() -> None:
    case = problem(8)
    columns = np.arange(HEADS * VALUE_DIM).reshape(HEADS, VALUE_DIM).T.reshape(-1)
    params = {**case.params, "wo": case.params["wo"][columns]}
    _, plain = answered(case, FLOAT32)
    _, moved = answered(case.but(params=params), FLOAT32, head_merge="interleaved")
    for part in ("hard", "sigma", "worst", "spread"):
        np.testing.assert_allclose(getattr(moved["output"], part), getattr(plain["output"], part), rtol=1e-9)


def test_one_query_is_merged_alike_with_and_without_transposition() -> None:
    case = problem(10)
    case = case.but(query=case.query[:, :1])
    _, plain = answered(case, FLOAT32)
    _, moved = answered(case, FLOAT32, head_merge="untransposed")
    np.testing.assert_allclose(moved["output"].sigma, plain["output"].sigma)


def test_grouped_heads_err_as_the_heads_they_share() -> None:
    case = problem(11)
    shared = case.params["wk"][:, :DIM], case.params["wv"][:, :VALUE_DIM]
    biases = case.params["bk"][:DIM], case.params["bv"][:VALUE_DIM]
    few = {"wk": shared[0], "wv": shared[1], "bk": biases[0], "bv": biases[1]}
    many = {name: np.concatenate([array] * HEADS, axis=-1) for name, array in few.items()}
    _, grouped = answered(case.but(num_kv_heads=1, params={**case.params, **few}), FLOAT32)
    _, repeated = answered(case.but(params={**case.params, **many}), FLOAT32)
    for name in ("output", "weights"):
        np.testing.assert_allclose(grouped[name].sigma, repeated[name].sigma, rtol=1e-9)
        np.testing.assert_allclose(grouped[name].worst, repeated[name].worst, rtol=1e-9)


def test_keys_taken_as_values_bring_their_own_errors() -> None:
    case = problem(12, widths=(17, 19, 19))
    params = {**case.params}
    params["wv"], params["bv"] = params["wk"], params["bk"]
    params["wo"] = params["wo"][: HEADS * DIM]
    case = case.but(value_dim=DIM, params=params)
    _, direct = answered(case.but(value=case.key), FLOAT32)
    _, varied = answered(case, FLOAT32, value_path="key")
    np.testing.assert_allclose(varied["output"].sigma, direct["output"].sigma, rtol=1e-9)


def test_float16_projections_that_overflow_are_not_judged() -> None:
    case = problem(13, "float16")
    value = case.value.copy()
    value[1, 3] = 6e4 * np.sign(value[1, 3])
    judged = answered(case.but(value=value), Profile.fused("float16"))[1]["output"].judged
    assert not judged[1].any()
    assert judged[0].all()


def test_the_spread_is_that_of_the_projected_values_of_all_heads() -> None:
    case = problem(14)
    answer, bounds = answered(case, FLOAT32)
    projected = answer.state.value @ case.params["wo"].reshape(HEADS, VALUE_DIM, OUTPUT_DIM)
    spread = (projected.max(axis=2) - projected.min(axis=2)).sum(axis=1)
    np.testing.assert_allclose(bounds["output"].spread[:, 0], spread)
    assert bounds["output"].coverage == 1.0
