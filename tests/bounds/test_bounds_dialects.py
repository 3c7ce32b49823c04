"""The bound follows the dialect that the oracle used for the answer."""

import numpy as np
import pytest

from conformance.bounds.bound import Bound
from conformance.bounds.outputs import UnderivedBound, bound_reply
from conformance.bridge.profile import UNIT, Profile
from conformance.deviations.catalogue import TABLE, evaluate, evaluate_deviations
from conformance.deviations.mask_arguments import slot_deviations
from conformance.deviations.softmax import RECOMPUTED
from conformance.deviations.tiles import BLOCKS, TAIL_BLOCKS
from conformance.spec.problem import Array, MaskOperand, Problem

from ..problems import BATCH, HEADS, KEYS, QUERIES, VALUE_DIM, answered, random_mha, random_sdpa, sdpa

FLOAT32, FLOAT64 = Profile.uniform("float32"), Profile.uniform("float64")
PARTS = ("hard", "sigma", "worst", "judged", "spread")


def problem(seed: int, dtype: str = "float32", allowed: Array | None = None, loudness: float = 1.0) -> Problem:
    masks = () if allowed is None else (MaskOperand("mask", ("attention",), "bool", allowed),)
    case = random_sdpa(seed, *masks, dtype=dtype, outputs=("output", "weights"))
    return case.but(query=case.query * loudness)


def fully_masked_rows() -> Array:
    """Return a mask that fully masks query 1 of batch element 0 in all heads, and query 2 of element 1 in head 2."""
    allowed = np.random.default_rng(17).random((BATCH, HEADS, QUERIES, KEYS)) < 0.7
    allowed[..., 3] = True
    allowed[0, :, 1] = False
    allowed[1, 2, 2] = False
    return allowed


def assert_alike(one: Bound, other: Bound) -> None:
    for part in PARTS:
        np.testing.assert_allclose(getattr(one, part), getattr(other, part), rtol=1e-9)


@pytest.mark.parametrize("policy", ["zero", "nan"])
def test_rows_that_attend_nothing_are_exact(policy: str) -> None:
    dialect = {} if policy == "zero" else {"fully_masked_row": policy}
    _, bounds = answered(problem(1, allowed=fully_masked_rows()), FLOAT32, **dialect)
    for bound in bounds.values():
        assert (bound.tolerance[0, :, 1] == 0.0).all()
        assert (bound.worst[1, 2, 2] == 0.0).all()
        assert bound.judged.all()


@pytest.mark.parametrize("loudness", [1.0, 64.0])
def test_a_uniform_row_has_the_bound_of_a_mean_whatever_its_logits(loudness: float) -> None:
    case = problem(2, allowed=fully_masked_rows(), loudness=loudness)
    answer, bounds = answered(case, FLOAT32, fully_masked_row="uniform")
    u, mean, value = UNIT["float32"], answer.state.context[0, :, 1], case.value[0]
    np.testing.assert_allclose(bounds["output"].hard[0, :, 1], u * np.abs(mean))
    squares = (value**2).sum(axis=1) / 49
    denominator = 7 / 3 + (7 / 6 + 1) / 7 + 2
    random_order = 7 / 3 * mean**2 + (7 / 6 + 1) * squares
    natural_order = ((value.cumsum(axis=1) / 7) ** 2).sum(axis=1) + squares
    variance = denominator * mean**2 + np.maximum(random_order, natural_order) + squares
    np.testing.assert_allclose(bounds["output"].sigma[0, :, 1], u * np.sqrt(variance / 3), rtol=1e-6)
    np.testing.assert_allclose(bounds["weights"].hard[0, :, 1], u / 7)
    np.testing.assert_allclose(bounds["weights"].sigma[0, :, 1], u / 7 * np.sqrt(denominator / 3))


def test_a_row_that_ignores_its_mask_has_the_bound_without_one() -> None:
    _, masked = answered(problem(3, allowed=fully_masked_rows()), FLOAT32, fully_masked_row="unmasked")
    _, free = answered(problem(3), FLOAT32)
    for name, bound in masked.items():
        np.testing.assert_allclose(bound.sigma[0, :, 1], free[name].sigma[0, :, 1], rtol=1e-9)
        np.testing.assert_allclose(bound.worst[0, :, 1], free[name].worst[0, :, 1], rtol=1e-9)


@pytest.mark.parametrize("name", ["minus_1e9", "finite_minimum"])
def test_a_fill_that_swallows_the_logits_leaves_a_mean(name: str) -> None:
    case = problem(4, allowed=fully_masked_rows())
    answer, filled = answered(case, FLOAT32, mask_fill=name)
    assert answer.state.absorbed[0, :, 1].all()
    _, uniform = answered(case, FLOAT32, fully_masked_row="uniform")
    np.testing.assert_allclose(filled["output"].sigma[0, :, 1], uniform["output"].sigma[0, :, 1], rtol=1e-9)
    np.testing.assert_allclose(filled["output"].hard[0, :, 1], uniform["output"].hard[0, :, 1], rtol=1e-9)


@pytest.mark.parametrize(("loudness", "profile"), [(1.0, FLOAT32), (64.0, FLOAT32), (1.0, FLOAT64)])
def test_one_minus_a_float_mask_is_bounded_where_it_leaves_means(loudness: float, profile: Profile) -> None:
    # A mask of 0 and -inf: -1e9 is added to attended logits. In float32 it absorbs logits below 32, not larger ones.
    added = np.where(fully_masked_rows(), 0.0, -np.inf)
    case = problem(4, loudness=loudness).but(
        mask_operands=(MaskOperand("mask", ("attention",), "float", added, verbatim=True),)
    )
    dialect = {"float_mask[mask]": "one_minus"}
    if loudness > 1.0 or profile == FLOAT64:
        with pytest.raises(UnderivedBound, match="one_minus"):
            answered(case, profile, **dialect)
        return
    answer, bounds = answered(case, profile, **dialect)
    seen = fully_masked_rows().sum(axis=-1)
    np.testing.assert_allclose(answer.state.probs[0, 0, 0], fully_masked_rows()[0, 0, 0] / seen[0, 0, 0])
    unit = UNIT["float32"]
    np.testing.assert_allclose(bounds["weights"].hard[0, 0, 0], unit / seen[0, 0, 0] * fully_masked_rows()[0, 0, 0])
    assert bounds["weights"].judged.all()


def test_a_fill_rounds_the_logits_of_other_rows_once_more() -> None:
    case = problem(5, allowed=fully_masked_rows())
    _, filled = answered(case, FLOAT32, mask_fill="minus_1e9")
    _, plain = answered(case, FLOAT32)
    ratio = filled["output"].sigma[1, 0] / plain["output"].sigma[1, 0]
    assert ratio.min() > 1.0
    assert ratio.max() < 1.5


def test_a_logit_on_a_rounding_boundary_under_a_fill_is_not_judged() -> None:
    allowed = np.array([[False, False], [True, True]])[None, None]
    mask = MaskOperand("mask", ("attention",), "bool", allowed)
    # -1e9 + 32 is halfway between two float32 numbers
    case = sdpa([[[[1.0], [1.0]]]], [[[[32.0], [0.0]]]], [[[[1.0], [2.0]]]], mask, dtype="float32")
    assert answered(case, FLOAT32, mask_fill="minus_1e9")[1]["output"].judged.ravel().tolist() == [False, True]
    near = case.but(key=case.key * 0.75)
    assert answered(near, FLOAT32, mask_fill="minus_1e9")[1]["output"].judged.all()
    assert answered(case, FLOAT32, mask_fill="finite_minimum")[1]["output"].judged.all()


def test_a_fill_that_float64_does_not_feel_is_an_unmasked_row() -> None:
    case = problem(6, "float64", allowed=fully_masked_rows())
    answer, bounds = answered(case, FLOAT64, mask_fill="minus_1e4")
    assert not answer.state.absorbed.any()
    assert bounds["output"].judged.all()
    # float64 numbers near 1e4 are 1.8e-12 apart: a logit that rounds to the next one moves its weight by that much
    assert bounds["output"].tolerance[0, :, 1].max() < 1e-10


@pytest.mark.parametrize(
    "dialect",
    [
        {"softmax_axis": "queries"},
        {"softmax_axis": "heads", "mask_fill": "zero_after_softmax"},
        {"mask_fill": "zero_after_softmax"},
        {"returned_weights": "before_softmax"},
    ],
    ids=str,
)
def test_where_rows_need_not_sum_to_one_nothing_is_derived(dialect: dict[str, str]) -> None:
    answer = evaluate(problem(7, allowed=fully_masked_rows()), dialect)
    with pytest.raises(UnderivedBound, match="can name this as a cause, but you cannot declare it"):
        bound_reply(answer, FLOAT32)


def test_a_problem_with_numbers_of_its_own_has_no_bound_though_all_rows_are_dead() -> None:
    # only the output bias remains, which is exact; three times the bias, once for each head, is rounded
    none = MaskOperand("mask", ("attention",), "bool", np.zeros((1, 1, QUERIES, KEYS), dtype=bool))
    case = random_mha(9, none)
    _, exact = answered(case, FLOAT32)
    assert not exact["output"].tolerance.any()
    _, still = answered(case, FLOAT32, value_path="summed")
    assert not still["output"].tolerance.any()
    with pytest.raises(UnderivedBound, match="bo_of_each_head"):
        answered(case, FLOAT32, projection_bias="bo_of_each_head")


def test_the_mean_of_weights_before_the_softmax_is_not_derived_either() -> None:
    answer = evaluate(problem(7).but(outputs=("weights_mean",)), {"returned_weights": "before_softmax"})
    with pytest.raises(UnderivedBound, match="before the softmax"):
        bound_reply(answer, FLOAT32)


def test_weights_that_nobody_asked_for_are_not_in_the_way() -> None:
    case = problem(7).but(outputs=("output",))
    _, plain = answered(case, FLOAT32)
    _, bounds = answered(case, FLOAT32, returned_weights="before_softmax")
    assert_alike(bounds["output"], plain["output"])


def test_a_transposed_output_has_a_transposed_bound() -> None:
    _, plain = answered(problem(8), FLOAT32)
    answer, moved = answered(problem(8), FLOAT32, output_axes="transposed")
    for part in PARTS:
        array = getattr(moved["output"], part)
        assert array.shape == answer.reply["output"].values.shape == (BATCH, QUERIES, HEADS, VALUE_DIM)
        np.testing.assert_array_equal(array.swapaxes(1, 2), getattr(plain["output"], part))
    assert_alike(moved["weights"], plain["weights"])


def test_averaged_weights_have_the_bound_of_the_mean() -> None:
    _, named = answered(problem(9).but(outputs=("weights_mean",)), FLOAT32)
    answer, averaged = answered(problem(9), FLOAT32, returned_weights="averaged")
    assert answer.reply["weights"].values.shape == averaged["weights"].hard.shape
    assert_alike(averaged["weights"], named["weights_mean"])


@pytest.mark.parametrize(("dtype", "adds"), [("bfloat16", True), ("float16", True), ("float64", False)])
def test_a_result_is_rounded_to_what_is_coarser(dtype: str, adds: bool) -> None:  # noqa: FBT001 - a column of the table
    answer, bounds = answered(problem(10), FLOAT32, result_dtype=dtype)
    _, plain = answered(problem(10), FLOAT32)
    extra = UNIT[dtype] * np.abs(answer.reply["output"].values) if adds else 0.0
    np.testing.assert_allclose(bounds["output"].hard, plain["output"].hard + extra, atol=1e-7 if adds else 1e-30)
    np.testing.assert_array_equal(bounds["output"].sigma, plain["output"].sigma)


def test_a_result_too_large_for_its_dtype_is_not_judged() -> None:
    case = problem(11)
    value = case.value.copy()
    value[0, 0, :, 0] = 65504.0
    judged = answered(case.but(value=value), FLOAT32, result_dtype="float16")[1]["output"].judged
    assert not judged[0, 0, :, 0].any()
    assert judged[..., 1:].all()


def test_a_deviation_of_the_problem_is_bounded_as_the_problem_it_makes() -> None:
    case = problem(12)
    _, varied = answered(case, FLOAT32, scale="none")
    _, direct = answered(case.but(scale=1.0), FLOAT32)
    assert_alike(varied["output"], direct["output"])


def test_tiled_heads_and_reversed_values_move_errors_with_them() -> None:
    case = problem(13)
    wide = np.concatenate([case.query, case.query], axis=1)
    few = case.but(query=wide, num_heads=2 * HEADS, num_kv_heads=HEADS)
    tiled = answered(few, Profile.fused("float16"), grouped_heads="tile")[1]["output"]
    plain = answered(case, Profile.fused("float16"))[1]["output"]
    np.testing.assert_allclose(tiled.sigma[:, HEADS:], plain.sigma, rtol=1e-9)
    backwards = answered(case, FLOAT32, value_path="reversed")[1]["output"]
    direct = answered(case.but(value=case.value[:, :, ::-1]), FLOAT32)[1]["output"]
    assert_alike(backwards, direct)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_every_deviation_is_bounded_or_refused(dtype: str) -> None:
    case = problem(14, dtype, allowed=fully_masked_rows())
    profile = Profile.ordinary(dtype)
    refused = set()
    for deviation in (*slot_deviations("mask"), *TABLE):  # including those that change nothing here
        if deviation.decision == RECOMPUTED:
            continue
        answer = evaluate_deviations(case, (deviation,), profile.score)
        try:
            bounds = bound_reply(answer, profile)
        except UnderivedBound:
            refused.add(deviation.key)
            continue
        for name, expected in answer.reply.items():
            for part in PARTS:
                array = getattr(bounds[name], part)
                assert array.shape == expected.values.shape, deviation.key
                assert not np.isnan(array).any(), deviation.key
            assert (bounds[name].tolerance[~np.isfinite(expected.values)] == 0.0).all(), deviation.key
    of_parts = ("lazily_rescaled", "parts_without_maxima", "parts_by_exp_of_log2", "parts_by_exp2_of_log")
    limits = tuple(f"lazily_rescaled_up_to_{limit}" for limit in (1, 2, 4, 8, 16))
    running = (
        *("not_rescaled", "block_not_rescaled", "total_not_rescaled", "nothing_rescaled"),
        *("rescaled_by_exp_of_log2", "rescaled_by_exp2_of_log"),
    )
    of_blocks = (
        "masked_block=nan",
        "masked_block=ends",
        *(f"online_softmax={name}" for name in (*of_parts, *limits)),
    )
    of_small_blocks = ("leading_masked_keys=nan", *(f"online_softmax={name}" for name in running))
    assert refused == {
        *(f"{key}_{block}" for key in of_blocks for block in BLOCKS),
        *(f"key_tail={name}_{block}" for name in ("zeros", "repeated") for block in TAIL_BLOCKS),
        *(f"{key}_{block}" for key in of_small_blocks for block in (1, 2, *BLOCKS)),
        "float_mask[mask]=one_minus",
        "argument_fill[mask]=zero_after_softmax",
        "attention_axis=heads",
        "softmax_axis=queries",
        "softmax_denominator=plus_one",
        "mask_fill=zero_after_softmax",
        "returned_weights=before_softmax",
        "returned_weights=masked_logits",
        "returned_weights=unmasked",
        "returned_weights=uniform_in_fully_masked_rows",
        "returned_weights=nan_in_fully_masked_rows",
        "grouped_heads=first",
        "mask_fill=times_infinity",
        "value_path=weights_transposed",
        "query_tail=zero",
        "returned_weights=summed",
        "inactive_dropout=scales_weights",
        "softcap=after_bias",
        "softcap=after_mask",
        "softcap=unmultiplied",
        "head_result=first",
        *(
            f"softmax_maximum={name}{guard}"
            for name in ("of_masked_keys", "of_all", "from_zero")
            for guard in ("", "_unguarded")
        ),
        "softmax_axis=batch",
        "softmax_axis=batch_and_heads",
        "softmax_axis=queries_and_keys",
        "softmax_axis=heads_queries_and_keys",
        "softmax_axis=all",
        "softmax_count=twice",
        "softmax_denominator=missing",
        "softcap=undivided",
        "arguments=key_reshaped",
        "value_path=summed",
        "padded_queries=zeroed",
        "padded_queries=zeroed_with_weights",
    }
