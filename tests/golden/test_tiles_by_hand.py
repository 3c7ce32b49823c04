"""Deviations of kernels that process whole tiles: attended keys drawn by hand, and outputs computed by hand."""

import numpy as np
import pytest

from conformance.deviations.catalogue import evaluate
from conformance.deviations.edges import window
from conformance.spec.problem import Array, MaskOperand, Problem

from ..problems import sdpa
from .tile_problems import even, flag, mask, output, scored, seen

LOG2 = float(np.log(2.0))
LOG3 = float(np.log(3.0))


# ---- causal flags ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lie", "expected"),
    [
        ("causal_query_tile=first_4", ["x------", "x------", "x------", "x------", "xxxxx--"]),
        ("causal_query_tile=last_4", ["xxxx---", "xxxx---", "xxxx---", "xxxx---", "xxxxx--"]),
        ("causal_query_tile=last_8", ["xxxxx--"] * 5),
        ("causal_query_tile=restarts_4", ["x------", "xx-----", "xxx----", "xxxx---", "x------"]),
        ("causal_key_tile=shown_4", ["xxxx---", "xxxx---", "xxxx---", "xxxx---", "xxxxxxx"]),
        ("causal_key_tile=hidden_4", ["-------", "-------", "-------", "xxxx---", "xxxx---"]),
    ],
)
def test_a_causal_flag_by_tiles(lie: str, expected: list[str]) -> None:
    problem = even(5, 7, flag(5, 7))
    assert seen(problem) == ["x------", "xx-----", "xxx----", "xxxx---", "xxxxx--"]
    assert seen(problem, lie) == expected
    assert seen(even(5, 7, mask(np.tri(5, 7))), lie) == seen(problem)  # an attention mask is not is_causal


def test_tiles_of_queries_and_of_keys_are_rounded_together() -> None:
    problem = even(5, 7, flag(5, 7))
    both = evaluate(problem, {"causal_key_tile": "shown_4", "causal_query_tile": "first_4"}).reply["output"].values
    assert [int((row > 0).sum()) for row in both[0, 0]] == [4, 4, 4, 4, 7]


# ---- windows and masks -----------------------------------------------------------------------------------------


def test_a_mask_of_one_row_is_for_the_first_queries() -> None:
    row = [[1, 0, 1]]
    assert seen(even(5, 3, mask(row)), "mask_rows=first_4") == ["x-x", "x-x", "x-x", "x-x", "xxx"]
    assert seen(even(5, 3, mask(row)), "mask_rows=first_8") == ["x-x"] * 5
    assert seen(even(3, 3, mask(row)), "mask_rows=first_1") == ["x-x", "xxx", "xxx"]
    assert seen(even(3, 3, mask(row * 3)), "mask_rows=first_1") == ["x-x"] * 3
    assert seen(even(5, 3, mask(row * 5)), "mask_rows=first_4") == ["x-x"] * 5
    added = mask([[0.0, -np.inf, 0.0]], "float")
    assert seen(even(5, 3, added), "mask_rows=first_4") == ["x-x", "x-x", "x-x", "x-x", "xxx"]
    assert seen(even(2, 3, added), "mask_rows=first_1") == ["x-x", "xxx"]


def test_a_mask_of_one_column_is_for_the_first_key() -> None:
    column, lie = [[1], [0], [1]], "mask_columns=first_1"
    assert seen(even(3, 3, mask(column))) == ["xxx", "---", "xxx"]
    assert seen(even(3, 3, mask(column)), lie) == ["xxx", "-xx", "xxx"]
    assert seen(even(3, 1, mask(column)), lie) == ["x", "-", "x"]
    assert seen(even(3, 3, mask([[1, 1, 1], [0, 0, 0], [1, 1, 1]])), lie) == ["xxx", "---", "xxx"]
    added = mask([[0.0], [-np.inf], [2.0]], "float")
    assert seen(even(3, 3, added), lie) == ["xxx", "-xx", "xxx"]
    per_item = MaskOperand("mask", ("attention",), "int", np.array(column, dtype=np.float64)[None, None])
    assert seen(even(3, 3, per_item), lie) == ["xxx", "-xx", "xxx"]


def test_rows_of_a_mask_begin_again_with_every_tile_of_queries() -> None:
    rows = np.tri(7)
    triangle = ["x------", "xx-----", "xxx----", "xxxx---", "xxxxx--", "xxxxxx-", "xxxxxxx"]
    assert seen(even(7, 7, mask(rows)), "mask_rows=again_4") == [*triangle[:4], *triangle[:3]]
    assert seen(even(7, 7, mask(rows)), "mask_rows=again_8") == triangle
    assert seen(even(7, 7, mask(rows[2:3])), "mask_rows=again_4") == ["xxx----"] * 7  # one row for all queries
    assert seen(even(7, 7, flag(7, 7)), "mask_rows=again_4") == triangle  # is_causal has no rows
    added = mask(np.where(rows, 0.0, -np.inf), "float")
    assert seen(even(7, 7, added), "mask_rows=again_4") == [*triangle[:4], *triangle[:3]]


# ---- keys in blocks --------------------------------------------------------------------------------------------


def test_a_last_block_that_is_full_is_dropped() -> None:
    assert seen(even(1, 8), "key_tail=whole_dropped_4") == ["xxxx----"]
    assert seen(even(1, 8), "key_tail=whole_dropped_8") == ["--------"]
    assert seen(even(1, 7), "key_tail=whole_dropped_4") == ["xxxxxxx"]


def test_parts_are_combined_without_their_maxima() -> None:
    # the maxima of keys 0 to 3 and of key 4 are ln 3 and 0: the exponentials are 1, 1/3, 1/3, 1/3 and 1
    problem = scored([[LOG3, 0.0, 0.0, 0.0, 0.0]], [[3.0], [0.0], [0.0], [0.0], [5.0]])
    assert output(problem)[0, 0] == pytest.approx((9 + 5) / 7)
    assert output(problem, "online_softmax=parts_without_maxima_4")[0, 0] == pytest.approx((3 + 5) / 3)
    assert output(problem, "online_softmax=parts_without_maxima_8")[0, 0] == pytest.approx(2.0)
    assert output(problem, "online_softmax=nothing_rescaled_4")[0, 0] == pytest.approx(2.0)  # the maximum does not rise


def test_a_maximum_that_rises_a_little_does_not_rescale() -> None:
    def rising(*tops: float) -> Problem:
        """Return a problem with four keys for each logit, in order; the first key of each four has a nonzero value."""
        return scored(
            [np.repeat(tops, 4)], [[2.0 * (key % 4 == 0) * 5.0 ** (key // 4)] for key in range(4 * len(tops))]
        )

    lie = "online_softmax=lazily_rescaled_4"
    # sums are rescaled for a rise by a factor of 512, not for a factor of 2; each block has 4 keys
    assert output(rising(0.0, LOG2), lie)[0, 0] == pytest.approx((2 + 10) / 8)
    assert output(rising(0.0, 9 * LOG2), lie)[0, 0] == pytest.approx((2 / 512 + 10) / (4 / 512 + 4))
    both = (2 / 512 + 10 / 512 + 50) / (8 / 512 + 4)
    assert output(rising(0.0, LOG2, 10 * LOG2), lie)[0, 0] == pytest.approx(both)
    # the first block is masked: a rise from -inf to 0 is not small
    late = scored([[-np.inf] * 4 + [0.0]], np.eye(5))
    assert output(late, lie).tolist() == [[0.0, 0.0, 0.0, 0.0, 1.0]]


def test_the_last_block_is_moved_back_until_it_is_full() -> None:
    assert output(even(1, 5), "key_tail=repeated_4")[0] == pytest.approx(np.array([1, 2, 2, 2, 1]) / 8)
    assert output(even(1, 8), "key_tail=repeated_4") == pytest.approx(output(even(1, 8)))
    assert output(even(1, 3), "key_tail=repeated_4") == pytest.approx(output(even(1, 3)))


def test_a_loop_ends_at_the_first_masked_tile() -> None:
    late = [0, 0, 0, 0, 1, 1]
    rows = [late, late, late, [0, 1, 0, 0, 0, 1], late, late]
    assert seen(even(6, 6, mask(rows)), "masked_block=ends_4") == ["----xx"] * 3 + ["-x---x"] + ["------"] * 2
    assert seen(even(6, 6, flag(6, 6)), "masked_block=ends_4") == seen(even(6, 6, flag(6, 6)))


@pytest.mark.parametrize(
    ("lie", "first", "other"),
    [
        ("leading_masked_keys=nan_4", [0, 0, 0, 0, 1], "leading_masked_keys=nan_8"),
        ("masked_block=nan_4", [1, 0, 0, 0, 0], "leading_masked_keys=nan_4"),
    ],
)
def test_a_query_that_sees_nothing_in_a_block_is_no_number(lie: str, first: list[int], other: str) -> None:
    rows = [first, [0, 0, 0, 1, 1], [0, 0, 0, 0, 0]]
    found = output(even(3, 5, mask(rows)), lie)
    assert np.isnan(found[0]).all()
    assert found[1:].tolist() == [[0.0, 0.0, 0.0, 0.5, 0.5], [0.0] * 5]
    assert np.isfinite(output(even(3, 5, mask(rows)), other)).all()


def test_a_loop_over_single_keys_has_blocks_of_one() -> None:
    problem = scored([[0.0, LOG2]], [[3.0], [6.0]])
    assert output(problem)[0, 0] == pytest.approx((3 + 2 * 6) / 3)
    assert output(problem, "online_softmax=not_rescaled_1")[0, 0] == pytest.approx((3 + 6) / 1.5)
    # the first weight is 1 when it is added, and 0 after the maximum rises by 800
    far = scored([[0.0, 800.0]], [[3.0], [6.0]])
    assert output(far)[0, 0] == 6.0
    assert output(far, "online_softmax=not_rescaled_1")[0, 0] == pytest.approx(9.0)
    assert output(far, "online_softmax=nothing_rescaled_1")[0, 0] == pytest.approx(4.5)
    late = scored([[-np.inf, 0.0]], [[3.0], [6.0]])
    assert output(late, "online_softmax=not_rescaled_1")[0, 0] == 6.0
    masked = even(2, 3, mask([[0, 1, 1], [1, 0, 0]]))
    assert np.isnan(output(masked, "leading_masked_keys=nan_1")[0]).all()
    assert output(masked, "leading_masked_keys=nan_1")[1].tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize(("name", "factor"), [("exp_of_log2", np.exp(-1.0)), ("exp2_of_log", 2.0**-LOG2)])
def test_a_rise_that_is_followed_in_another_base(name: str, factor: float) -> None:
    """The logits are 0 and ln 2: the correct factor for the contribution of the first key is 1/2."""
    problem = scored([[0.0, LOG2]], [[3.0], [6.0]])
    found = output(problem, f"online_softmax=rescaled_by_{name}_1")[0, 0]
    assert found == pytest.approx((3 * factor + 6) / (factor + 1))


def test_key_positions_begin_again_with_every_tile() -> None:
    lie = "causal_key_tile=restarts_4"
    assert seen(even(3, 7, flag(3, 7)), lie) == ["x---x--", "xx--xx-", "xxx-xxx"]
    assert seen(even(3, 4, flag(3, 4)), lie) == ["x---", "xx--", "xxx-"]


def test_a_row_that_underflows_counts_as_fully_masked() -> None:
    low, high = (scored([[logit, logit]], [[4.0], [8.0]]) for logit in (-2000.0, 2000.0))
    assert output(low).tolist() == [[6.0]]
    assert output(low, "softmax_maximum=missing_guarded").tolist() == [[0.0]]
    assert np.isnan(output(low, "softmax_maximum=missing")).all()
    assert np.isnan(output(high, "softmax_maximum=missing_guarded")).all()


def test_infinity_that_is_attended_with_no_weight_left_is_no_number() -> None:
    problem = scored([[0.0, -2000.0]], [[4.0], [np.inf]], mask([[1, 0]]))
    assert output(problem).tolist() == [[4.0]]
    assert np.isnan(output(problem, "use[mask]=ignored")).all()


# ---- combined partial sums, windows, returned values


@pytest.mark.parametrize(
    ("lie", "expected"),
    [
        ("", (4 * 4 + 2 * 7) / 6),
        ("online_softmax=parts_by_exp_of_log2_4", None),
        ("online_softmax=parts_by_exp2_of_log_4", None),
        ("online_softmax=parts_by_exp_of_log2_8", 5.0),
    ],
)
def test_parts_whose_logarithms_are_of_another_base(lie: str, expected: float | None) -> None:
    """The logits are 0, 0, 0, 0 and ln 2: partial sums of 4, with the value 4, and of 2, with the value 7."""
    problem = scored([[0, 0, 0, 0, LOG2]], [[4.0], [4.0], [4.0], [4.0], [7.0]])
    if expected is None:
        told, power = (np.log2([4, 2]), np.exp) if "log2" in lie else (np.log([4, 2]), np.exp2)
        counts = power(told)  # e^2 and e, or 2^ln 4 and 2^ln 2
        expected = float((counts * [4, 7]).sum() / counts.sum())
    assert output(problem, lie)[0, 0] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("rise", "lie", "kept"),
    [
        (5.0, "lazily_rescaled_4", True),
        (7.0, "lazily_rescaled_4", False),
        (7.0, "lazily_rescaled_up_to_8_4", True),
        (9.0, "lazily_rescaled_up_to_8_4", False),
        (3.0, "lazily_rescaled_up_to_4_4", True),
        (5.0, "lazily_rescaled_up_to_4_4", False),
    ],
)
def test_a_rise_that_is_small_enough_is_forgotten(rise: float, lie: str, *, kept: bool) -> None:
    """Four keys have logit 0, one has a higher logit: if the sums are not rescaled, all five have the exponential 1."""
    problem = scored([[0, 0, 0, 0, rise]], [[0.0]] * 4 + [[1.0]])
    weight = 1.0 if kept else np.exp(rise)
    assert output(problem, f"online_softmax={lie}")[0, 0] == pytest.approx(weight / (weight + 4))


def test_a_non_finite_value_may_leak_where_the_mask_is_added_alone() -> None:
    values, lie = [[4.0], [np.nan]], "nonfinite_value=leaks_where_added"
    assert output(scored([[0, 0]], values, mask([[1, 0]])), lie).tolist() == [[4.0]]
    hidden = mask([[0.0, -np.inf]], "float")
    assert output(scored([[0, 0]], values, hidden)).tolist() == [[4.0]]
    assert np.isnan(output(scored([[0, 0]], values, hidden), lie)).all()
    assert output(scored([[0, 0]], [[4.0], [8.0]], hidden), lie).tolist() == [[4.0]]


def windowed(queries: int, keys: int, left: int | None, right: int | None) -> MaskOperand:
    return MaskOperand("window", ("window",), "flag", window(queries, keys, left, right), window=(left, right))


def weights_under(lie: str, outputs: tuple[str, ...], *groups: MaskOperand) -> Array:
    """Return the last of these outputs for three heads with the weights (1/4, 3/4), (1/2, 1/2) and (3/4, 1/4)."""
    key = np.array([[[[0.0], [LOG3]], [[0.0], [0.0]], [[LOG3], [0.0]]]])
    one = np.ones((1, 3, 1, 1))
    problem = sdpa(one, key, np.ones((1, 3, 2, 1)), *groups)
    reply = evaluate(problem.but(outputs=outputs), dict([lie.split("=")]) if lie else {}).reply
    return np.asarray(reply[outputs[-1]].values)


@pytest.mark.parametrize(
    ("lie", "expected"),
    [
        ("", [1, 1, 1, 2, 2, 2]),
        ("grouped_heads=tile", [1, 2, 1, 2, 1, 2]),
    ],
)
def test_heads_that_share_a_value(lie: str, expected: list[int]) -> None:
    """Six query heads and one key; the two value heads have the values 1 and 2."""
    value = np.array([[[[1.0]], [[2.0]]]])
    problem = sdpa(np.ones((1, 6, 1, 1)), value, value)
    reply = evaluate(problem, dict([lie.split("=")]) if lie else {}).reply["output"].values
    assert reply.ravel().tolist() == expected


@pytest.mark.parametrize(("name", "expected"), [("uniform", 0.5), ("nan", np.nan)])
def test_weights_of_a_fully_masked_row_that_is_zero(name: str, expected: float) -> None:
    lie, outputs = f"returned_weights={name}_in_fully_masked_rows", ("weights", "output")
    fully_masked = mask([[0, 0]])
    assert weights_under(lie, outputs, fully_masked).ravel().tolist() == [0.0, 0.0, 0.0]
    found = weights_under(lie, outputs[::-1], fully_masked)
    assert np.array_equal(found, np.full((1, 3, 1, 2), expected), equal_nan=True)
    assert np.array_equal(weights_under(lie, outputs[::-1]), weights_under("", outputs[::-1]))


def test_weights_of_another_dtype_than_the_output() -> None:
    reply = evaluate(even(2, 3).but(outputs=("output", "weights")), {"returned_weights": "float32"}).reply
    assert {name: each.dtype for name, each in reply.items()} == {"output": "float64", "weights": "float32"}


def test_a_causal_mask_read_the_other_way_round() -> None:
    assert seen(even(3, 5, flag(3, 5)), "causal_alignment=future") == ["-xxxx", "--xxx", "---xx"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("to_query", ["x----", "xx---", "xxx--", "-xxx-", "--xxx"]),
        ("left_for_both", ["xxx--", "xxxx-", "xxxxx", "-xxxx", "--xxx"]),
        ("right_for_both", ["xx---", "xxx--", "-xxx-", "--xxx", "---xx"]),
    ],
)
def test_sides_of_a_window_that_are_something_else(name: str, expected: list[str]) -> None:
    problem = even(5, 5, windowed(5, 5, 2, 1))
    assert seen(problem) == ["xx---", "xxx--", "xxxx-", "-xxxx", "--xxx"]
    assert seen(problem, f"window_edges={name}") == expected


@pytest.mark.parametrize(
    ("edges", "expected"),
    [((1, None), ["xx--", "xxx-", "-xxx", "--xx"]), ((None, 1), ["xxxx"] * 4)],
    ids=["only the left side is bounded", "only the right side is bounded"],
)
def test_the_left_side_is_used_for_both_also_where_one_is_unbounded(
    edges: tuple[int | None, int | None], expected: list[str]
) -> None:
    assert seen(even(4, 4, windowed(4, 4, *edges)), "window_edges=left_for_both") == expected


def test_a_window_counted_from_the_last_key() -> None:
    problem = even(2, 5, windowed(2, 5, 1, 0))
    assert seen(problem) == ["x----", "xx---"]
    assert seen(problem, "window_alignment=bottom_right") == ["--xx-", "---xx"]
