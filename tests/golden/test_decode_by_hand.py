"""Variations of kernels for prefill and decoding, on problems small enough to be worked by hand."""

import numpy as np
import pytest

from conformance.oracle.evaluate import evaluate
from conformance.spec.problem import Problem

from .test_loops_by_hand import windowed
from .test_tiles_by_hand import LOG2, LOG3, even, flag, mask, output, sdpa, seen

# ---- flags and windows -------------------------------------------------------------------------------------------


def test_the_first_keys_stay_in_sight_of_a_window() -> None:
    problem = even(5, 6, windowed(5, 6, 1, 0))
    assert seen(problem) == ["x-----", "xx----", "-xx---", "--xx--", "---xx-"]
    assert seen(problem, "window_edges=sinks_1") == ["x-----", "xx----", "xxx---", "x-xx--", "x--xx-"]
    assert seen(problem, "window_edges=sinks_2") == ["x-----", "xx----", "xxx---", "xxxx--", "xx-xx-"]
    assert seen(problem, "window_edges=sinks_4") == seen(problem, "window_edges=right_only")
    behind = even(3, 5, windowed(3, 5, -2, None))  # from two keys after the query on
    assert seen(behind, "window_edges=sinks_1") == ["x-xxx", "x--xx", "x---x"]
    for other in (even(5, 6, windowed(5, 6, None, 0)), even(5, 6, flag(5, 6)), even(3, 3, mask(np.eye(3)))):
        assert np.array_equal(output(other, "window_edges=sinks_4"), output(other))


def test_a_flag_ends_with_the_last_page() -> None:
    """Of 5 keys, pages of 4 would end with the eighth: three keys more for every query."""
    problem = even(3, 5, flag(3, 5, 2))
    assert seen(problem) == ["xxx--", "xxxx-", "xxxxx"]
    assert seen(problem, "causal_alignment=end_of_page_4") == ["xxxxx"] * 3
    behind = even(7, 5, flag(7, 5, -2))
    assert seen(behind) == ["-----", "-----", "x----", "xx---", "xxx--", "xxxx-", "xxxxx"]
    assert seen(behind, "causal_alignment=end_of_page_8") == ["xx---", "xxx--", "xxxx-", *["xxxxx"] * 4]
    assert seen(even(6, 9, flag(6, 9, 3)), "causal_alignment=end_of_page_16") == ["x" * 9] * 6
    for other in (
        even(3, 8, flag(3, 8, 5)),
        even(3, 5, flag(3, 5)),
        even(5, 5, flag(5, 5)),
        even(5, 5, mask(np.eye(5))),
    ):
        assert np.array_equal(output(other, "causal_alignment=end_of_page_4"), output(other))


def test_the_first_item_and_head_tell_which_tiles_are_masked() -> None:
    """Tiles of 4 keys: of the first item and head one is masked whole, one not at all, one in part."""
    first, other = "----xxxxxx--", "xx-x--x-x--x"
    heads = [[first, other], [other, first]]
    group = mask(np.array([[[[letter == "x" for letter in row]] for row in item] for item in heads]))
    nothing, eye = np.zeros((2, 2, 12, 1)), np.broadcast_to(np.eye(12), (2, 2, 12, 12))
    problem = Problem("sdpa", "float64", 2, 2, 1, 12, nothing[:, :, :1], nothing, eye, groups=(group,))

    def drawn(name: str) -> list[list[str]]:
        found = evaluate(problem, {"mask_axes[mask]": name}).reply["output"].values[:, :, 0]
        return [["".join("x" if weight else "-" for weight in row) for row in item] for item in found]

    told = "----xxxxx--x"
    assert drawn("map_of_first_head_4") == [[first, told], [told, first]]
    assert drawn("map_of_first_head_8") == heads
    assert drawn("map_of_first_item_4") == [[first, other], [told, "----xxxxxx--"]]
    skipped = "------x-x--x"  # nothing is shown that a mask hides
    assert drawn("empty_tiles_of_first_item_and_head_4") == [[first, skipped], [skipped, first]]
    assert drawn("empty_tiles_of_first_item_and_head_8") == heads
    assert drawn("empty_tiles_of_first_item_4") == [[first, other], [skipped, first]]
    problem = problem.but(query=problem.query[:1], key=nothing[:1], value=eye[:1], groups=(mask(group.values[:1]),))
    assert drawn("map_of_first_head_4") == [[first, told]]
    assert drawn("empty_tiles_of_first_item_and_head_4") == [[first, skipped]]
    assert drawn("map_of_first_item_4") == heads[:1]


# ---- sums over keys ----------------------------------------------------------------------------------------------


def test_parts_that_are_put_together_count_alike() -> None:
    """Of 4 and 8 keys alone: weights of 3/6, 1/6, 1/6, 1/6, then 2/3 and 1/3, each halved; a part of -500 as well."""
    lie = "online_softmax=parts_alike_4"
    values = [[6.0], [0.0], [0.0], [12.0], [3.0], [9.0]]
    logits = [[LOG3, 0, 0, 0, LOG2, 0], [LOG3, 0, 0, 0, LOG2 - 500, -500]]
    assert output(sdpa(logits, values), lie).ravel().tolist() == pytest.approx([((18 + 12) / 6 + (6 + 9) / 3) / 2] * 2)
    assert output(sdpa([logits[0]], values), "online_softmax=parts_alike_8")[0, 0] == pytest.approx(45 / 9)
    hidden = sdpa(logits, values, mask([[0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 0, 0]]))
    assert output(hidden, lie).ravel().tolist() == pytest.approx([(6 + 9) / 3 / 2, 0])


def test_the_denominator_may_lack_every_other_key() -> None:
    """Exponentials 3 1 1 2 1: the first, third and fifth are 5; where just the second is seen there is no sum."""
    lie, values = "softmax_denominator=every_other_key", np.eye(5)
    found = output(sdpa([[LOG3, 0, 0, LOG2, 0]], values), lie)
    assert found[0].tolist() == pytest.approx([3 / 5, 1 / 5, 1 / 5, 2 / 5, 1 / 5])
    seen_by = mask([[0, 1, 0, 0, 0], [0, 1, 1, 0, 0], [0, 0, 0, 0, 0]])
    found = output(sdpa([[7, LOG2, 0, 9, 9]] * 3, values, seen_by), lie)
    assert found == pytest.approx(np.array([[0, 0, 0, 0, 0], [0, 2, 1, 0, 0], [0, 0, 0, 0, 0]]))


def test_sums_without_an_axis_of_keys_lie_along_them() -> None:
    """Exponentials below the maximum of the row 1 1/3 and 1 1: sums of 4/3 and 2; one of nothing divides by 1."""
    lie = "softmax_denominator=of_row_of_key"
    found = output(sdpa([[LOG3, 0], [0, 0]], np.eye(2)), lie)
    assert found == pytest.approx(np.array([[3 / 4, 1 / 6], [3 / 4, 1 / 2]]))
    seen_by = mask([[1, 1], [0, 0]])
    assert output(sdpa([[LOG3, 0], [0, 0]], np.eye(2), seen_by), lie) == pytest.approx(
        np.array([[3 / 4, 1 / 3], [0, 0]])
    )
    for other in (sdpa([[LOG3, 0]], np.eye(2)), sdpa([[LOG3]], [[4.0]])):
        assert np.array_equal(output(other, lie), output(other))


@pytest.mark.parametrize(("lower", "expected"), [(60.0, np.exp(60.0)), (95.0, np.inf), (150.0, 0.0)])
def test_a_sum_that_is_small_divides_as_far_as_its_dtype_goes(lower: float, expected: float) -> None:
    problem = sdpa([[-lower, 0.0]], [[0.0], [1.0]]).but(dtype="float32")
    found = evaluate(problem, {"softmax_denominator": "every_other_key"}, "float32").reply["output"]
    assert found.values[0, 0, 0, 0] == pytest.approx(expected)


# ---- blocks of values, lanes of heads, rows of the output projection ---------------------------------------------


def test_values_come_from_the_block_before() -> None:
    """Logits are equal, so that the output is the mean of the values that are read: 1 to 7, in blocks of 4."""
    values = [[float(place)] for place in range(1, 8)]
    problem = sdpa(np.zeros((1, 7)), values)
    assert output(problem)[0, 0] == pytest.approx(4.0)
    assert output(problem, "value_path=block_before_4")[0, 0] == pytest.approx((1 + 2 + 3 + 4 + 1 + 2 + 3) / 7)
    assert output(problem, "value_path=block_before_8")[0, 0] == pytest.approx(4.0)


def test_the_mean_over_heads_is_taken_over_whole_lanes() -> None:
    """Three heads whose weights are 1/2 each: their mean over eight is 3/16; each of them stays."""
    zeros = np.zeros((1, 3, 1, 1)), np.zeros((1, 3, 2, 1)), np.zeros((1, 3, 2, 1))
    problem = Problem("sdpa", "float64", 3, 3, 1, 1, *zeros, outputs=("output", "weights_mean"))
    found = evaluate(problem, {"returned_weights": "mean_over_8_lanes"}).reply["weights_mean"].values
    assert found.ravel().tolist() == pytest.approx([3 / 16, 3 / 16])
    each = problem.but(outputs=("output", "weights"))
    found = evaluate(each, {"returned_weights": "mean_over_8_lanes"}).reply["weights"].values
    assert found.ravel().tolist() == pytest.approx([1 / 2] * 6)


def test_heads_meet_rows_of_the_output_projection_by_head_dim() -> None:
    """Two heads of one number, values of two: 1 2 and 3 4; head 1 meets the rows of 2 and 3, not those of 3 and 4."""
    rows = np.zeros((1, 1, 2)), np.zeros((1, 1, 2)), np.array([[[1.0, 2.0, 3.0, 4.0]]])
    params = {"wq": np.eye(2), "wk": np.eye(2), "wv": np.eye(4), "wo": np.diag([1.0, 10.0, 100.0, 1000.0])}
    problem = Problem("mha", "float64", 2, 2, 1, 2, *rows, params=params)
    assert evaluate(problem, {}).reply["output"].values.ravel().tolist() == [1, 20, 300, 4000]
    found = evaluate(problem, {"weight_orientation": "wo_by_head_dim"}).reply["output"].values
    assert found.ravel().tolist() == [1, 20 + 30, 400, 0]
