"""Gradients of the oracle, computed by hand and compared with finite differences of its own output."""

from typing import Any

import numpy as np
import pytest

from conformance.bounds.outputs import bound_reply
from conformance.bridge.profile import Profile
from conformance.deviations.catalogue import TABLE, candidates, evaluate, find
from conformance.spec.problem import Array, MaskOperand, Problem
from conformance.spec.rounding import round_to

from ..problems import (
    BATCH,
    KEYS,
    LOG3,
    OUTPUT_DIM,
    QUERIES,
    VALUE_DIM,
    answered,
    one_query,
    random_mha,
    random_sdpa,
)
from ..problems import sdpa as sdpa_call

HEADS, KV_HEADS = 6, 3
STEP = 1e-6


def sdpa(*masks: MaskOperand, scale: float | None = None) -> Problem:
    """Return a problem that requests the gradients of every input."""
    rng = np.random.default_rng(11)
    case = random_sdpa(rng, *masks, dtype="float64", num_heads=HEADS, num_kv_heads=KV_HEADS, scale=scale)
    grad_output = rng.standard_normal((BATCH, HEADS, QUERIES, VALUE_DIM))
    return case.but(outputs=("grad_query", "grad_key", "grad_value"), grad_output=grad_output)


def mha(*masks: MaskOperand) -> Problem:
    """Return a problem that requests the gradients of every input and every parameter."""
    rng = np.random.default_rng(13)
    case = random_mha(rng, *masks, dtype="float64", num_heads=HEADS, num_kv_heads=KV_HEADS)
    outputs = tuple("grad_" + name for name in ("query", "key", "value", *case.params))
    return case.but(outputs=outputs, grad_output=rng.standard_normal((BATCH, QUERIES, OUTPUT_DIM)))


def allowed(*, fully_masked: bool = False) -> MaskOperand:
    values = np.random.default_rng(3).random((BATCH, HEADS, QUERIES, KEYS)) < 0.6
    values[..., 0] = True
    if fully_masked:
        values[0, :, 2] = False
    return MaskOperand("mask", ("attention",), "bool", values)


def bias() -> MaskOperand:
    values = np.random.default_rng(5).standard_normal((1, HEADS, QUERIES, KEYS))
    values[:, :, :, 3] = -np.inf
    return MaskOperand("bias", ("additive",), "float", values)


def array_of(problem: Problem, name: str) -> Array:
    return problem.params[name] if name in problem.params else np.asarray(getattr(problem, name))


def with_array(problem: Problem, name: str, array: Array) -> Problem:
    if name in problem.params:
        return problem.but(params={**problem.params, name: array})
    return problem.but(**{name: array})


def loss(problem: Problem) -> float:
    output = evaluate(problem.but(outputs=("output",))).reply["output"].values
    assert problem.grad_output is not None
    return float((output * problem.grad_output).sum())


def differences(problem: Problem, name: str, places: list[tuple[int, ...]]) -> list[float]:
    found = []
    for place in places:
        ends = []
        for step in (STEP, -STEP):
            moved = array_of(problem, name).copy()
            moved[place] += step
            ends.append(loss(with_array(problem, name, moved)))
        found.append((ends[0] - ends[1]) / (2.0 * STEP))
    return found


PROBLEMS = {
    "plain": sdpa(),
    "scale": sdpa(scale=0.7),
    "holes": sdpa(allowed()),
    "bias": sdpa(bias()),
    "both, and a dead row": sdpa(allowed(fully_masked=True), bias()),
    "softcap": sdpa(bias()).but(softcap=1.5),
    "softcap, and a dead row": sdpa(allowed(fully_masked=True), bias()).but(softcap=0.8),
    "mha": mha(),
    "mha, softcap": mha(allowed()).but(softcap=1.2),
    "mha, both, and a dead row": mha(allowed(fully_masked=True), bias()),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_gradients_are_the_slopes_of_the_output(name: str) -> None:
    problem = PROBLEMS[name]
    reply = evaluate(problem).reply
    rng = np.random.default_rng(7)
    for output in problem.outputs:
        by = output.removeprefix("grad_")
        shape = array_of(problem, by).shape
        assert reply[output].values.shape == shape
        places = [tuple(int(rng.integers(size)) for size in shape) for _ in range(5)]
        expected = differences(problem, by, places)
        np.testing.assert_allclose([reply[output].values[place] for place in places], expected, rtol=2e-6, atol=2e-7)


def test_one_query_two_keys_by_hand() -> None:
    # Logits 0 and log 3: weights 1/4 and 3/4. O = 1/4 * 8 + 3/4 * 4 = 5, dO = 2: dP = (16, 8), mean 10,
    # dS = (1/4 * 6, 3/4 * -2) = (3/2, -3/2). scale 1: dq = 3/2 * (0 - log 3), dk = dS * 1, dv = (1/2, 3/2).
    outputs = ("grad_query", "grad_key", "grad_value")
    problem = one_query([0.0, LOG3], [8.0, 4.0], outputs=outputs, grad_output=np.full((1, 1, 1, 1), 2.0))
    reply = {name: expected.values.ravel() for name, expected in evaluate(problem).reply.items()}
    np.testing.assert_allclose(reply["grad_query"], [-1.5 * LOG3], rtol=1e-14)
    np.testing.assert_allclose(reply["grad_key"], [1.5, -1.5], rtol=1e-14)
    np.testing.assert_allclose(reply["grad_value"], [0.5, 1.5], rtol=1e-14)


def test_what_nobody_attends_has_no_gradient_and_no_tolerance() -> None:
    problem = PROBLEMS["both, and a dead row"]
    answer = evaluate(problem)
    bounds = bound_reply(answer, Profile.uniform("float32"))
    for name in ("grad_key", "grad_value"):
        assert not answer.reply[name].values[:, :, 3].any()
        assert not bounds[name].tolerance[:, :, 3].any()
    assert not answer.reply["grad_query"].values[0, :, 2].any()
    assert not bounds["grad_query"].tolerance[0, :, 2].any()
    assert (bounds["grad_query"].tolerance[1] > 0.0).all()


def test_the_key_bias_has_a_bound_of_what_cancels() -> None:
    # A key bias adds one number to all logits of a row: its gradient is a sum of nonzero terms that cancel.
    answer = evaluate(PROBLEMS["mha"])
    bound = bound_reply(answer, Profile.uniform("float32"))["grad_bk"]
    assert np.abs(answer.reply["grad_bk"].values).max() < 1e-12
    assert (bound.tolerance > 1e-8).all()
    assert bound.coverage == 1.0


def test_a_product_that_float16_cannot_hold_leaves_gradients_unjudged() -> None:
    problem = PROBLEMS["plain"].but(dtype="float16")
    assert problem.grad_output is not None
    profile = Profile.naive("float16")
    fits = bound_reply(evaluate(problem, {}, "float16"), profile)["grad_key"]
    loud = problem.but(value=problem.value * 2.0**9, grad_output=problem.grad_output * 2.0**8)
    over = bound_reply(evaluate(loud, {}, "float16"), profile)["grad_key"]
    assert fits.judged.all()
    assert not over.judged.any()


def test_only_deviations_that_leave_the_function_keep_its_gradients() -> None:
    problem = PROBLEMS["holes"]
    keys = {deviation.key for deviation in candidates(problem)}
    assert {"polarity[mask]=ignore", "scale=none", "fully_masked_row=uniform"} <= keys
    others = {"softmax_axis=queries", "grouped_heads=tile", "arguments=query_key"}
    assert others <= {deviation.key for deviation in TABLE}
    assert not others & keys


def test_what_is_added_to_a_masked_logit_lets_its_gradient_pass() -> None:
    # In float64, adding -1e9 turns a fully masked row into the unmasked softmax, with the same gradients.
    problem = PROBLEMS["holes"].but(mask_operands=(allowed(fully_masked=True),))
    added = evaluate(problem, {"mask_fill": "minus_1e9"}).reply["grad_query"].values
    unmasked = evaluate(problem.but(mask_operands=())).reply["grad_query"].values
    np.testing.assert_allclose(added[0, :, 2], unmasked[0, :, 2], rtol=1e-5)
    replaced = evaluate(problem, {"mask_fill": "finite_minimum"}).reply
    assert not replaced["grad_query"].values[0, :, 2].any()
    shares = replaced["grad_value"].values - evaluate(problem).reply["grad_value"].values
    wanted = np.asarray(problem.grad_output)[0, :, 2].reshape(KV_HEADS, -1, VALUE_DIM).sum(axis=1) / KEYS
    np.testing.assert_allclose(shares[0], np.broadcast_to(wanted[:, None], (KV_HEADS, KEYS, VALUE_DIM)), rtol=1e-12)
    assert not shares[1].any()


def test_gradients_follow_a_deviation_of_the_problem() -> None:
    problem = PROBLEMS["plain"]
    wrong = evaluate(problem, {"scale": "none"}).reply
    right = evaluate(problem.but(scale=1.0)).reply
    assert find("scale", "none").problem is not None
    np.testing.assert_array_equal(wrong["grad_query"].values, right["grad_query"].values)


def test_a_problem_without_the_gradient_of_its_output_is_refused() -> None:
    with pytest.raises(ValueError, match="a problem with the output gradients needs grad_output"):
        evaluate(PROBLEMS["plain"].but(grad_output=None))


def test_a_coarse_sum_widens_the_bounds_of_biases_alone() -> None:
    problem = mha()
    answer = evaluate(problem)
    fine = bound_reply(answer, Profile.uniform("float32"))
    coarse = bound_reply(answer, Profile.uniform("float32").but(bias_sum="float16"))
    biases = {"grad_bq", "grad_bk", "grad_bv", "grad_bo"}
    assert {name for name in fine if not np.array_equal(fine[name].sigma, coarse[name].sigma)} == biases
    assert all((coarse[name].sigma > 100 * fine[name].sigma).all() for name in biases - {"grad_bk"})


def test_a_sum_of_biases_is_never_finer_than_the_accumulator() -> None:
    answer = evaluate(mha())
    profile = Profile.uniform("float32").but(acc="float16")
    accumulated = bound_reply(answer, profile)["grad_bo"].sigma
    assert np.array_equal(bound_reply(answer, profile.but(bias_sum="float32"))["grad_bo"].sigma, accumulated)


LOWEST = -float(np.finfo(np.float32).max)


def key_gradient(problem: Problem, *, rounded_weights: bool) -> Array:
    """Return the gradient of the key in NumPy: stored tensors and dS in float16, and P too if `rounded_weights`."""

    def half(array: Array) -> Array:
        return array.astype(np.float16).astype(np.float64)

    grad, bias = problem.grad_output, problem.bias()
    assert grad is not None
    assert bias is not None
    scores = problem.query @ problem.key.swapaxes(-1, -2) * problem.applied_scale + bias
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    mean = (half(weights @ problem.value) * grad).sum(axis=-1, keepdims=True)
    weights = half(weights) if rounded_weights else weights
    by_scores = half(weights * (grad @ problem.value.swapaxes(-1, -2) - mean))
    return half(problem.applied_scale * by_scores.swapaxes(-1, -2) @ problem.query)


def test_the_backward_pass_may_use_the_weights_as_they_are_or_rounded_to_their_dtype() -> None:
    # The weights of the first key are about 1e-9, which is zero in float16. Weight gradients of 1e4 make that visible.
    far = np.where(np.arange(KEYS) == 0, -20.0, 0.0)[None, None, None]
    case = random_sdpa(29, MaskOperand("bias", ("additive",), "float", far), dtype="float16")
    case = case.but(value=round_to(case.value * 4000.0, "float16"), outputs=("grad_key",))
    shape = (*case.query.shape[:-1], VALUE_DIM)
    case = case.but(grad_output=round_to(np.random.default_rng(31).standard_normal(shape), "float16"))
    answer, bounds = answered(case, Profile.fused("float16"))
    exact, rounded = (key_gradient(case, rounded_weights=each) for each in (False, True))
    for actual in (exact, rounded):
        assert (np.abs(actual - answer.reply["grad_key"].values) <= bounds["grad_key"].tolerance).all()
    assert np.abs(exact[:, :, 0]).max() > 1e-6
    assert not rounded[:, :, 0].any()


def test_the_backward_pass_may_store_the_gradient_by_a_score_before_or_after_the_scale_by_hand() -> None:
    # q = 1024, c = 1/8, logits -15 and 0: P = 3.06e-7, dP = 1, dS = 3.06e-7. That is 5.1 subnormals of float16, but
    # c dS is 0.64 subnormals: a kernel that stores it there may lose it. Then the gradient is 0 and not 3.9e-5.
    keys = np.array([-15.0, 0.0]) / 128.0
    fields: dict[str, Any] = {"outputs": ("grad_key",), "scale": 0.125, "grad_output": np.ones((1, 1, 1, 1))}
    fields["dtype"] = "float16"
    case = sdpa_call([[[[1024.0]]]], keys.reshape(1, 1, 2, 1), [[[[1.0], [0.0]]]], **fields)
    answer, bounds = answered(case, Profile.fused("float16"))
    exact, tolerance = answer.reply["grad_key"].values[0, 0, 0, 0], bounds["grad_key"].tolerance[0, 0, 0, 0]
    assert exact == pytest.approx(1024.0 / 8.0 * np.exp(-15.0), rel=1e-6)
    # One subnormal of c dS for its store and one for the softmax's, times q; the rounding of the result adds little.
    assert exact < tolerance < 2.0 * 1024.0 * 2.0**-24 * 1.1


def lowest_row(bias: float = LOWEST) -> Problem:
    """Return one query with logits 2, 3, 5, each plus `bias`, values 0, 3, 9 and an output gradient of 1."""
    mask = MaskOperand("mask", ("additive",), "float", np.full((1, 1, 1, 3), bias))
    outputs = ("output", "grad_query", "grad_key", "grad_value")
    fields = {"dtype": "float32", "outputs": outputs, "grad_output": np.ones((1, 1, 1, 1))}
    return one_query([2.0, 3.0, 5.0], [0.0, 3.0, 9.0], mask, **fields)


def test_a_row_of_the_lowest_number_is_a_mean_on_the_way_back_too_by_hand() -> None:
    # Weights 1/3, O = 4, dP = (0, 3, 9), dS = (-4, -1, 5) / 3: dq = (-8 - 3 + 25) / 3.
    reply = {name: expected.values.ravel() for name, expected in evaluate(lowest_row()).reply.items()}
    np.testing.assert_allclose(reply["output"], [4.0], rtol=1e-14)
    np.testing.assert_allclose(reply["grad_query"], [14.0 / 3.0], rtol=1e-14)
    np.testing.assert_allclose(reply["grad_key"], np.array([-4.0, -1.0, 5.0]) / 3.0, rtol=1e-14)
    np.testing.assert_allclose(reply["grad_value"], np.full(3, 1.0 / 3.0), rtol=1e-14)


def test_the_lowest_number_may_be_taken_for_minus_infinity() -> None:
    taken = {"lowest_bias": "masks"}
    masked = evaluate(lowest_row(), taken).reply
    assert not any(masked[name].values.any() for name in lowest_row().outputs)
    ordinary = lowest_row(np.nextafter(np.float32(LOWEST), np.float32(0.0)))
    np.testing.assert_allclose(evaluate(ordinary, taken).reply["output"].values.ravel(), [4.0], rtol=1e-14)
    change = find("lowest_bias", "masks").problem
    assert change is not None
    assert change(ordinary) is ordinary
    holes = PROBLEMS["holes"]
    assert change(holes) is holes


def test_a_row_whose_sum_is_lost_has_gradients_as_many_times_too_large_as_it_has_keys() -> None:
    right = evaluate(lowest_row()).reply
    wrong = evaluate(lowest_row(), {"recomputed_weights": "unnormalised"}).reply
    for name in lowest_row().outputs:
        factor = 1.0 if name == "output" else 3.0
        np.testing.assert_allclose(wrong[name].values, factor * right[name].values, rtol=1e-14)
    fully_masked = PROBLEMS["holes"].but(mask_operands=(allowed(fully_masked=True),))
    added = {"mask_fill": "minus_1e9"}
    mean = evaluate(fully_masked, added, "float32").reply["grad_query"].values
    lost = evaluate(fully_masked, {**added, "recomputed_weights": "unnormalised"}, "float32").reply["grad_query"].values
    np.testing.assert_allclose(lost[0, :, 2], KEYS * mean[0, :, 2], rtol=1e-12)
    np.testing.assert_array_equal(lost[1], mean[1])


def test_a_bias_that_swallows_logits_leaves_them_without_an_error() -> None:
    bounds = bound_reply(evaluate(lowest_row()), Profile.uniform("float32"))
    for name, bound in bounds.items():
        assert bound.judged.all(), name
        assert (bound.tolerance < 1e-4).all(), name
        assert bound.coverage == 1.0, name
    ordinary = bound_reply(evaluate(lowest_row(-1e9)), Profile.uniform("float32"))["output"]
    assert ordinary.coverage == 0.0  # float32 numbers are 64 apart there, float64 has all integers: weights are open


def test_weights_that_are_recomputed_are_asked_about_only_where_gradients_are() -> None:
    keys = {deviation.key for deviation in candidates(lowest_row())}
    assert "recomputed_weights=unnormalised" in keys
    forward = {deviation.key for deviation in candidates(lowest_row().but(outputs=("output",)))}
    assert "recomputed_weights=unnormalised" not in forward


def by_single_precision(problem: Problem, *, slope: bool = True) -> dict[str, Array]:
    """Return gradients in float32, operator by operator; without the slope of the softcap if `slope` is false."""
    cap, scale = np.float32(problem.softcap), np.float32(problem.applied_scale)
    query, key, value, grad = (
        np.asarray(array, np.float32) for array in (problem.query, problem.key, problem.value, problem.grad_output)
    )
    tangent = np.tanh(query @ key.swapaxes(-1, -2) * scale / cap)
    exponentials = np.exp(cap * tangent - (cap * tangent).max(axis=-1, keepdims=True))
    probs = exponentials / exponentials.sum(axis=-1, keepdims=True)
    by_probs = grad @ value.swapaxes(-1, -2)
    by_capped = probs * (by_probs - (probs * by_probs).sum(axis=-1, keepdims=True))
    by_scaled = by_capped * (1 - tangent**2 if slope else np.float32(1)) * scale
    found = {"query": by_scaled @ key, "key": by_scaled.swapaxes(-1, -2) @ query}
    found["value"] = probs.swapaxes(-1, -2) @ grad
    return {f"grad_{name}": array.astype(np.float64) for name, array in found.items()}


@pytest.mark.parametrize("softcap", [0.25, 1.5, 40.0])
def test_gradients_through_a_softcap_are_within_their_bound_and_one_without_its_slope_is_not(softcap: float) -> None:
    whole = sdpa().but(num_kv_heads=HEADS, dtype="float32", softcap=softcap)
    key, value = (np.repeat(array, HEADS // KV_HEADS, axis=1) for array in (whole.key, whole.value))
    arrays = {"query": whole.query, "key": key, "value": value, "grad_output": np.asarray(whole.grad_output)}
    problem = whole.but(**{name: array.astype(np.float32).astype(np.float64) for name, array in arrays.items()})
    answer = evaluate(problem, {}, "float32")
    bounds = bound_reply(answer, Profile.uniform("float32"))
    right, wrong = by_single_precision(problem), by_single_precision(problem, slope=False)
    for name, bound in bounds.items():
        used = [np.abs(found[name] - answer.reply[name].values) / bound.tolerance for found in (right, wrong)]
        assert 0.01 < used[0].max() <= 1.0, name
        assert bound.coverage == 1.0, name
        assert name == "grad_value" or used[1].max() > 10.0, name
