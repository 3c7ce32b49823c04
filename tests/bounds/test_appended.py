"""Appended keys, activation, residual and no output projection, by hand; appended keys also against torch."""

from typing import Any

import numpy as np
import pytest

from conformance.bounds.outputs import bound_reply
from conformance.bridge.profile import UNIT, Profile
from conformance.deviations.catalogue import candidates, evaluate, evaluate_deviations
from conformance.deviations.deviation import with_params, without_params
from conformance.spec.problem import Array, MaskOperand, Problem
from conformance.spec.rounding import round_to

from ..problems import BATCH, HEADS, QUERIES, mha, random_mha

ROOT = np.sqrt(1 / 3)
KEYS, DIM = 11, 7
WIDTH = HEADS * DIM


def unit_problem(logits: list[float], **more: Any) -> Problem:
    """Return one head of head_dim 1 without biases; query and projections are 1, so the input keys are the logits."""
    one = np.ones((1, 1))
    params = {"wq": one, "wk": one, "wv": one, "wo": one} | more.pop("params", {})
    key = np.asarray(logits)[None, :, None]
    value = np.arange(1.0, len(logits) + 1.0)[None, :, None]
    return mha([[[1.0]]], key, value, params, 1, **{"outputs": ("output", "weights"), **more})


def reply(case: Problem, name: str = "weights", **dialect: str) -> Array:
    values: Array = evaluate(case, dialect).reply[name].values
    return values.reshape(-1)


LEARNED = {"bias_k": np.asarray([np.log(2.0)]), "bias_v": np.asarray([10.0])}
MASK = (MaskOperand("mask", ("attention",), "bool", np.asarray([True, False])[None, None, None]),)
CAUSAL = (MaskOperand("is_causal", ("causal",), "flag", np.asarray([True, False])[None, None, None], offset=0),)


def test_a_learned_key_and_one_of_zeros_stand_last() -> None:
    # logits 0, 0, log 2, 0: weights 1/5, 1/5, 2/5, 1/5
    case = unit_problem([0.0, 0.0], params=LEARNED, zero_key=True)
    assert reply(case) == pytest.approx([0.2, 0.2, 0.4, 0.2])
    assert reply(case, "output") == pytest.approx([0.2 * 1 + 0.2 * 2 + 0.4 * 10])
    assert case.weights_shape == (1, 1, 1, 4)


def test_masks_do_not_concern_them() -> None:
    case = unit_problem([0.0, 0.0], params=LEARNED, zero_key=True, mask_operands=MASK)
    assert reply(case) == pytest.approx([0.25, 0.0, 0.5, 0.25])
    bias = (MaskOperand("bias", ("additive",), "float", np.asarray([0.0, -np.inf])[None, None, None]),)
    assert reply(case.but(mask_operands=bias)) == pytest.approx([0.25, 0.0, 0.5, 0.25])
    one_number = (MaskOperand("bias", ("additive",), "float", np.asarray([np.log(3.0)])[None, None, None]),)
    assert reply(case.but(mask_operands=one_number)) == pytest.approx([3 / 9, 3 / 9, 2 / 9, 1 / 9])


@pytest.mark.parametrize(
    ("decision", "name", "weights"),
    [
        ("bias_kv", "ignored", [0.5, 0.0, 0.5]),
        ("zero_key", "ignored", [1 / 3, 0.0, 2 / 3]),
        ("appended_keys", "masked", [1.0, 0.0, 0.0, 0.0]),
        ("appended_keys", "first", [0.5, 0.0, 0.25, 0.25]),  # bias_k, the zero key (masked), then the other keys
    ],
)
def test_appended_keys_taken_otherwise(decision: str, name: str, weights: list[float]) -> None:
    case = unit_problem([0.0, 0.0], params=LEARNED, zero_key=True, mask_operands=MASK)
    assert reply(case, **{decision: name}) == pytest.approx(weights)


def test_a_causal_flag_may_take_appended_keys_for_later_ones() -> None:
    case = unit_problem([0.0, 0.0], params=LEARNED, mask_operands=CAUSAL)
    assert reply(case) == pytest.approx([1 / 3, 0.0, 2 / 3])
    assert reply(case, appended_keys="under_causal") == pytest.approx([1.0, 0.0, 0.0])
    assert reply(case.but(mask_operands=MASK), appended_keys="under_causal") == pytest.approx([1 / 3, 0.0, 2 / 3])


def test_a_learned_key_may_be_projected() -> None:
    case = unit_problem([0.0], params=LEARNED | {"wk": np.full((1, 1), 2.0)})
    assert reply(case) == pytest.approx([1 / 3, 2 / 3])
    assert reply(case, bias_kv="projected") == pytest.approx([1 / 5, 4 / 5])


def test_beside_an_appended_key_the_bias_of_the_others_shows() -> None:
    shifted = {"bk": np.asarray([np.log(4.0)]), "bq": np.zeros(1), "bv": np.zeros(1), "bo": np.zeros(1)}
    case = unit_problem([0.0, 0.0], params=shifted, zero_key=True)
    assert reply(case) == pytest.approx([4 / 9, 4 / 9, 1 / 9])
    assert reply(case, projection_bias="without_bk") == pytest.approx([1 / 3] * 3)
    plain = case.but(zero_key=False)
    np.testing.assert_allclose(reply(plain, projection_bias="without_bk"), reply(plain))


def test_an_activation_cuts_what_is_projected() -> None:
    case = unit_problem([-5.0, np.log(2.0)], activation="relu")
    assert reply(case) == pytest.approx([1 / 3, 2 / 3])
    uncut = reply(case.but(activation=None))
    np.testing.assert_array_equal(reply(case, projection_activation="ignored"), uncut)
    assert uncut[0] < 0.01
    assert reply(case.but(activation=None), projection_activation="relu") == pytest.approx([1 / 3, 2 / 3])


def test_a_residual_adds_the_query_as_it_came() -> None:
    case = unit_problem([0.0, 0.0], residual=True, params={"wq": np.full((1, 1), 7.0)})
    assert reply(case, "output") == pytest.approx([1.5 + 1.0])
    assert reply(case, "output", residual="ignored") == pytest.approx([1.5])


def test_without_an_output_projection_the_heads_stand_side_by_side() -> None:
    case = without_params(random_problem(1, outputs=("output",)), "wo", "bo")
    answer = evaluate(case)
    merged = answer.state.context.transpose(0, 2, 1, 3).reshape(BATCH, QUERIES, WIDTH)
    np.testing.assert_array_equal(answer.reply["output"].values, merged)
    assert case.sizes()["output_dim"] == WIDTH


def random_problem(seed: int, dtype: str = "float64", **more: Any) -> Problem:
    """Return a layer as in torch: one width for all inputs and outputs, and a learned key and value."""
    rng = np.random.default_rng(seed)
    sizes: dict[str, Any] = {"head_dim": DIM, "value_dim": DIM, "widths": (WIDTH,) * 3, "output_dim": WIDTH}
    case = random_mha(rng, dtype=dtype, seq_len_k=KEYS, **sizes, **{"outputs": ("output", "weights"), **more})
    learned = {name: round_to(rng.standard_normal(WIDTH), dtype) for name in ("bias_k", "bias_v")}
    return with_params(case, **learned)


@pytest.mark.frameworks
@pytest.mark.parametrize("zero_key", [False, True])
@pytest.mark.parametrize("learned", [False, True])
def test_torch_appends_alike(learned: bool, zero_key: bool) -> None:  # noqa: FBT001 - parametrised
    import torch  # noqa: PLC0415 - only this test needs it

    case = random_problem(2, zero_key=zero_key)
    if not learned:
        case = without_params(case, "bias_k", "bias_v")
    allowed = np.random.default_rng(3).random((BATCH, 1, 1, KEYS)) < 0.6
    case = case.but(mask_operands=(MaskOperand("mask", ("key_padding",), "bool", allowed),))
    layer = torch.nn.MultiheadAttention(
        WIDTH, HEADS, add_bias_kv=learned, add_zero_attn=zero_key, batch_first=True, dtype=torch.float64
    )
    state = {"in_proj_weight": np.concatenate([case.params[name].T for name in ("wq", "wk", "wv")])}
    state |= {"in_proj_bias": np.concatenate([case.params[name] for name in ("bq", "bk", "bv")])}
    state |= {"out_proj.weight": case.params["wo"].T, "out_proj.bias": case.params["bo"]}
    state |= {name: case.params[name].reshape(1, 1, WIDTH) for name in ("bias_k", "bias_v") if learned}
    layer.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in state.items()})
    query, key, value = (torch.from_numpy(array) for array in (case.query, case.key, case.value))
    padding = torch.from_numpy(~allowed[:, 0, 0])
    output, weights = layer(query, key, value, key_padding_mask=padding, average_attn_weights=False)
    expected = evaluate(case).reply
    np.testing.assert_allclose(output.detach().numpy(), expected["output"].values, atol=1e-13)
    np.testing.assert_allclose(weights.detach().numpy(), expected["weights"].values, atol=1e-14)


U = UNIT["float32"]


def test_an_appended_key_errs_only_where_inputs_enter_rounded() -> None:
    case = unit_problem([0.0], params={"bias_k": np.zeros(1), "bias_v": np.asarray([10.0])})
    exact = Profile.uniform("float64")
    stored = bound_reply(evaluate(case), exact.but(store="float32"))["output"]
    same = bound_reply(evaluate(case.but(dtype="float32")), exact.but(store="float32"))["output"]
    # 10, with weight 1/2, is rounded on entry: this adds (5 u sqrt(1/3))^2 to the variance
    assert stored.sigma.item() ** 2 - same.sigma.item() ** 2 >= (5 * U * ROOT) ** 2
    assert stored.sigma.item() ** 2 - same.sigma.item() ** 2 <= 2 * (5.5 * U * ROOT) ** 2 + (5 * U * ROOT) ** 2


def test_a_projection_that_is_cut_does_not_err() -> None:
    profile = Profile.uniform("float64").but(store="float32")
    case = unit_problem([-5.0, -7.0], activation="relu", outputs=("weights",)).but(dtype="float32")
    bound = bound_reply(evaluate(case), profile)["weights"]
    # relu sets both keys to exactly zero: no logit has an error
    assert bound.sigma.max() == pytest.approx(0.0, abs=1e-15)
    open_ = bound_reply(evaluate(case.but(activation=None)), profile)["weights"]
    assert open_.sigma.max() > U / 4


def test_a_residual_is_one_more_store() -> None:
    profile = Profile.uniform("float32")
    case = random_problem(4, "float32", outputs=("output",))
    plain, joined = (bound_reply(evaluate(each), profile)["output"] for each in (case, case.but(residual=True)))
    output = evaluate(case).reply["output"].values
    np.testing.assert_allclose(joined.spread, plain.spread + np.abs(case.query))
    np.testing.assert_allclose(joined.sigma, plain.sigma, rtol=1e-9)
    np.testing.assert_allclose(joined.hard - plain.hard, U * np.abs(output + case.query), rtol=1e-5, atol=1e-30)


def test_heads_side_by_side_have_the_bounds_of_their_contexts() -> None:
    profile = Profile.uniform("float32")
    answer = evaluate(without_params(random_problem(5, "float32", outputs=("output",)), "wo", "bo"))
    bound = bound_reply(answer, profile)["output"]
    assert bound.sigma.shape == (BATCH, QUERIES, WIDTH)
    assert (bound.hard >= U * np.abs(answer.reply["output"].values)).all()
    assert (bound.sigma > 0).all()
    assert (bound.worst > bound.hard).all()


def test_every_deviation_can_be_asked_of_what_joins_attention() -> None:
    # as many queries as keys, so that transpositions apply; appended keys make rows longer than columns
    group = MaskOperand(
        "mask", ("attention",), "bool", np.random.default_rng(6).random((BATCH, HEADS, KEYS, KEYS)) < 0.7
    )
    square = random_problem(6, "float32", zero_key=True, activation="relu", residual=True, softcap=2.0, dropout_p=0.5)
    square = square.but(query=square.key, mask_operands=(group,), requirements=("bias_kv", "zero_key"))
    for problem in (square, without_params(square, "wo", "bo"), square.but(alias="qkv", value=square.key)):
        for deviation in candidates(problem):
            answer = evaluate_deviations(problem, (deviation,), "float32")
            assert answer.reply["output"].values.ndim == 3, deviation.key
