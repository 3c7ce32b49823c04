"""The oracle on problems that are small enough to solve by hand."""

from typing import Any

import numpy as np
import pytest

from conformance.deviations.catalogue import TABLE, compose, evaluate, find
from conformance.deviations.edges import causal
from conformance.deviations.mask_arguments import slot_deviations
from conformance.deviations.names import CANONICAL_NAMES
from conformance.diagnosis.explanation import CANONICAL, sentence
from conformance.spec.problem import Array, MaskOperand, Problem

from ..problems import LOG3, mha, sdpa, two_heads, two_keys

ALL_OUTPUTS = ("output", "weights", "weights_mean")


def allow(rows: list[list[int]], slot: str = "mask", **fields: Any) -> MaskOperand:
    return MaskOperand(slot, ("attention",), "bool", np.asarray(rows, dtype=bool)[None, None], **fields)


def output(problem: Problem, **dialect: str) -> list[float]:
    named = {key.replace("__", "[") + ("]" if "__" in key else ""): name for key, name in dialect.items()}
    return [float(x) for x in evaluate(problem, named).reply["output"].values.ravel()]


def weights(problem: Problem, **dialect: str) -> Array:
    return np.asarray(evaluate(problem.but(outputs=("output", "weights")), dialect).reply["weights"].values[0])


def test_weights_are_one_quarter_and_three_quarters() -> None:
    assert weights(two_keys())[0] == pytest.approx(np.array([[0.25, 0.75], [0.75, 0.25]]))
    assert output(two_keys()) == pytest.approx([7.0, 5.0])


def test_a_masked_key_has_exactly_no_weight() -> None:
    problem = two_keys(allow([[1, 0], [1, 1]]))
    assert weights(problem)[0, 0].tolist() == [1.0, 0.0]
    assert output(problem) == pytest.approx([4.0, 5.0])


def test_a_fully_masked_row_is_zero_and_its_deviations_are_by_name() -> None:
    problem = two_keys(allow([[0, 0], [1, 1]]))
    assert output(problem) == pytest.approx([0.0, 5.0])
    assert output(problem, fully_masked_row="uniform") == pytest.approx([6.0, 5.0])
    assert output(problem, fully_masked_row="unmasked") == pytest.approx([7.0, 5.0])
    assert np.isnan(output(problem, fully_masked_row="nan")[0])
    assert output(problem, fully_masked_row="nan")[1] == pytest.approx(5.0)


def test_a_finite_fill_is_swallowed_in_float32_and_unmasked_in_float64() -> None:
    problem = two_keys(allow([[0, 0], [1, 1]]))
    dialect = {"mask_fill": "minus_1e9"}
    single = evaluate(problem, dialect, score="float32").reply["output"].values.ravel()
    double = evaluate(problem, dialect, score="float64").reply["output"].values.ravel()
    assert single == pytest.approx([6.0, 5.0])
    assert double == pytest.approx([7.0, 5.0], rel=1e-6)


def test_an_additive_mask_of_ln_nine_moves_the_weights_to_three_quarters() -> None:
    added = MaskOperand("bias", ("additive",), "float", np.array([[2 * LOG3, 0.0], [0.0, 0.0]])[None, None])
    assert weights(two_keys(added))[0, 0] == pytest.approx([0.75, 0.25])


def test_additive_minus_infinity_masks_and_a_row_of_it_is_zero() -> None:
    added = MaskOperand("bias", ("additive",), "float", np.array([[-np.inf, -np.inf], [0.0, -np.inf]])[None, None])
    assert output(two_keys(added)) == pytest.approx([0.0, 4.0])


def test_causal_is_top_left_and_the_flag_can_be_bottom_right() -> None:
    problem = sdpa(np.zeros((1, 1, 2, 2)), np.zeros((1, 1, 3, 2)), [[[[3.0], [5.0], [13.0]]]])
    flag = MaskOperand("is_causal", ("causal",), "flag", causal(2, 3, 0), offset=0)
    assert output(problem.but(mask_operands=(flag,))) == pytest.approx([3.0, 4.0])
    assert output(problem.but(mask_operands=(flag,)), causal_alignment="bottom_right") == pytest.approx([4.0, 7.0])
    assert output(problem.but(mask_operands=(flag,)), causal_alignment="strict") == pytest.approx([0.0, 3.0])


def test_scale_is_one_over_the_root_of_head_dim() -> None:
    problem = sdpa([[[[2, 0, 0, 0]]]], [[[[0, 0, 0, 0], [LOG3, 0, 0, 0]]]], [[[[4.0], [8.0]]]], scale=None)
    assert output(problem) == pytest.approx([7.0])
    assert output(problem, scale="none") == pytest.approx([4 * 0.1 + 8 * 0.9])


def test_grouped_heads_share_consecutively() -> None:
    problem = sdpa(np.zeros((1, 4, 1, 3)), np.zeros((1, 2, 1, 3)), [[[[1.0]], [[2.0]]]])
    assert output(problem) == pytest.approx([1.0, 1.0, 2.0, 2.0])
    assert output(problem, grouped_heads="tile") == pytest.approx([1.0, 2.0, 1.0, 2.0])


def test_non_finite_values_without_weight_do_not_reach_the_output() -> None:
    problem = two_keys(allow([[1, 0], [1, 0]]))
    poisoned = problem.but(value=np.array([[[[4.0], [np.nan]]]]))
    assert output(poisoned) == pytest.approx([4.0, 4.0])
    assert np.isnan(output(poisoned, nonfinite_value="leaks")).all()


def test_a_nan_in_a_masked_key_stays_there() -> None:
    problem = two_keys(allow([[1, 0], [1, 0]]))
    assert output(problem.but(key=np.array([[[[0, 0], [np.nan, 0]]]]))) == pytest.approx([4.0, 4.0])


def test_inverted_polarity_by_argument() -> None:
    problem = two_keys(allow([[1, 0], [1, 1]]))
    assert output(problem, polarity__mask="ignore") == pytest.approx([8.0, 0.0])
    assert output(problem, polarity__other="ignore") == output(problem)


def test_float_masks_cast_to_bool_are_inverted() -> None:
    group = MaskOperand("mask", ("attention",), "float", np.array([[0.0, -np.inf]])[None, None], verbatim=True)
    assert output(two_keys(group)) == pytest.approx([4.0, 4.0])
    assert output(two_keys(group), float_mask__mask="cast_to_bool") == pytest.approx([8.0, 8.0])


def test_integer_masks_added_as_numbers_hardly_mask() -> None:
    group = MaskOperand("mask", ("attention",), "int", np.array([[1, 0]])[None, None], verbatim=True)
    expected = np.exp([1.0, LOG3]) / np.exp([1.0, LOG3]).sum() @ np.array([4.0, 8.0])
    assert output(two_keys(group), number_mask__mask="added")[0] == pytest.approx(expected)


def test_each_head_owns_a_run_of_columns() -> None:
    answer = evaluate(two_heads(outputs=ALL_OUTPUTS)).reply
    assert answer["output"].values.ravel() == pytest.approx([7.0, 20.0])
    assert answer["weights"].values[0, :, 0] == pytest.approx(np.array([[0.25, 0.75], [0.5, 0.5]]))
    assert answer["weights_mean"].values[0, 0] == pytest.approx([0.375, 0.625])


def test_a_fully_masked_row_of_mha_is_the_output_bias() -> None:
    nothing = MaskOperand("m", ("key_padding",), "bool", np.zeros((1, 1, 1, 2), dtype=bool))
    masked = two_heads(nothing, params={"bo": np.array([2.0, 3.0])})
    assert evaluate(masked).reply["output"].values.ravel() == pytest.approx([2.0, 3.0])


def test_averaged_weights_lose_their_head_axis() -> None:
    reply = evaluate(two_heads(outputs=ALL_OUTPUTS), {"returned_weights": "averaged"}).reply
    assert reply["weights"].values.shape == (1, 1, 2)
    assert reply["weights"].values[0, 0] == pytest.approx([0.375, 0.625])


def test_projections_add_their_biases() -> None:
    problem = two_heads(params={"bq": np.array([1.0, 0.0]), "bv": np.array([0.0, 1.0])})
    answer = evaluate(problem).reply
    assert answer["output"].values.ravel() == pytest.approx([0.1 * 4 + 0.9 * 8, 21.0])
    dropped = evaluate(problem, {"projection_bias": "ignored"}).reply
    assert dropped["output"].values.ravel() == pytest.approx([7.0, 20.0])


def test_interleaved_heads_take_every_second_column() -> None:
    rows, eye = np.zeros((1, 1, 4)), np.eye(4)
    problem = mha(rows, rows, [[[1.0, 2.0, 3.0, 4.0]]], dict.fromkeys(("wq", "wk", "wv", "wo"), eye), 2)
    split = evaluate(problem, {"head_split": "interleaved"}).reply["output"].values.ravel()
    assert split.tolist() == [1.0, 3.0, 2.0, 4.0]
    merged = evaluate(problem, {"head_merge": "interleaved"}).reply["output"].values.ravel()
    assert merged.tolist() == [1.0, 3.0, 2.0, 4.0]
    both = evaluate(problem, {"head_split": "interleaved", "head_merge": "interleaved"}).reply["output"].values
    assert both.ravel().tolist() == [1.0, 2.0, 3.0, 4.0]


def test_the_result_dtype_is_part_of_the_reply() -> None:
    assert evaluate(two_keys()).reply["output"].dtype == "float64"
    assert evaluate(two_keys(), {"result_dtype": "float32"}).reply["output"].dtype == "float32"


def test_every_deviation_has_a_sentence_and_one_map() -> None:
    rows = (*TABLE, *slot_deviations("mask"))
    assert len({row.key for row in rows}) == len(rows)
    for row in rows:
        assert row.sentence
        assert not row.sentence.endswith(".")
        assert find(row.decision, row.name).key == row.key


def test_every_decision_has_a_sentence_for_its_canonical_choice() -> None:
    for decision in {row.decision for row in (*TABLE, *slot_deviations("mask"))}:
        said = sentence(decision, CANONICAL)
        assert said == sentence(decision, CANONICAL_NAMES.get(decision, CANONICAL))
        assert not said.endswith(".")
        assert "SLOT" not in said
    assert sentence("use[mask]", CANONICAL) == "uses mask in every call"


def test_an_unknown_deviation_lists_the_names_of_its_decision() -> None:
    with pytest.raises(KeyError, match=r"no deviation fully_masked_row=zeros: expected one of nan, uniform, unmasked"):
        find("fully_masked_row", "zeros")
    with pytest.raises(KeyError, match="there is no decision 'polarty'"):
        find("polarty[mask]", "ignore")


def test_composition_has_a_fixed_order() -> None:
    one = {"result_dtype": "float32", "scale": "none", "polarity[mask]": "ignore", "fully_masked_row": "nan"}
    keys = [deviation.key for deviation in compose(one)]
    assert keys == ["polarity[mask]=ignore", "scale=none", "fully_masked_row=nan", "result_dtype=float32"]
    assert [v.key for v in compose(dict(reversed(one.items())))] == keys
