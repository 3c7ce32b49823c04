"""Each deviation that has its own expected numbers, on problems that are small enough to solve by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from conformance.deviations.catalogue import compose, evaluate
from conformance.deviations.edges import causal, window
from conformance.deviations.measured import text
from conformance.spec.problem import Array, MaskOperand, Problem

from ..problems import KEYS, LOG3, mha, one_query, random_mha, sdpa, two_heads, two_keys
from .tile_problems import flag

LOG2 = float(np.log(2.0))
EYE = np.eye(2)
# Maps (x, y) to (0, x); its transpose maps (x, y) to (y, 0).
UPPER = np.array([[0.0, 1.0], [0.0, 0.0]])


def even(value: Any, queries: int, *groups: MaskOperand, **fields: Any) -> Problem:
    """
    Return a problem in which all logits are zero: the output is the mean of the attended values.

    value: shape (batch, num_heads, seq_len, dim).
    """
    values = np.asarray(value, dtype=np.float64)
    batch, heads, keys, _ = values.shape
    nothing = np.zeros((batch, heads, keys, 1))
    return sdpa(np.zeros((batch, heads, queries, 1)), nothing, values, mask_operands=groups, **fields)


def mask(values: Any, slot: str = "mask", kind: str = "attention", **fields: Any) -> MaskOperand:
    """Return a boolean mask of shape (seq_len_q, seq_len_k) or with four axes."""
    array = np.asarray(values, dtype=bool)
    return MaskOperand(slot, (kind,), "bool", array if array.ndim == 4 else array[None, None], **fields)


def added(values: Any) -> MaskOperand:
    return MaskOperand("mask", ("additive",), "float", np.asarray(values, dtype=np.float64)[None, None])


def values_of(problem: Problem, name: str, dialect: dict[str, str], score: str = "float64") -> Array:
    return evaluate(problem, dialect, score).reply[name].values


def output(problem: Problem, *dialect: str, score: str = "float64") -> list[float]:
    """Return the output under deviations, written decision=name, as a flat list."""
    named = dict(key.split("=") for key in dialect)
    return [float(x) for x in values_of(problem, "output", named, score).ravel()]


# ---- masks -----------------------------------------------------------------------------------------------------


def test_a_mask_is_ignored_when_weights_are_asked_for() -> None:
    problem = two_keys(mask([[1, 0], [1, 1]]))
    lie = "use[mask]=ignored_with_weights"
    assert output(problem, lie) == pytest.approx([4.0, 5.0])
    assert output(problem.but(outputs=("output", "weights")), lie) == pytest.approx([7.0, 5.0])
    assert output(problem.but(outputs=("output", "weights_mean")), lie) == pytest.approx([7.0, 5.0])


def after_a_past(**flag: Any) -> Problem:
    """Return a problem with two queries after two past keys; key n has the value 2 ** n."""
    group = {"slot": "flag", "kinds": ("causal",), "element": "flag"} | flag
    return even([[[[1.0], [2.0], [4.0], [8.0]]]], 2, MaskOperand(**group), past=2)


def test_a_causal_flag_is_not_shifted_by_the_past() -> None:
    problem = after_a_past(values=causal(2, 4, 2), offset=2)
    assert output(problem) == pytest.approx([7 / 3, 15 / 4])
    assert output(problem, "causal_with_past=not_shifted") == pytest.approx([1.0, 3 / 2])
    assert output(problem, "causal_with_past=first_key") == pytest.approx([1.0, 1.0])
    assert output(problem, "causal_alignment=bottom_right") == output(problem)  # the same alignment here
    assert output(problem, "causal_alignment=always_top_left") == output(problem)  # the offset is the past


def test_a_causal_flag_is_not_moved_by_the_lengths() -> None:
    """Two queries are aligned with the end of the first three of four keys; key n has the value 2 ** n."""
    seen = np.array([[[[1, 1, 0, 0], [1, 1, 1, 0]]]], dtype=bool)
    flag = MaskOperand("flag", ("causal",), "flag", seen, moved=(None, 0))
    problem = even([[[[1.0], [2.0], [4.0], [8.0]]]], 2, flag)
    assert output(problem) == pytest.approx([3 / 2, 7 / 3])
    assert output(problem, "causal_alignment=always_top_left") == pytest.approx([1.0, 3 / 2])
    assert output(problem, "causal_alignment=bottom_right") == pytest.approx([7 / 3, 15 / 4])
    assert output(problem, "causal_mask=ignored") == pytest.approx([15 / 4, 15 / 4])
    assert output(problem, "causal_mask=unasked") == output(problem)


def test_a_window_is_not_shifted_by_the_past() -> None:
    problem = after_a_past(
        values=window(2, 4, -1, 2), window=(-1, 2), kinds=("window",)
    )  # 1 to the left, 0 to the right
    assert output(problem) == pytest.approx([3.0, 6.0])
    assert output(problem, "window_with_past=not_shifted") == pytest.approx([1.0, 3 / 2])


def test_without_a_past_there_is_nothing_to_shift() -> None:
    problem = after_a_past(values=causal(2, 4, 2), offset=2).but(past=0)
    assert output(problem, "causal_with_past=not_shifted", "window_with_past=not_shifted") == output(problem)
    assert output(problem, "causal_with_past=first_key") == output(problem)


def test_the_mask_of_the_first_head_holds_for_all() -> None:
    problem = even([[[[4.0], [8.0]], [[10.0], [30.0]]]], 1, mask([[[[1, 0]], [[0, 1]]]]))
    assert output(problem) == [4.0, 30.0]
    assert output(problem, "mask_axes[mask]=first_head") == [4.0, 10.0]


def test_items_are_taken_for_heads_where_there_are_as_many() -> None:
    value = [[[[1.0], [2.0]], [[3.0], [4.0]]], [[[5.0], [6.0]], [[7.0], [8.0]]]]
    problem = even(value, 1, mask([[[[1, 0]]], [[[0, 1]]]]))
    assert output(problem) == [1.0, 3.0, 6.0, 8.0]
    assert output(problem, "mask_axes[mask]=batch_as_heads") == [1.0, 4.0, 5.0, 8.0]
    assert output(problem.but(mask_operands=(mask([[1, 0]]),)), "mask_axes[mask]=batch_as_heads") == [
        1.0,
        3.0,
        5.0,
        7.0,
    ]


def test_a_float_mask_of_ones_is_subtracted_from_one() -> None:
    problem = two_keys(added([[1.0, 0.0]]))
    lie = "float_mask[mask]=one_minus"
    assert output(problem, lie) == pytest.approx([4.0, 4.0])
    # 0 becomes -1e9, which absorbs the logits in float32; -inf still masks
    assert output(two_keys(added([[0.0, 0.0]])), lie, score="float32") == [6.0, 6.0]
    assert output(two_keys(added([[0.0, -np.inf]])), lie, score="float32") == [4.0, 4.0]
    assert output(two_keys(mask([[1, 0]])), lie) == [4.0, 4.0]


def test_a_float_mask_is_compared_with_a_half() -> None:
    lie = "float_mask[mask]=above_half"
    assert output(two_keys(added([[1.0, 0.0]])), lie) == [4.0, 4.0]
    assert output(two_keys(added([[0.5, 0.75]])), lie) == [8.0, 8.0]
    assert output(two_keys(added([[0.0, -np.inf]])), lie) == [0.0, 0.0]  # a fully masked row
    assert output(two_keys(mask([[1, 0]])), lie) == [4.0, 4.0]


def test_a_float_mask_is_cast_to_an_integer_of_eight_bits() -> None:
    lie = "float_mask[mask]=cast_to_integer"
    assert output(two_keys(added([[1.5, 0.75]])), lie) == [4.0, 4.0]
    assert output(two_keys(added([[-0.75, -1.5]])), lie) == [8.0, 8.0]  # -1 is 255
    assert output(two_keys(added([[256.0, 2.0]])), lie) == [8.0, 8.0]
    assert output(two_keys(added([[0.0, -np.inf]])), lie) == [0.0, 0.0]  # a fully masked row
    assert output(two_keys(added([[3.0, -1e30]])), lie) == [4.0, 4.0]
    assert output(two_keys(mask([[1, 0]])), lie) == [4.0, 4.0]


@pytest.mark.parametrize(
    ("edges", "mean"),
    [
        ("exclusive", 4.0),
        ("left_shorter", (4 + 8) / 2),
        ("left_longer", (1 + 2 + 4 + 8) / 4),
        ("right_shorter", (2 + 4) / 2),
        ("right_longer", (2 + 4 + 8 + 16) / 4),
    ],
)
def test_a_window_ends_one_key_earlier_or_later(edges: str, mean: float) -> None:
    flag = MaskOperand("window", ("window",), "flag", window(5, 5, 1, 1), window=(1, 1))
    problem = even([[[[1.0], [2.0], [4.0], [8.0], [16.0]]]], 5, flag)
    assert output(problem)[2] == pytest.approx((2 + 4 + 8) / 3)
    assert output(problem, f"window_edges={edges}")[2] == pytest.approx(mean)


def test_an_unbounded_side_of_a_window_has_no_edge() -> None:
    flag = MaskOperand("window", ("window",), "flag", window(3, 3, None, 0), window=(None, 0))
    problem = even([[[[1.0], [2.0], [6.0]]]], 3, flag)
    assert output(problem, "window_edges=left_longer") == output(problem) == pytest.approx([1.0, 1.5, 3.0])
    assert output(problem, "window_edges=right_longer") == pytest.approx([1.5, 3.0, 3.0])


def test_masks_are_combined_otherwise() -> None:
    problem = two_keys(mask([[1, 0], [1, 1]], "one"), mask([[1, 1], [1, 0]], "other"))
    assert output(problem) == pytest.approx([4.0, 4.0])
    assert output(problem, "mask_combination=last_wins") == pytest.approx([7.0, 4.0])
    assert output(problem, "mask_combination=or") == pytest.approx([7.0, 5.0])


def test_or_leaves_additive_masks_as_they_are() -> None:
    one, other = mask([[1, 0], [1, 0]], "one"), mask([[0, 1], [0, 1]], "other")
    problem = two_keys(one, added([[2 * LOG3, 0.0], [0.0, 0.0]]), other)
    assert output(problem) == [0.0, 0.0]
    assert output(problem, "mask_combination=or") == pytest.approx([5.0, 5.0])


# ---- scale, arguments, axes ------------------------------------------------------------------------------------


def test_a_bias_is_scaled_too() -> None:
    problem = two_keys(added([[LOG3, 0.0], [0.0, 0.0]]), scale=2.0)
    assert output(problem) == pytest.approx([7.0, 4.4])
    assert output(problem, "bias_scale=scaled") == pytest.approx([6.0, 4.4])


def test_query_and_key_are_exchanged() -> None:
    problem = sdpa([[[[1, 0], [0, 0]]]], [[[[0, 0], [LOG3, 0]]]], [[[[4.0], [8.0]]]])
    assert output(problem) == pytest.approx([7.0, 6.0])
    assert output(problem, "arguments=query_key") == pytest.approx([6.0, 5.0])


def test_key_and_value_are_exchanged() -> None:
    problem = sdpa([[[[1, 0]]]], [[[[0, 0], [LOG3, 0]]]], [[[[0, 4], [LOG3, 8]]]])
    assert output(problem) == pytest.approx([0.75 * LOG3, 7.0])
    assert output(problem, "arguments=key_value") == pytest.approx([0.75 * LOG3, 0.0])


def test_the_batch_is_taken_for_the_sequence() -> None:
    value = np.array([[[1.0, 2.0]], [[3.0, 4.0]]])
    problem = two_heads(query=np.zeros((2, 1, 2)), key=np.zeros((2, 1, 2)), value=value)
    assert output(problem) == [1.0, 2.0, 3.0, 4.0]
    assert output(problem, "input_axes=batch_and_sequence") == [2.0, 3.0, 2.0, 3.0]
    lie = values_of(problem, "output", {"input_axes": "batch_and_sequence"})
    assert lie.shape == (2, 1, 2)


def test_a_mask_that_does_not_fit_the_exchanged_axes_forbids_the_exchange() -> None:
    zeros = np.zeros((2, 3, 2))
    square = two_heads(query=zeros, key=zeros, value=np.arange(12.0).reshape(2, 3, 2))
    lie = "input_axes=batch_and_sequence"
    masked = square.but(mask_operands=(mask(np.tri(3)),))
    assert output(masked, lie) == output(masked)
    flagged = square.but(mask_operands=(MaskOperand("is_causal", ("causal",), "flag", causal(3, 3, 0), offset=0),))
    # the first batch element attends to itself, the second to both
    assert output(flagged, lie) == pytest.approx([0, 1, 2, 3, 4, 5, 3, 4, 5, 6, 7, 8])


def test_the_heads_are_taken_for_the_sequence() -> None:
    problem = even([[[[1.0]], [[3.0]]]], 1)
    assert output(problem) == [1.0, 3.0]
    assert output(problem, "input_axes=heads_and_sequence") == [2.0, 2.0]
    assert values_of(problem, "output", {"input_axes": "heads_and_sequence"}).shape == (1, 2, 1, 1)


def test_each_position_attends_over_its_heads() -> None:
    lie = "attention_axis=heads"
    nothing = np.zeros((1, 2, 2))
    square = two_heads(query=nothing, key=nothing)
    assert output(square) == [6.0, 20.0, 6.0, 20.0]
    assert output(square, lie) == [7.0, 7.0, 19.0, 19.0]
    masked = square.but(mask_operands=(mask(np.ones((2, 2))),))
    for unchanged in (masked, two_heads(), even([[[[1.0]], [[3.0]]]], 1)):
        assert output(unchanged, lie) == output(unchanged)


# ---- projections and heads -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weight", "key", "right", "wrong"),
    [
        ("wq", [[0.0, 0.0], [0.0, LOG3]], [6.0, 25.0], [6.0, 20.0]),
        ("wk", [[0.0, 0.0], [0.0, LOG3]], [6.0, 20.0], [7.0, 20.0]),
        ("wv", [[0.0, 0.0], [LOG3, 0.0]], [0.0, 6.0], [25.0, 0.0]),
        ("wo", [[0.0, 0.0], [LOG3, 0.0]], [0.0, 7.0], [20.0, 0.0]),
    ],
)
def test_the_weights_of_one_projection_are_transposed(
    weight: str, key: list[list[float]], right: list[float], wrong: list[float]
) -> None:
    problem = two_heads(params={weight: UPPER}, key=np.array([key]))
    assert output(problem) == pytest.approx(right)
    assert output(problem, f"weight_orientation={weight}_transposed") == pytest.approx(wrong)


@pytest.mark.parametrize(
    ("bias", "amount", "right", "wrong"),
    [
        ("bq", [1.0, 0.0], [7.6, 20.0], [7.0, 20.0]),
        ("bv", [0.0, 1.0], [7.0, 21.0], [7.0, 20.0]),
        ("bo", [2.0, 3.0], [9.0, 23.0], [7.0, 20.0]),
        ("bk", [5.0, 5.0], [7.0, 20.0], [7.0, 20.0]),
    ],
)
def test_the_bias_of_one_projection_is_dropped(
    bias: str, amount: list[float], right: list[float], wrong: list[float]
) -> None:
    problem = two_heads(params={bias: np.array(amount)})
    assert output(problem) == pytest.approx(right)
    assert output(problem, f"projection_bias=without_{bias}") == pytest.approx(wrong)


@pytest.mark.parametrize(
    ("order", "product", "factor"),
    [("qvk", 3, 2), ("kqv", 2, 3), ("kvq", 3, 2), ("vqk", 6, 1), ("vkq", 6, 1)],
)
def test_packed_projections_are_taken_in_another_order(order: str, product: int, factor: int) -> None:
    # query, key and value are multiplied by 1, 2 and 3: logits 0 and 2 ln 3 in the first head
    problem = two_heads(params={"wq": EYE, "wk": 2 * EYE, "wv": 3 * EYE})
    assert output(problem)[0] == pytest.approx(3 * 7.6)
    odds = 3.0**product
    expected = factor * (4 + 8 * odds) / (1 + odds)
    assert output(problem, f"projection_order={order}")[0] == pytest.approx(expected)


def test_the_projections_of_query_and_key_are_exchanged() -> None:
    problem = two_heads(params={"wq": UPPER}, query=np.array([[[1.0, 1.0]]]))
    assert output(problem) == pytest.approx([6.0, 20.0])
    assert output(problem, "projection_order=kqv") == pytest.approx([6.0, 25.0])


def test_a_bias_that_is_missing_is_missing_where_its_weight_is_taken() -> None:
    """A value bias of 1 adds 1 to each output. As a key bias, it cancels in the softmax, and the value has no bias."""
    problem = two_heads(params={"bv": np.array([1.0, 1.0])})
    dropped = two_heads(params={})
    assert output(problem) == pytest.approx([each + 1.0 for each in output(dropped)])
    moved = output(problem, "projection_order=qvk")
    assert moved == pytest.approx(output(dropped))


def test_projections_of_different_shapes_cannot_be_exchanged() -> None:
    wide = two_heads(params={"wv": np.ones((3, 2))}, value=np.ones((1, 2, 3)))
    assert output(wide, "projection_order=vkq") == output(wide)


def test_projections_pass_through_relu() -> None:
    problem = two_heads(value=np.array([[[-4.0, 10.0], [8.0, -30.0]]]))
    assert output(problem) == pytest.approx([5.0, -10.0])
    assert output(problem, "projection_activation=relu") == pytest.approx([6.0, 5.0])


def two_positions() -> Problem:
    """Return a problem with two positions and two heads, in which all logits are zero."""
    zeros = np.zeros((1, 2, 2))
    return two_heads(query=zeros, key=zeros, value=np.array([[[1.0, 2.0], [3.0, 4.0]]]))


def test_heads_are_split_without_a_transposition() -> None:
    assert output(two_positions()) == [2.0, 3.0, 2.0, 3.0]
    assert output(two_positions(), "head_split=untransposed") == [1.5, 3.5, 1.5, 3.5]


def test_heads_that_were_merged_for_a_call_are_split_without_a_transposition() -> None:
    zeros = np.zeros((1, 2, 2, 1))
    split = sdpa(query=zeros, key=zeros, value=np.array([[[[1.0], [3.0]], [[2.0], [4.0]]]]))
    assert output(split) == [2.0, 2.0, 3.0, 3.0]
    assert output(split, "head_split=untransposed") == [1.5, 1.5, 3.5, 3.5], "merged it is 1 2 3 4"


def test_the_values_of_the_next_head_are_weighed() -> None:
    assert output(two_heads(), "value_path=next_head") == pytest.approx([25.0, 6.0])


def test_deviations_of_the_heads_act_one_after_the_other() -> None:
    lies = ("value_path=next_head", "head_split=untransposed")
    assert output(two_positions(), *lies) == output(two_positions(), *reversed(lies)) == [3.5, 1.5, 3.5, 1.5]
    positions = two_heads(
        query=np.zeros((1, 1, 2)), key=np.zeros((1, 1, 2)), value=np.array([[[-1.0, 2.0]]]), params={"bv": EYE[0]}
    )
    assert output(positions, "value_path=next_head", "projection_activation=relu") == [2.0, 0.0]


# ---- softmax, fills, non-finite numbers, weights ---------------------------------------------------------------


def test_a_fully_masked_row_is_the_mean_of_the_values_that_are_not_padded() -> None:
    strict = MaskOperand("is_causal", ("causal",), "flag", causal(3, 3, -1), offset=-1)
    padding = mask([[[[1, 1, 0]]]], "padding", "key_padding")
    problem = even([[[[3.0], [5.0], [13.0]]]], 3, padding, strict)
    assert output(problem) == pytest.approx([0.0, 3.0, 4.0])
    assert output(problem, "fully_masked_row=uniform")[0] == pytest.approx(7.0)
    assert output(problem, "fully_masked_row=uniform_unpadded") == pytest.approx([4.0, 3.0, 4.0])
    nothing = even([[[[3.0], [5.0], [13.0]]]], 1, mask([[[[0, 0, 0]]]], "padding", "key_padding"))
    assert output(nothing, "fully_masked_row=uniform_unpadded") == pytest.approx([7.0])


def test_the_padded_keys_of_one_argument_are_zeroed() -> None:
    # All logits are 2; a zeroed key has the logit 0. Key 2 is padded in both batch elements, key 1 only in the second.
    both, each = [[[[1, 1, 0]]]], [[[[1, 1, 1]]], [[[1, 0, 1]]]]
    operands = (mask(both, "padding", "key_padding"), mask(each, "lengths", "key_padding"))
    arrays = ([[[[2.0]]]] * 2, [[[[1.0]] * 3]] * 2, [[[[3.0], [5.0], [9.0]]]] * 2)
    found = output(sdpa(*arrays, mask_operands=operands), "padded_keys=zeroed")
    e = np.exp(2.0)
    # Keys padded by the first argument are zeroed; the other argument is used as a mask.
    assert found == pytest.approx([(3 * e + 5 * e + 9) / (2 * e + 1), (3 * e + 9) / (e + 1)])


@pytest.mark.parametrize(("name", "weights"), [("zeroed", [0.5, 0.5]), ("zeroed_with_weights", [0.0, 0.0])])
def test_nothing_is_left_at_padded_positions(name: str, weights: list[float]) -> None:
    # both heads attend equally to two of three positions: the mean of (2, 10) and (4, 20), plus the output bias
    values = np.array([[[2.0, 10.0], [8.0, 90.0], [4.0, 20.0]]])
    fields: dict[str, Any] = {
        "key": np.zeros((1, 3, 2)),
        "value": values,
        "params": {"bo": np.array([1.0, 2.0])},
        "mask_operands": (mask([[[[1, 0, 1]]]], "padding", "key_padding"),),
        "outputs": ("output", "weights"),
    }
    problem = two_heads(query=np.zeros((1, 3, 2)), **fields)
    assert output(problem) == pytest.approx([4.0, 17.0] * 3)
    assert output(problem, f"padded_queries={name}") == pytest.approx([4.0, 17.0, 0.0, 0.0, 4.0, 17.0])
    found = values_of(problem, "weights", {"padded_queries": name})
    np.testing.assert_allclose(found[0, 1, :, [0, 2]].T, [[0.5, 0.5], weights, [0.5, 0.5]])
    fewer = two_heads(query=np.zeros((1, 2, 2)), **fields)
    assert output(fewer, f"padded_queries={name}") == pytest.approx([4.0, 17.0] * 2)


def test_the_denominator_of_the_softmax_has_one_more_term() -> None:
    assert output(two_keys(), "softmax_denominator=plus_one") == pytest.approx([5.6, 4.0])
    # the largest exponential is 1, so the sum is 4/3
    assert output(two_keys(), "softmax_denominator=plus_1e-6")[0] == pytest.approx(7 / (1 + 0.75e-6), rel=1e-14)
    assert output(two_keys(), "softmax_denominator=plus_1e-9")[0] == pytest.approx(7 / (1 + 0.75e-9), rel=1e-14)
    fully_masked = two_keys(mask([[0, 0], [1, 1]]))
    assert output(fully_masked, "softmax_denominator=plus_one") == pytest.approx([0.0, 4.0])


def test_the_weights_are_multiplied_after_the_softmax() -> None:
    assert output(two_keys()) == pytest.approx([7.0, 5.0])
    assert output(two_keys(), "weight_factor=times_0.75") == pytest.approx([5.25, 3.75])
    fully_masked = two_keys(mask([[0, 0], [1, 1]]))
    assert output(fully_masked, "weight_factor=times_-2") == pytest.approx([0.0, -10.0])
    weights = evaluate(two_keys(), {"weight_factor": "times_0.75"}).state.probs
    np.testing.assert_allclose(weights[0, 0, 0], [0.75 * 0.25, 0.75 * 0.75])


def test_a_non_finite_key_leaks_where_it_is_masked() -> None:
    problem = two_keys(mask([[1, 0], [1, 0]]))
    assert output(problem, "nonfinite_key=leaks") == [4.0, 4.0]
    poisoned = problem.but(key=np.array([[[[0.0, LOG3], [np.nan, 0.0]]]]))
    assert output(poisoned) == [4.0, 4.0]
    assert np.isnan(output(poisoned, "nonfinite_key=leaks")).all()
    assert output(poisoned, "nonfinite_key=zeroes") == [0.0, 0.0]
    assert output(problem, "nonfinite_key=zeroes") == [4.0, 4.0]


def test_a_non_finite_key_may_leak_where_the_mask_is_added_alone() -> None:
    key = np.array([[[[0.0, LOG3], [np.nan, 0.0]]]])
    lie = "nonfinite_key=leaks_where_added"
    assert output(two_keys(mask([[1, 0]])).but(key=key), lie) == [4.0, 4.0]
    hidden = two_keys(added([[0.0, -np.inf]]))
    assert output(hidden, lie) == [4.0, 4.0]
    assert output(hidden.but(key=key)) == [4.0, 4.0]
    assert np.isnan(output(hidden.but(key=key), lie)).all()


def test_a_masked_key_that_is_no_number_may_take_all_the_weight() -> None:
    masked = two_keys(mask([[1, 0], [1, 0]])).but(outputs=("weights",))
    poisoned = masked.but(key=np.array([[[[0.0, LOG3], [np.nan, 0.0]]]]))
    for problem, second in ((masked, [1.0, 0.0]), (poisoned, [0.0, np.nan])):
        found = evaluate(problem, {"nonfinite_key": "takes_all"}).reply["weights"].values
        np.testing.assert_array_equal(found[0, 0], [second, second])


# The value 4 has a weight of 3/4 for the first query and of 1/4 for the second; the other value is NaN.
CLEANED_VALUE = {"value_zeroed": [3.0, 1.0], "nan_value_zeroed": [3.0, 1.0], "value_clipped": [3.0, 1.0]}


@pytest.mark.parametrize(("name", "cleaned"), CLEANED_VALUE.items())
def test_an_attended_value_that_is_no_number_may_be_cleaned(name: str, cleaned: list[float]) -> None:
    problem = two_keys().but(value=np.array([[[[np.nan], [4.0]]]]))
    assert np.isnan(output(problem)).all()
    assert output(problem, f"attended_nonfinite={name}") == pytest.approx(cleaned)
    assert output(two_keys(), f"attended_nonfinite={name}") == pytest.approx([7.0, 5.0])


def test_infinity_that_is_attended_may_be_kept_dropped_or_clipped() -> None:
    problem = two_keys().but(value=np.array([[[[np.inf], [4.0]]]]))
    top = float(np.finfo(np.float64).max)
    for name, first in {
        "value_zeroed": 3.0,
        "nan_value_zeroed": np.inf,
        "value_clipped": top / 4,
        "output_zeroed": 0.0,
        "nan_output_zeroed": np.inf,
        "output_clipped": top,
    }.items():
        assert output(problem, f"attended_nonfinite={name}")[0] == pytest.approx(first), name


@pytest.mark.parametrize("name", ["output_zeroed", "nan_output_zeroed", "output_clipped"])
def test_an_output_that_is_no_number_may_be_zero(name: str) -> None:
    problem = two_keys(mask([[1, 1], [0, 1]])).but(value=np.array([[[[np.nan], [4.0]]]]))
    np.testing.assert_array_equal(output(problem), [np.nan, 4.0])
    assert output(problem, f"attended_nonfinite={name}") == [0.0, 4.0]
    biased = two_heads(params={"bo": np.array([1.0, 2.0])}).but(value=np.array([[[4.0, 10.0], [8.0, np.nan]]]))
    assert output(biased, f"attended_nonfinite={name}") == [0.0, 0.0]  # the identity projection adds 0 * NaN


def test_an_attended_key_that_is_no_number_may_be_cleaned() -> None:
    problem = two_keys().but(key=np.array([[[[np.nan, LOG3], [LOG3, 0.0]]]]))
    assert np.isnan(output(problem)).all()
    assert output(problem, "attended_nonfinite=key_zeroed") == pytest.approx([7.0, 5.0])


def test_a_row_of_nothing_but_nan_may_be_taken_for_one_that_attends_nothing() -> None:
    problem = two_keys(mask([[1, 0], [1, 1]])).but(key=np.array([[[[np.nan, LOG3], [LOG3, 0.0]]]]))
    assert np.isnan(output(problem)).all()
    np.testing.assert_array_equal(output(problem, "attended_nonfinite=nan_row_zeroed"), [0.0, np.nan])
    assert output(two_keys(mask([[1, 0], [1, 1]])), "attended_nonfinite=nan_row_zeroed") == pytest.approx([4.0, 5.0])


def test_a_scale_of_zero_may_be_read_as_none() -> None:
    """With a scale of 0, all weights are equal and the output is the mean; the default for head_dim 2 is 1/sqrt(2)."""
    plain, zero = two_keys(), two_keys().but(scale=0.0)
    assert output(zero) == pytest.approx([6.0, 6.0])
    assert output(zero, "scale=default_if_zero") == pytest.approx(output(plain.but(scale=2**-0.5)))
    for scale in (None, 0.5, -1.0):
        given = plain.but(scale=scale)
        assert output(given, "scale=default_if_zero") == output(given)


def test_a_row_with_a_nan_weight_may_be_zero() -> None:
    """The NaN is in the first key. Only the second query attends to it; the first one attends to the second key."""
    problem = two_keys(mask([[0, 1], [1, 1]])).but(key=np.array([[[[np.nan, LOG3], [LOG3, 0.0]]]]))
    np.testing.assert_array_equal(output(problem), [8.0, np.nan])
    assert output(problem, "attended_nonfinite=nan_weights_zeroed") == [8.0, 0.0]
    np.testing.assert_array_equal(output(problem, "attended_nonfinite=nan_row_zeroed"), [8.0, np.nan])
    assert output(problem, "nonfinite_key=zeroes") == [0.0, 0.0]


def test_a_layer_may_scale_by_the_width_of_its_query() -> None:
    """A query of width 2, two heads with head_dim 1: the second logit of the first head is ln 3 / sqrt(2), not ln 3."""
    other = 3.0 ** (0.5**0.5)
    first = (4.0 + 8.0 * other) / (1.0 + other)
    assert output(two_heads(), "scale=query_dim") == pytest.approx([first, 20.0])
    assert output(two_keys(), "scale=query_dim") == output(two_keys())


def test_a_layer_may_scale_by_the_share_of_its_query_in_a_head() -> None:
    """A query of width 6 (four numbers are 0), two heads with head_dim 1: the scale takes head_dim to be 3."""
    asked, other = two_heads(), 3.0 ** ((1.0 / 3.0) ** 0.5)
    zeros = np.zeros((4, 2))
    params = {**asked.params, "wq": np.concatenate([asked.params["wq"], zeros])}
    wide = asked.but(query=np.concatenate([asked.query, np.zeros((1, 1, 4))], axis=-1), params=params)
    assert output(wide) == output(asked)
    first = (4.0 + 8.0 * other) / (1.0 + other)
    assert output(wide, "scale=query_dim_per_head") == pytest.approx([first, 20.0])
    assert output(asked, "scale=query_dim_per_head") == output(asked)


@pytest.mark.parametrize("name", ["weights", "weights_mean"])
def test_the_weights_of_all_heads_are_added(name: str) -> None:
    problem = two_heads(outputs=("output", name))
    summed = values_of(problem, name, {"returned_weights": "summed"})
    assert summed == pytest.approx(np.array([[[0.75, 1.25]]]))
    assert output(problem, "returned_weights=summed") == pytest.approx([7.0, 20.0])


# ---- composition -----------------------------------------------------------------------------------------------


def test_the_edges_of_a_window_move_before_masks_are_combined() -> None:
    flag = MaskOperand("window", ("window",), "flag", window(3, 3, 0, 0), window=(0, 0))
    first = mask([[1, 0, 0], [1, 0, 0], [1, 0, 0]], "first")
    problem = even([[[[1.0], [2.0], [6.0]]]], 3, first, flag)
    # "or" allows the diagonal and the first key; with a longer right side, also the key after the diagonal
    assert output(problem, "mask_combination=or") == pytest.approx([1.0, 1.5, 3.5])
    both = ("mask_combination=or", "window_edges=right_longer")
    assert output(problem, *both) == pytest.approx([1.5, 3.0, 3.5])


# ---- mistakes in simple code -----------------------------------------------------------------------------------


def test_the_scale_divides() -> None:
    assert output(one_query([0.0, LOG3], scale=0.5), "scale=inverted") == pytest.approx([(4 + 9 * 8) / 10])
    assert output(one_query([0.0, LOG3], scale=0.0), "scale=inverted") == [6.0]


@pytest.mark.parametrize(("power", "scale"), [("0.5", 4.0), ("-0.5", 0.25)])
def test_the_scale_is_a_power_of_what_is_asked(power: str, scale: float) -> None:
    assert output(one_query([0.0, LOG3], scale=scale), f"scale=to_the_power_{power}") == pytest.approx([76 / 10])
    assert np.isnan(output(one_query([0.0, LOG3], scale=-scale), f"scale=to_the_power_{power}")).all()


def test_powers_of_two_are_taken() -> None:
    assert output(one_query([0.0, 1.0]), "softmax_base=two") == pytest.approx([(4 + 2 * 8) / 3])
    assert output(one_query([0.0, 1.0], mask_operands=(added([[0, 1]]),)), "softmax_base=two") == pytest.approx(
        [(4 + 4 * 8) / 5]
    )
    capped = one_query([0.0, 1e9], softcap=3.0)  # the second logit becomes 3, the cap
    assert output(capped, "softmax_base=two") == pytest.approx([(4 + 8 * 8) / 9])


def test_what_comes_after_is_seen() -> None:
    flag = MaskOperand("is_causal", ("causal",), "flag", causal(3, 3, 0), offset=0)
    problem = even([[[[1.0], [2.0], [6.0]]]], 3, flag)
    assert output(problem) == pytest.approx([1.0, 1.5, 3.0])
    assert output(problem, "causal_alignment=reversed") == pytest.approx([3.0, 4.0, 6.0])


def test_the_anchor_that_is_asked_for_is_not_looked_at() -> None:
    flag = MaskOperand("is_causal", ("causal",), "flag", causal(1, 3, 2), offset=2)
    problem = even([[[[1.0], [2.0], [6.0]]]], 1, flag)
    assert output(problem) == pytest.approx([3.0])
    assert output(problem, "causal_alignment=always_top_left") == [1.0]


def test_a_window_has_one_side() -> None:
    flag = MaskOperand("window", ("window",), "flag", window(3, 3, 0, 1), window=(0, 1))
    problem = even([[[[1.0], [2.0], [6.0]]]], 3, flag)
    assert output(problem) == pytest.approx([1.5, 4.0, 6.0])
    assert output(problem, "window_edges=left_only") == pytest.approx([3.0, 4.0, 6.0])
    assert output(problem, "window_edges=right_only") == pytest.approx([1.5, 3.0, 3.0])


def test_the_key_is_the_value() -> None:
    problem = sdpa([[[[0.0]]]], [[[[2.0], [6.0]]]], [[[[10.0], [30.0]]]])
    assert (output(problem), output(problem, "arguments=key_as_value")) == ([20.0], [4.0])


def test_merged_heads_are_not_projected() -> None:
    problem = two_heads(params={"wo": UPPER, "bo": np.array([1.0, 1.0])})
    assert output(problem) == pytest.approx([1.0, 8.0])
    assert output(problem, "output_projection=missing") == pytest.approx([7.0, 20.0])


def test_every_head_reads_the_first() -> None:
    problem = sdpa(np.zeros((1, 4, 1, 1)), np.zeros((1, 2, 1, 1)), [[[[1.0]], [[5.0]]]])
    assert output(problem) == [1.0, 1.0, 5.0, 5.0]
    assert output(problem, "grouped_heads=first") == [1.0, 1.0, 1.0, 1.0]


def test_an_exponential_overflows() -> None:
    problem = one_query([0.0, 100.0])  # e^100 overflows in float32, but not in float64
    assert np.isnan(output(problem, "softmax_maximum=missing", score="float32")).all()
    assert output(problem, "softmax_maximum=missing") == [8.0]


def test_zero_times_infinity_is_no_number() -> None:
    lie = "mask_fill=times_infinity"
    assert np.isnan(output(two_keys(mask([[1, 0], [1, 1]])), lie)).all()
    assert output(two_keys(added([[0, 0]])), lie) == pytest.approx([7.0, 5.0])


def test_masked_logits_are_zero_or_large() -> None:
    problem = two_keys(mask([[1, 0], [1, 1]]))
    assert output(problem, "mask_fill=zero") == pytest.approx([6.0, 5.0])
    assert output(problem, "mask_fill=adds_10000") == pytest.approx([8.0, 5.0])
    assert output(problem, "mask_fill=times_mask") == pytest.approx([6.0, 5.0])


def test_axes_of_one_may_be_dropped() -> None:
    problem = two_keys()
    assert evaluate(problem, {"output_axes": "squeezed"}).reply["output"].values.shape == (2,)
    assert evaluate(problem).reply["output"].values.shape == (1, 1, 2, 1)


def test_a_masked_logit_that_is_no_number_stays_none_when_it_is_multiplied() -> None:
    problem = sdpa([[[[1.0]]]], [[[[0.0], [np.nan]]]], [[[[4.0], [8.0]]]], mask_operands=(mask([[1, 0]]),))
    assert output(problem) == [4.0]
    assert output(problem, "mask_fill=zero") == [6.0]
    assert np.isnan(output(problem, "mask_fill=times_mask")).all()


def test_weights_are_returned_as_without_a_mask() -> None:
    problem = two_keys(mask([[1, 0], [1, 1]]), outputs=("weights",))
    weights = values_of(problem, "weights", {"returned_weights": "unmasked"})
    assert weights.ravel() == pytest.approx([0.25, 0.75, 0.75, 0.25])


def test_square_weights_are_transposed() -> None:
    assert output(two_keys(mask([[1, 0], [1, 1]])), "value_path=weights_transposed") == pytest.approx([10.0, 2.0])
    assert output(one_query([0.0, LOG3]), "value_path=weights_transposed") == pytest.approx([7.0])


def test_a_bias_is_subtracted() -> None:
    problem = two_keys(added([[0.0, LOG3]]))
    assert output(problem) == pytest.approx([(4 + 9 * 8) / 10, 6.0])
    assert output(problem, "float_mask[mask]=subtracted") == pytest.approx([6.0, (9 * 4 + 8) / 10])


def test_true_adds_one() -> None:
    problem = even([[[[4.0], [8.0]]]], 1, mask([[1, 0]]))
    assert output(problem, "number_mask[mask]=added") == pytest.approx([(4 * np.e + 8) / (np.e + 1)])


def test_the_mask_of_the_first_query_holds_for_all() -> None:
    assert output(two_keys(mask([[1, 0], [1, 1]])), "mask_axes[mask]=first_query") == pytest.approx([4.0, 4.0])


def test_items_are_tiled_over_heads() -> None:
    # the folded (batch, head) axis gets the masks 0 1 0 1 0 1; each batch element has three of its rows
    problem = even(np.broadcast_to([[0.0], [1.0]], (2, 3, 2, 1)), 1, mask([[[[1, 0]]], [[[0, 1]]]]))
    assert output(problem, "mask_axes[mask]=batch_tiled") == [0.0, 1.0, 0.0, 1.0, 0.0, 1.0]


def test_items_are_taken_for_queries_where_there_are_as_many() -> None:
    problem = even(np.broadcast_to([[0.0], [1.0]], (2, 1, 2, 1)), 2, mask([[[[1, 0]]], [[[0, 1]]]]))
    assert output(problem) == [0.0, 0.0, 1.0, 1.0]
    assert output(problem, "mask_axes[mask]=batch_as_queries") == [0.0, 1.0, 0.0, 1.0]


def test_padding_lies_along_the_queries() -> None:
    problem = even([[[[4.0], [8.0]]]], 2, mask([[1, 0]]))
    assert output(problem, "mask_axes[mask]=transposed") == [6.0, 0.0]


def test_a_mask_is_read_with_swapped_strides() -> None:
    # rows 1 0 1 and 0 1 1 are 1 0 1 0 1 1 in memory; query 0 reads the elements 0, 2, 4, query 1 reads 1, 3, 5
    problem = even([[[[1.0], [2.0], [4.0]]]], 2, mask([[1, 0, 1], [0, 1, 1]]))
    assert output(problem) == pytest.approx([5 / 2, 3.0])
    assert output(problem, "mask_axes[mask]=strides_swapped") == pytest.approx([7 / 3, 4.0])
    # one row for all queries is expanded first: 0 1 1 0 1 1
    row = even([[[[1.0], [2.0], [4.0]]]], 2, mask([[0, 1, 1]]))
    assert output(row, "mask_axes[mask]=strides_swapped") == pytest.approx([3.0, 5 / 2])


@pytest.mark.parametrize(
    ("lie", "expected"), [("", [1, 3, 20, 10]), ("kv_head", [1, 1, 30, 30]), ("heads_by_group", [1, 2, 30, 10])]
)
def test_a_mask_is_read_at_another_head(lie: str, expected: list[float]) -> None:
    # query heads 0 and 1 share the values 1 and 3, heads 2 and 3 the values 10 and 30
    each = mask([[[[1, 0]], [[0, 1]], [[1, 1]], [[1, 0]]]])
    value = np.array([[[[1.0], [3.0]], [[10.0], [30.0]]]])
    problem = sdpa(np.zeros((1, 4, 1, 1)), np.zeros((1, 2, 2, 1)), value, each)
    assert output(problem, *([f"mask_axes[mask]={lie}"] if lie else [])) == pytest.approx(expected)


def test_a_scale_of_the_padded_head_or_of_its_whole_width() -> None:
    def scored(product: float, **fields: Any) -> Problem:
        """Return a problem with head_dim 4 in which the products are 0 and `product`."""
        rows = np.zeros((1, 1, 2, 4))
        rows[..., 1, 0] = product
        return sdpa([[[[1.0, 0.0, 0.0, 0.0]]]], rows, [[[[4.0], [8.0]]]], **fields)

    assert output(scored(2 * LOG3, scale=None)) == pytest.approx([7.0])
    assert output(scored(8**0.5 * LOG3, scale=None), "scale=padded_8") == pytest.approx([7.0])
    assert output(scored(4 * LOG3, scale=0.25), "scale=padded_8") == pytest.approx([7.0])  # a given scale is used
    assert output(scored(2 * LOG3, scale=None), "scale=padded_to_power_of_two") == pytest.approx([7.0])
    three = sdpa([[[[1.0, 0.0, 0.0]]]], [[[[0.0] * 3, [2 * LOG3, 0.0, 0.0]]]], [[[[4.0], [8.0]]]], scale=None)
    assert output(three, "scale=padded_to_power_of_two") == pytest.approx([7.0])
    assert output(scored(4 * LOG3, scale=None), "scale=over_head_dim_1") == pytest.approx([7.0])
    assert output(scored(8 * LOG3, scale=0.25), "scale=over_head_dim_0.5") == pytest.approx([7.0])


def test_a_softcap_that_is_not_requested() -> None:
    # 2 tanh(x / 2) = ln 3
    problem = one_query([0.0, 2 * np.arctanh(LOG3 / 2)], [4.0, 8.0])
    assert output(problem, "softcap=default_2") == pytest.approx([7.0])
    assert output(problem.but(softcap=5.0), "softcap=default_2") == output(problem.but(softcap=5.0))


# ---- mistakes in kernels ---------------------------------------------------------------------------------------


def test_keys_after_the_last_block_are_dropped() -> None:
    values = [[[[float(n)] for n in range(17)]]]
    assert output(even(values, 1)) == [8.0]
    assert output(even(values, 1), "key_tail=dropped_16") == [7.5]
    assert output(even(values, 1), "key_tail=dropped_32") == [0.0]  # there is no full block, so no key is left


def test_keys_are_filled_up_with_zeros_that_take_weight() -> None:
    values = [[[[float(n)] for n in range(17)]]]
    assert output(even(values, 1), "key_tail=zeros_16") == [136 / 32]
    assert output(even(values, 1), "key_tail=zeros_64") == [136 / 64]
    assert output(even([[[[3.0]] * 32]], 1), "key_tail=zeros_32") == [3.0]
    hidden = two_keys(mask([[0, 0], [1, 1]]))
    assert output(hidden, "key_tail=zeros_16") == pytest.approx([0.0, (3 * 4 + 8) / (4 + 14)])


def test_a_risen_maximum_leaves_the_sum_too_large() -> None:
    # sixteen weights of 1/32 and one of 1/2: the output of the first block is sixteen times too large
    problem = sdpa([[[[1.0]]]], [[[[0.0]] * 16 + [[np.log(16.0)]]]], [[[[1.0]] * 16 + [[0.0]]]])
    assert output(problem) == pytest.approx([0.5])
    assert output(problem, "online_softmax=not_rescaled_16") == pytest.approx([8.0])
    assert output(problem, "online_softmax=not_rescaled_16", "nonfinite_value=leaks") == pytest.approx([8.0])
    assert output(problem, "online_softmax=not_rescaled_32") == pytest.approx([0.5])
    assert output(problem, "online_softmax=total_not_rescaled_16") == pytest.approx([1 / 17])
    assert output(problem, "online_softmax=nothing_rescaled_16") == pytest.approx([16 / 17])
    assert output(problem, "online_softmax=block_not_rescaled_16") == pytest.approx([8.0])  # the next block is the last


def test_a_block_misses_the_next_rise_alone() -> None:
    # three blocks with the exponentials 1, 2 and 6; the first block misses the factor 1/2, the second the factor 1/3
    keys = [[0.0]] * 4 + [[LOG2]] * 4 + [[np.log(6.0)]] * 4
    values = [[[[1.0]] * 4 + [[0.0]] * 8]], [[[[0.0]] * 4 + [[1.0]] * 4 + [[0.0]] * 4]]
    assert [output(sdpa([[[[1.0]]]], [[keys]], each))[0] for each in values] == pytest.approx([1 / 9, 2 / 9])
    late = "online_softmax=block_not_rescaled_4"
    assert [output(sdpa([[[[1.0]]]], [[keys]], each), late)[0] for each in values] == pytest.approx([2 / 9, 6 / 9])
    never = "online_softmax=not_rescaled_4"
    assert [output(sdpa([[[[1.0]]]], [[keys]], each), never)[0] for each in values] == pytest.approx([6 / 9, 6 / 9])


def test_the_last_query_is_left_at_zero() -> None:
    assert output(two_keys(), "query_tail=zero") == pytest.approx([7.0, 0.0])


# ---- behaviours of models --------------------------------------------------------------------------------------


def test_padding_becomes_a_length() -> None:
    values = [[[[4.0], [8.0], [30.0]]]]
    lie = "mask_axes[mask]=as_lengths"
    assert output(even(values, 1, mask([[0, 1, 1]], kind="key_padding"))) == [19.0]
    assert output(even(values, 1, mask([[0, 1, 1]], kind="key_padding")), lie) == [6.0]
    rows = mask([[0, 1, 1], [0, 0, 1]])
    assert output(even(values, 2, rows)) == [19.0, 30.0]
    assert output(even(values, 2, rows), lie) == [6.0, 4.0]


def test_a_causal_mask_that_nobody_asked_for() -> None:
    assert output(two_keys(), "causal_mask=unasked") == pytest.approx([4.0, 5.0])
    asked = mask(causal(2, 2, 1), offset=1)
    assert output(two_keys(asked), "causal_mask=unasked") == output(two_keys(asked))


def test_some_keys_are_always_attended() -> None:
    values = [[[[4.0], [8.0]]]]
    assert output(even(values, 2, mask([[0, 1]])), "always_attended=first_key") == [6.0, 6.0]
    assert output(even(values, 2, added([[-np.inf, 0.0]])), "always_attended=first_key") == [6.0, 6.0]
    crossed = mask([[0, 1], [1, 0]])
    assert output(even(values, 2, crossed)) == [8.0, 4.0]
    assert output(even(values, 2, crossed), "always_attended=own_position") == [6.0, 6.0]


def test_masked_keys_share_in_the_maximum() -> None:
    def problem(*groups: MaskOperand) -> Problem:
        return one_query([0.0, 0.0, 2000.0], [4.0, 8.0, 30.0], *groups)

    lie = "softmax_maximum=of_masked_keys"
    assert output(problem(mask([[1, 1, 0]]))) == [6.0]
    assert output(problem(mask([[1, 1, 0]])), lie) == [0.0]
    assert output(problem(added([[0.0, 0.0, -np.inf]])), lie) == [6.0]
    assert np.isnan(output(problem(mask([[1, 1, 0]])), f"{lie}_unguarded")).all()
    assert output(problem(mask([[0, 0, 0]])), f"{lie}_unguarded") == [0.0]


def test_a_maximum_that_starts_at_zero() -> None:
    low, ordinary = one_query([-2000.0, -2000.0], [4.0, 8.0]), one_query([-1.0, -1.0], [4.0, 8.0])
    lie = "softmax_maximum=from_zero"
    assert output(low) == [6.0]
    assert output(low, lie) == [0.0]
    assert np.isnan(output(low, f"{lie}_unguarded")).all()
    assert output(ordinary, lie) == pytest.approx([6.0])


def test_what_is_added_to_the_denominator_counts_from_the_maximum_that_is_subtracted() -> None:
    """Relative to the masked third key, the exponentials are 1/8 and 2/8, so the denominator is 3/8 + 1."""
    problem = one_query(np.log([1.0, 2.0, 8.0]), None, mask([[1, 1, 0]]))
    both = ("softmax_maximum=of_masked_keys", "softmax_denominator=plus_1")
    assert output(problem, both[1]) == pytest.approx([(4 * 0.5 + 8) / (1.5 + 1)])
    assert output(problem, *both) == pytest.approx([(4 / 8 + 8 * 2 / 8) / (3 / 8 + 1)])
    assert output(problem, *reversed(both)) == output(problem, *both)


def test_masked_keys_keep_weight_under_a_low_fill() -> None:
    def problem(logit: float) -> Problem:
        return one_query([logit, 0.0], None, mask([[1, 0]]))

    assert output(problem(-100.0)) == [4.0]
    assert output(problem(-100.0), "mask_fill=puts_-100") == pytest.approx([6.0])
    assert output(problem(np.log(1e-9)), "mask_fill=adds_-20.7233") == pytest.approx([6.0], rel=1e-5)


def test_one_argument_alone_fills_with_a_number() -> None:
    """Three keys have exponentials 1, 3, 5 and values 4, 8, 12. The mask hides the last two, the padding the last."""
    problem = one_query(np.log([1.0, 3.0, 5.0]), None, mask([[1, 0, 0]]), mask([[1, 1, 0]], "padding", "key_padding"))
    two = text(LOG2)
    assert output(problem) == [4.0]
    assert output(problem, f"argument_fill[mask]=puts_{two}") == pytest.approx([(4 + 2 * 8) / 3])
    assert output(problem, f"argument_fill[mask]=puts_{two}_last") == pytest.approx([(4 + 2 * 8 + 2 * 12) / 5])
    assert output(problem, f"argument_fill[mask]=adds_{two}") == pytest.approx([(4 + 6 * 8) / 7])
    for name in (f"puts_{two}", f"puts_{two}_last", f"adds_{two}"):
        # the mask hides the last key with -inf, which only a fill with `_last` replaces
        hidden = 2 * 12 if name.endswith("_last") else 0
        expected = (4 + hidden) / (1 + hidden / 12)
        assert output(problem, f"argument_fill[padding]={name}") == pytest.approx([expected])


def test_each_mask_adds_its_number() -> None:
    """Three keys have exponentials 1, 3, 5 and values 4, 8, 12. Both masks hide the last key, one also the second."""
    masks = mask([[1, 0, 0]]), mask([[1, 1, 0]], "padding", "key_padding")
    problem = one_query(np.log([1.0, 3.0, 5.0]), None, *masks)
    assert output(problem, f"mask_fill=adds_{text(LOG2)}") == pytest.approx([(4 + 6 * 8 + 10 * 12) / 17])
    assert output(problem, f"mask_fill=adds_{text(LOG2)}_for_each") == pytest.approx([(4 + 6 * 8 + 20 * 12) / 27])
    # Twice the most negative number is -inf: in a fully masked row, only keys that a single mask hides have weight.
    hidden = one_query(np.log([1.0, 3.0, 5.0]), None, mask([[0, 0, 0]]), masks[1])
    assert output(hidden, "mask_fill=finite_minimum") == pytest.approx([8.0])
    assert output(hidden, "mask_fill=finite_minimum_for_each") == pytest.approx([6.0])
    # in float16, -1001.3 is rounded to -1001.5, and -2001.5 to -2002
    rounded = one_query([-1.3, 0.0], [4.0, 8.0], mask([[0, 0]]), mask([[0, 0]], "padding", "key_padding"))
    found = values_of(rounded, "output", {"mask_fill": "adds_-1000_for_each"}, "float16")
    assert found.ravel() == pytest.approx([(4 * np.exp(-2) + 8) / (1 + np.exp(-2))])


def test_the_causal_mask_alone_fills_with_a_number() -> None:
    """The attention mask hides the only key that is_causal allows the first query: only the filled key is left."""
    problem = two_keys(mask([[0, 1], [1, 1]]), flag(2, 2))
    assert output(problem) == pytest.approx([0.0, 5.0])
    assert output(problem, "causal_fill=puts_-1e9") == pytest.approx([8.0, 5.0])
    assert output(problem, "causal_fill=adds_-1e9") == pytest.approx([8.0, 5.0])
    hidden = two_keys(mask([[0, 0], [1, 1]]), flag(2, 2))
    assert output(hidden, "causal_fill=puts_-1e9") == pytest.approx([0.0, 5.0])
    assert output(hidden, "causal_fill=puts_-1e9_last") == pytest.approx([8.0, 5.0])


def test_one_argument_alone_is_applied_after_the_softmax() -> None:
    """The mask hides the last two of three exponentials 1, 3 and 5, the padding the last: a weight of 1 / (1 + 3)."""
    problem = one_query(np.log([1.0, 3.0, 5.0]), None, mask([[1, 0, 0]]), mask([[1, 1, 0]], "padding", "key_padding"))
    assert output(problem, "argument_fill[mask]=zero_after_softmax") == pytest.approx([4 / 4])
    assert output(problem, "argument_fill[padding]=zero_after_softmax") == pytest.approx([4.0])
    causal_and_mask = two_keys(mask([[1, 1], [1, 0]]), flag(2, 2))
    assert output(causal_and_mask) == pytest.approx([4.0, 4.0])
    assert output(causal_and_mask, "causal_fill=zero_after_softmax") == pytest.approx([4 / 4, 4.0])
    assert output(causal_and_mask, "argument_fill[mask]=zero_after_softmax") == pytest.approx([4.0, 4 * 3 / 4])
    of_nan = one_query([0.0, np.nan], None, mask([[1, 0]]), outputs=("weights",))
    for lie in ("argument_fill[mask]=zero_after_softmax", "mask_fill=zero_after_softmax"):
        assert np.isnan(values_of(of_nan, "weights", dict([lie.split("=")]))).all()  # NaN times 0


def test_the_fill_of_an_argument_comes_after_the_bias_and_leaves_appended_keys_alone() -> None:
    """The values are 4, 8 and 12. The mask hides the last two, and a bias of -inf hides the second."""
    bias = replace(added([[0.0, -np.inf, 0.0]]), slot="bias")
    problem = one_query(np.zeros(3), None, mask([[1, 0, 0]]), bias)
    two = text(LOG2)
    assert output(problem) == [4.0]
    for replaced in (f"puts_{two}", f"puts_{two}_last"):
        assert output(problem, f"argument_fill[mask]={replaced}") == pytest.approx([(4 + 2 * 8 + 2 * 12) / 5])
    assert output(problem, f"argument_fill[mask]=adds_{two}") == pytest.approx([(4 + 2 * 12) / 3])
    # The appended key has the logit 0 and the value 0, and no mask hides it.
    layer = random_mha(7, mask([np.arange(KEYS) < 2], "padding", "key_padding"), zero_key=True)
    assert output(layer, "argument_fill[padding]=puts_-1e9") == pytest.approx(output(layer), rel=1e-12)


def test_a_masked_nan_is_replaced_by_a_fill_and_stays_where_minus_infinity_is_added() -> None:
    """The values are 4, 8, 12. The mask hides the second key, the padding the third; one of these two keys is NaN."""

    def problem(*logits: float) -> Problem:
        return one_query(logits, None, mask([[1, 0, 1]]), mask([[1, 1, 0]], "padding", "key_padding"))

    fill = "argument_fill[mask]=puts_0"
    of_mask, of_padding = problem(0.0, np.nan, 0.0), problem(0.0, 0.0, np.nan)
    assert output(of_mask, fill) == output(of_padding, fill) == [6.0]
    for leak, reached in (("nonfinite_key=leaks", np.nan), ("nonfinite_key=zeroes", 0.0)):
        assert output(of_mask, leak, fill) == output(of_mask, fill, leak) == [6.0]
        np.testing.assert_array_equal(output(of_padding, leak, fill), [reached])
        assert output(of_mask, leak, "mask_fill=puts_0") == pytest.approx([8.0])
    causal = two_keys(mask([[1, 1], [1, 0]]), flag(2, 2)).but(key=np.array([[[[0.0, 0.0], [np.nan, 0.0]]]]))
    np.testing.assert_array_equal(output(causal, "causal_fill=puts_0", "nonfinite_key=zeroes"), [6.0, 0.0])


def test_every_head_has_the_result_of_the_first() -> None:
    assert output(even([[[[4.0], [8.0]], [[10.0], [30.0]]]], 1), "head_result=first") == [6.0, 6.0]


def test_the_query_is_added_unasked() -> None:
    plain = two_heads()
    assert np.array(output(plain, "residual=unasked")) - np.array(output(plain)) == pytest.approx([1.0, 0.0])


# ---- small mistakes --------------------------------------------------------------------------------------------


def test_an_argument_is_taken_for_another() -> None:
    query, key, value = [[[[LOG3], [0.0]]]], [[[[0.0], [0.0]]]], [[[[4.0], [8.0]]]]
    problem = sdpa(query, key, value)
    weight = 3.0**LOG3 / (3.0**LOG3 + 1)
    assert output(problem, "arguments=query_as_key") == pytest.approx([4 * weight + 8 * (1 - weight), 6.0])
    far = 81.0 / (81 + 6561)
    assert output(problem, "arguments=value_as_key") == pytest.approx([4 * far + 8 * (1 - far), 6.0])
    assert output(problem, "arguments=query_for_all") == pytest.approx([LOG3 * weight, LOG3 / 2])


def test_a_bias_is_added_twice() -> None:
    values = [[[[4.0], [8.0]]]]
    assert output(even(values, 1, added([[0.0, LOG3 / 2]])), "bias_scale=doubled") == pytest.approx([7.0])
    assert output(even(values, 1, added([[0.0, -np.inf]])), "bias_scale=doubled") == [4.0]


def test_a_key_at_either_end_is_dropped() -> None:
    values = [[[[4.0], [8.0], [30.0]]]]
    assert output(even(values, 1), "key_tail=last_dropped") == [6.0]
    assert output(even(values, 1), "key_tail=first_dropped") == [19.0]
    assert output(even([[[[4.0]]]], 1), "key_tail=last_dropped") == [0.0]


def test_the_sides_of_a_window_are_exchanged() -> None:
    flag = MaskOperand("window", ("window",), "flag", window(3, 3, 1, 0), window=(1, 0))
    problem = even([[[[1.0], [3.0], [8.0]]]], 3, flag)
    assert output(problem) == [1.0, 2.0, 5.5]
    assert output(problem, "window_edges=sides_exchanged") == [2.0, 5.5, 8.0]


def test_an_output_bias_is_added_more_than_once() -> None:
    problem = two_heads(params={"bo": np.array([1.0, 2.0])})
    assert output(problem) == pytest.approx([8.0, 22.0])
    assert output(problem, "projection_bias=bo_twice") == pytest.approx([9.0, 24.0])
    assert output(problem, "projection_bias=bo_of_each_head") == pytest.approx([9.0, 24.0])


def test_an_argument_is_projected_with_the_weights_of_another() -> None:
    problem = two_heads(params={"wk": np.zeros((2, 2)), "bk": np.array([1.0, 2.0]), "bv": np.zeros(2)})
    assert output(problem) == pytest.approx([6.0, 20.0])
    assert output(problem, "projection_order=wk_for_value") == pytest.approx([1.0, 2.0])
    assert output(problem, "projection_order=wq_for_key") == pytest.approx([7.0, 20.0])
    assert output(problem, "projection_bias=bk_for_value") == pytest.approx([7.0, 22.0])
    assert output(problem, "projection_bias=bk_for_query") == output(problem)  # all keys are bk


def test_a_bias_is_taken_from_a_projection_without_one() -> None:
    biased = two_heads(params={"bv": np.array([1.0, 2.0])})
    assert output(biased, "projection_bias=bq_for_value") == output(two_heads())
    assert output(biased, "projection_order=wq_for_value") == output(two_heads(), "projection_order=wq_for_value")


def test_packed_columns_are_read_by_heads() -> None:
    # two heads with head_dim 1: the columns q0 q1 k0 k1 v0 v1 are read as q0 k0 v0 q1 k1 v1
    weights = {"wq": [[1.0, 2.0], [0.0, 0.0]], "wk": [[3.0, 4.0], [0.0, 0.0]], "wv": [[5.0, 6.0], [0.0, 0.0]]}
    problem = two_heads(value=np.array([[[1.0, 0.0], [1.0, 0.0]]]), params={n: np.array(w) for n, w in weights.items()})
    assert output(problem) == pytest.approx([5.0, 6.0])
    assert output(problem, "projection_order=by_head") == pytest.approx([3.0, 6.0])


def test_a_key_is_reshaped_for_transposed() -> None:
    # transposing keys with the rows (a, b), (c, d) gives the rows (a, c), (b, d); reshaping leaves (a, b), (c, d)
    problem = sdpa([[[[0.0, 1.0]]]], [[[[5.0, 0.0], [0.0, LOG3]]]], [[[[4.0], [8.0]]]])
    turned = sdpa([[[[0.0, 1.0]]]], [[[[5.0, LOG3], [0.0, 0.0]]]], [[[[4.0], [8.0]]]])
    assert output(problem, "arguments=key_reshaped") == output(problem) == pytest.approx([7.0])
    assert output(turned) == pytest.approx([5.0])
    assert output(turned, "arguments=key_reshaped") == [6.0]


def test_values_are_summed_whatever_their_weights() -> None:
    assert output(two_keys(), "value_path=summed") == pytest.approx([12.0, 12.0])
    assert output(two_keys(mask([[0, 0], [1, 0]])), "value_path=summed") == pytest.approx([0.0, 12.0])


# The axes of a softmax -> the number of logits in each of its sums, in a problem with sizes 2, 3, 4, 5.
OTHER_AXES = (
    ("batch", 2),
    ("batch_and_heads", 6),
    ("queries_and_keys", 20),
    ("heads_queries_and_keys", 60),
    ("all", 120),
)


def test_a_softmax_over_other_axes() -> None:
    problem = sdpa(np.zeros((2, 3, 4, 1)), np.zeros((2, 3, 5, 1)), np.ones((2, 3, 5, 1)))
    for name, terms in OTHER_AXES:
        assert output(problem, f"softmax_axis={name}") == pytest.approx([5 / terms] * 24)
        both = (f"softmax_axis={name}", "softmax_denominator=plus_one")
        assert output(problem, *both) == pytest.approx([5 / (terms + 1)] * 24)


def test_the_softmax_is_taken_twice() -> None:
    once, again = np.exp(0.25), np.exp(0.75)
    expected = [(4 * once + 8 * again) / (once + again), (4 * again + 8 * once) / (once + again)]
    assert output(two_keys(), "softmax_count=twice") == pytest.approx(expected)
    hidden = mask([[1, 0], [1, 1]])
    assert output(two_keys(hidden), "softmax_count=twice")[0] == pytest.approx((4 * np.e + 8) / (np.e + 1))


def test_exponentials_are_not_divided() -> None:
    assert output(two_keys(), "softmax_denominator=missing") == pytest.approx([4 / 3 + 8, 4 + 8 / 3])


def test_a_cap_that_is_not_divided_by() -> None:
    problem = two_keys(softcap=2.0)
    high = np.exp(2 * np.tanh(LOG3))
    assert output(problem, "softcap=undivided")[0] == pytest.approx((4 + 8 * high) / (1 + high))


def test_one_maximum_that_is_nan_makes_nan_of_every_row() -> None:
    """The first batch element has a NaN key; the second one is correct on its own."""
    key = np.array([[[[np.nan], [0.0]]], [[[0.0], [0.0]]]])
    value = np.full((2, 1, 2, 1), 6.0)
    problem = sdpa(np.ones((2, 1, 1, 1)), key, value)
    assert np.array_equal(output(problem), [np.nan, 6.0], equal_nan=True)
    assert np.isnan(output(problem, "softmax_maximum=of_all")).all()


def test_logits_are_returned_as_weights() -> None:
    problem = two_keys(mask([[1, 0], [1, 1]])).but(outputs=("weights",))
    found = values_of(problem, "weights", {"returned_weights": "masked_logits"})
    np.testing.assert_allclose(found[0, 0], [[0.0, -np.inf], [LOG3, 0.0]])


# ---- other mistakes ---------------------------------------------------------------------------------------------


def test_a_scale_that_is_given_is_multiplied_with_the_default() -> None:
    key = [[[[0.0] * 4, [LOG3] * 4]]]
    problem = sdpa([[[[1.0] * 4]]], key, [[[[4.0], [8.0]]]], scale=0.5)
    lie = "scale=given_times_default"
    assert output(problem) == pytest.approx([7.6])
    assert output(problem, lie) == pytest.approx([7.0])
    assert output(problem.but(scale=None), lie) == output(problem.but(scale=None)) == pytest.approx([7.6])
    assert output(problem.but(scale=0.0), lie) == [6.0]


def test_padding_hides_queries_too_where_there_are_as_many() -> None:
    values, lie = [[[[4.0], [8.0], [30.0]]]], "mask_axes[mask]=padding_of_queries"
    padded = mask([[1, 1, 0]], kind="key_padding")
    assert output(even(values, 3, padded)) == [6.0, 6.0, 6.0]
    assert output(even(values, 3, padded), lie) == [6.0, 6.0, 0.0]
    assert output(even(values, 2, padded), lie) == [6.0, 6.0]
    assert output(even(values, 3, mask([[1, 1, 0]])), lie) == [6.0, 6.0, 6.0]
    flag = MaskOperand("flag", ("causal",), "flag", causal(3, 3, 0), offset=0)
    assert output(even(values, 3, padded, flag), lie) == [4.0, 6.0, 0.0]
    numbers = MaskOperand("mask", ("key_padding",), "float", np.array([[[[0.0, -np.inf, 0.0]]]]))
    assert output(even(values, 3, numbers), lie) == [17.0, 0.0, 17.0]


def test_an_unbounded_side_of_a_window_is_taken_for_zero() -> None:
    def problem(*sides: int | None) -> Problem:
        flag = MaskOperand("window", ("window",), "flag", window(3, 3, *sides), window=(sides[0], sides[1]))
        return even([[[[1.0], [3.0], [8.0]]]], 3, flag)

    lie = "window_edges=unbounded_is_zero"
    assert output(problem(1, None)) == pytest.approx([4.0, 4.0, 5.5])
    assert output(problem(1, None), lie) == pytest.approx([1.0, 2.0, 5.5])
    assert output(problem(None, 1), lie) == pytest.approx([2.0, 5.5, 8.0])
    assert output(problem(1, 1), lie) == output(problem(1, 1))
    assert output(problem(None, None), lie) == output(problem(None, None))


def test_a_thousand_millionth_is_a_logit_like_zero() -> None:
    problem = sdpa([[[[1.0]]]], [[[[1e-9], [5.0]]]], [[[[4.0], [8.0]]]], mask_operands=(mask([[1, 0]]),))
    assert output(problem, "mask_fill=puts_1e-9") == [6.0]
    assert output(problem, "mask_fill=zero") != [6.0]


def test_the_order_of_composition_is_that_of_stages_and_tables() -> None:
    one = {
        "returned_weights": "summed",
        "mask_fill": "minus_1e4",
        "softmax_denominator": "plus_one",
        "value_path": "next_head",
        "projection_order": "kqv",
        "input_axes": "batch_and_sequence",
        "bias_scale": "scaled",
        "mask_combination": "or",
        "window_edges": "exclusive",
        "use[mask]": "ignored_with_weights",
        "float_mask[mask]": "one_minus",
        "mask_axes[mask]": "first_batch",
        "result_dtype": "float32",
    }
    keys = [deviation.key for deviation in compose(one)]
    assert keys == [
        "mask_axes[mask]=first_batch",
        "use[mask]=ignored_with_weights",
        "window_edges=exclusive",
        "mask_combination=or",
        "bias_scale=scaled",
        "input_axes=batch_and_sequence",
        "projection_order=kqv",
        "float_mask[mask]=one_minus",
        "value_path=next_head",
        "returned_weights=summed",
        "softmax_denominator=plus_one",
        "mask_fill=minus_1e4",
        "result_dtype=float32",
    ]
    assert [v.key for v in compose(dict(reversed(one.items())))] == keys


def test_a_side_of_zero_of_a_window_is_no_bound() -> None:
    def problem(*sides: int | None) -> Problem:
        flag = MaskOperand("window", ("window",), "flag", window(3, 3, *sides), window=(sides[0], sides[1]))
        return even([[[[1.0], [3.0], [8.0]]]], 3, flag)

    lie = "window_edges=zero_is_unbounded"
    assert output(problem(1, 0)) == [1.0, 2.0, 5.5]
    assert output(problem(1, 0), lie) == pytest.approx([4.0, 4.0, 5.5])
    assert output(problem(0, 1), lie) == pytest.approx([2.0, 4.0, 4.0])
    assert output(problem(0, 0), lie) == pytest.approx([4.0, 4.0, 4.0])
    assert output(problem(1, 1), lie) == output(problem(1, 1))
    right = "window_edges=zero_right_is_unbounded"
    assert output(problem(1, 0), right) == output(problem(1, None))
    assert output(problem(0, 1), right) == output(problem(0, 1))
    ends = "window_edges=unbounded_ends_at_query"
    assert output(problem(1, None), ends) == output(problem(1, 0))
    assert output(problem(1, 1), ends) == output(problem(1, 1))


def test_one_maximum_for_several_rows() -> None:
    query, key = [[[[1.0], [0.0]], [[0.0], [0.0]]]], [[[[2000.0], [2000.0]], [[0.0], [0.0]]]]
    problem = sdpa(query, key, [[[[4.0], [8.0]], [[4.0], [8.0]]]])
    assert output(problem) == [6.0, 6.0, 6.0, 6.0]
    assert output(problem, "softmax_maximum=of_all") == [6.0, 0.0, 0.0, 0.0]
    found = output(problem, "softmax_maximum=of_all_unguarded")
    assert np.array_equal(found, [6.0, np.nan, np.nan, np.nan], equal_nan=True)


def test_heads_meet_rows_of_the_output_projection_by_head_dim() -> None:
    """Two heads with head_dim 1 and values (1, 2), (3, 4): head 1 uses the rows 1 and 2 of wo, not the rows 2 and 3."""
    rows = np.zeros((1, 1, 2)), np.zeros((1, 1, 2)), np.array([[[1.0, 2.0, 3.0, 4.0]]])
    params = {"wq": np.eye(2), "wk": np.eye(2), "wv": np.eye(4), "wo": np.diag([1.0, 10.0, 100.0, 1000.0])}
    problem = mha(*rows, params, 2)
    assert evaluate(problem, {}).reply["output"].values.ravel().tolist() == [1, 20, 300, 4000]
    found = evaluate(problem, {"weight_orientation": "wo_by_head_dim"}).reply["output"].values
    assert found.ravel().tolist() == [1, 20 + 30, 400, 0]


@pytest.mark.parametrize(("name", "expected"), [("zeroed", 13 / 4), ("zeroed_with_values", 7 / 4)])
def test_zeros_for_padding_are_no_mask(name: str, expected: float) -> None:
    """Logits are ln 2, 0 and (padded) ln 9, values 1, 5, 6. If the padded logit is 0, the weights are 1/2, 1/4, 1/4."""
    padding = MaskOperand("lengths", ("key_padding",), "bool", np.array([[[[1, 1, 0]]]], dtype=bool))
    problem = one_query(np.log([2.0, 1.0, 9.0]), [1.0, 5.0, 6.0], padding)
    assert evaluate(problem).reply["output"].values.ravel() == pytest.approx([7 / 3])
    assert evaluate(problem, {"padded_keys": name}).reply["output"].values.ravel() == pytest.approx([expected])


def test_the_capped_product_is_returned_for_the_one_before_the_softcap() -> None:
    """The logits are 0 and ln 3, the softcap is ln 3: the second capped logit is ln 3 * tanh(1)."""
    problem = two_keys(outputs=("output", "scaled"), softcap=LOG3)
    raw = evaluate(problem).reply["scaled"].values[0, 0, 0]
    assert raw.tolist() == [0.0, LOG3]
    found = evaluate(problem, {"returned_scores": "capped_as_scaled"}).reply["scaled"].values[0, 0, 0]
    assert found == pytest.approx([0.0, np.tanh(1.0) * LOG3])
    without = problem.but(softcap=None)
    assert evaluate(without, {"returned_scores": "capped_as_scaled"}).reply["scaled"].values[0, 0, 0] == pytest.approx(
        raw
    )


def test_a_negative_offset_may_be_taken_for_zero() -> None:
    values = [[[[1.0], [2.0]]]]
    for offset, usual in ((-1, [0.0, 1.0, 1.5]), (0, [1.0, 1.5, 1.5]), (1, [1.5, 1.5, 1.5])):
        flag = MaskOperand("is_causal", ("causal",), "flag", causal(3, 2, offset), offset=offset)
        problem = even(values, 3, flag)
        assert output(problem) == pytest.approx(usual)
        expected = [1.0, 1.5, 1.5] if offset == -1 else usual
        assert output(problem, "causal_alignment=never_negative") == pytest.approx(expected)


def test_the_shift_to_the_last_key_may_have_the_wrong_sign() -> None:
    more_keys = even(
        [[[[1.0], [2.0], [6.0]]]], 2, MaskOperand("is_causal", ("causal",), "flag", causal(2, 3, 0), offset=0)
    )
    assert output(more_keys, "causal_alignment=bottom_right_reversed") == pytest.approx([0.0, 1.0])
    fewer_keys = even([[[[1.0], [2.0]]]], 3, MaskOperand("is_causal", ("causal",), "flag", causal(3, 2, 0), offset=0))
    assert output(fewer_keys, "causal_alignment=bottom_right_reversed") == pytest.approx([1.5, 1.5, 1.5])


def test_an_offset_may_have_the_wrong_sign() -> None:
    values = [[[[1.0], [2.0]]]]
    for offset, expected in ((-1, [1.5, 1.5, 1.5]), (0, [1.0, 1.5, 1.5]), (1, [0.0, 1.0, 1.5])):
        flag = MaskOperand("is_causal", ("causal",), "flag", causal(3, 2, offset), offset=offset)
        assert output(even(values, 3, flag), "causal_alignment=wrong_sign") == pytest.approx(expected)


def test_the_bias_of_the_query_is_not_scaled() -> None:
    # the query of the first head is its bias, 2: logits 0 and ln 3 with a scale of 0.5, 0 and ln 9 without it
    problem = two_heads(query=np.zeros((1, 1, 2)), params={"bq": np.array([2.0, 0.0])}, scale=0.5)
    assert output(problem) == pytest.approx([7.0, 20.0])
    assert output(problem, "projection_bias=bq_unscaled") == pytest.approx([(4 + 9 * 8) / 10, 20.0])


def test_a_fill_that_hides_little_may_leave_fully_masked_rows_alone() -> None:
    """With a logit of -1e-9 instead of 0, the weight is 1/4 (1 - 3/4 1e-9): the output is 0.75e-9 lower."""
    problem = two_keys(mask([[0, 0], [1, 0]]))
    assert output(problem, "mask_fill=zero") == pytest.approx([6.0, 5.0])
    assert output(problem, "mask_fill=puts_0_but_fully_masked_rows") == pytest.approx([0.0, 5.0])
    assert output(problem, "mask_fill=puts_-1e-9") == pytest.approx([6.0, 5.0 - 0.75e-9], abs=1e-14)
    assert output(problem, "mask_fill=puts_-1e-9_but_fully_masked_rows") == pytest.approx(
        [0.0, 5.0 - 0.75e-9], abs=1e-14
    )
