"""Variations of kernels that loop over tiles of keys: what each query sees, drawn by hand, and sums worked out."""

from typing import Any

import numpy as np
import pytest

from conformance.oracle.evaluate import evaluate
from conformance.oracle.other_masks import window
from conformance.oracle.variations import find
from conformance.spec.problem import Array, Group, Problem

from .test_tiles_by_hand import even, flag, mask, output, sdpa, seen

LOG2 = float(np.log(2.0))
LOG3 = float(np.log(3.0))
CAUSAL_11 = ["x" * (query + 1) + "-" * (10 - query) for query in range(11)]


def windowed(queries: int, keys: int, left: int | None, right: int | None) -> Group:
    return Group("window", ("window",), "flag", window(queries, keys, left, right), window=(left, right))


# ---- causal flags and windows ------------------------------------------------------------------------------------


def test_the_keys_of_a_tile_of_queries_end_early() -> None:
    problem = even(11, 11, flag(11, 11))
    assert seen(problem) == CAUSAL_11
    tile = [*CAUSAL_11[:4], *["xxxx-------"] * 4]  # queries 4 to 7 lose the keys from 4 on
    assert seen(problem, "causal_query_tile=ends_early_8x4") == [*tile, *CAUSAL_11[8:]]
    assert seen(problem, "causal_query_tile=ends_early_16x8") == [*CAUSAL_11[:8], *["xxxxxxxx---"] * 3]
    assert seen(even(11, 11, mask(np.tri(11))), "causal_query_tile=ends_early_8x4") == CAUSAL_11


def test_only_one_tile_of_keys_beside_the_queries_is_masked() -> None:
    problem = even(7, 7, flag(7, 7))
    first = ["x---xxx", "xx--xxx", "xxx-xxx", "xxxxxxx", "xxxxxxx", "xxxxxxx", "xxxxxxx"]
    last = ["xxxx---", "xxxx---", "xxxx---", "xxxx---", "xxxxx--", "xxxxxx-", "xxxxxxx"]
    assert seen(problem, "causal_query_tile=first_alone_8x4") == first
    assert seen(problem, "causal_query_tile=last_alone_8x4") == last


def test_tiles_of_keys_follow_the_diagonal() -> None:
    assert seen(even(3, 7, flag(3, 7, 2))) == ["xxx----", "xxxx---", "xxxxx--"]
    assert seen(even(3, 7, flag(3, 7, 2)), "causal_query_tile=last_alone_8x4") == ["xxxxxx-"] * 3


@pytest.mark.parametrize(
    ("lie", "expected"),
    [
        (
            "window_edges=from_last_query_4x4",
            ["xx-----", "xxx----", "xxxx---", "-xxxx--", "----xx-", "----xxx", "----xxx"],
        ),
        (
            "window_edges=from_last_query_8x4",
            ["-------", "-------", "-------", "----x--", "----xx-", "----xxx", "----xxx"],
        ),
        (
            "window_edges=to_first_query_4x4",
            ["xx-----", "xxx----", "xxxx---", "-xxx---", "--xxxx-", "---xxxx", "----xxx"],
        ),
    ],
)
def test_a_window_for_a_whole_tile_of_queries(lie: str, expected: list[str]) -> None:
    problem = even(7, 7, windowed(7, 7, 2, 1))
    assert seen(problem) == ["xx-----", "xxx----", "xxxx---", "-xxxx--", "--xxxx-", "---xxxx", "----xxx"]
    assert seen(problem, lie) == expected


def test_a_side_without_bound_has_no_edge() -> None:
    left, right = even(5, 5, windowed(5, 5, None, 1)), even(5, 5, windowed(5, 5, 1, None))
    assert seen(left, "window_edges=from_last_query_4x4") == seen(left)
    assert seen(right, "window_edges=to_first_query_4x4") == seen(right)


def test_the_first_item_tells_which_tiles_are_looked_at() -> None:
    first = np.zeros((5, 5), bool)
    first[:4, :4] = True  # whole; the tile below it is empty, that to the right too, the last one is masked in part
    first[4, 4] = True
    second = np.eye(5, dtype=bool)
    second[0, 4] = second[4, 0] = True
    values = np.stack([first, second])[:, None]
    group = Group("mask", ("attention",), "bool", values)
    nothing = np.zeros((2, 1, 5, 1))
    eye = np.broadcast_to(np.eye(5), (2, 1, 5, 5))
    problem = Problem("sdpa", "float64", 1, 1, 1, 5, nothing, nothing, eye, groups=(group,), scale=1.0)
    weights = evaluate(problem, {"mask_axes[mask]": "map_of_first_item_4"}).reply["output"].values[1, 0]
    assert (weights[:4] > 0).tolist() == [[True] * 4 + [False]] * 4
    assert weights[4].tolist() == [0, 0, 0, 0, 1]
    skipped = evaluate(problem, {"mask_axes[mask]": "empty_tiles_of_first_item_4"}).reply["output"].values[1, 0]
    assert skipped.tolist() == np.eye(5).tolist()


# ---- parts of keys, of heads ----------------------------------------------------------------------------------------


def test_parts_count_by_their_maxima() -> None:
    """
    Logits 0, 0, 0, 0 and ln 3: the parts have maxima 1 and 3 (as exponentials), values 4 and 12 by themselves.

    Right: (4 * 4 + 3 * 12) / 7. By maxima: (1 * 4 + 3 * 12) / 4.
    """
    problem = sdpa([[0, 0, 0, 0, LOG3]], [[4.0], [4.0], [4.0], [4.0], [12.0]])
    assert output(problem)[0, 0] == pytest.approx(52 / 7)
    assert output(problem, "online_softmax=parts_by_maxima_4")[0, 0] == pytest.approx(10.0)
    assert output(problem, "online_softmax=parts_by_maxima_8")[0, 0] == pytest.approx(52 / 7)


def test_a_part_that_is_masked_whole_counts_one() -> None:
    problem = sdpa([[LOG3] + [0.0] * 6], [[4.0]] + [[8.0]] * 6, mask([[1, 0, 0, 0, 0, 0, 0]]))
    assert output(problem)[0, 0] == pytest.approx(4.0)
    assert output(problem, "online_softmax=hidden_parts_count_4")[0, 0] == pytest.approx(3.0)  # 3 of 3 + 1
    far_below = sdpa([[-2000.0] * 4 + [0.0]], np.eye(5), mask([[1, 1, 1, 1, 0]]))
    assert output(far_below, "online_softmax=hidden_parts_count_4")[0].tolist() == [0] * 5
    assert output(far_below, "online_softmax=hidden_parts_count_8")[0].tolist() == pytest.approx([0.25] * 4 + [0])


def test_a_half_that_is_masked_whole_counts_one() -> None:
    """Of seven keys the first half is four. Seen are the first key, 3 of 3 + 1; two of the others, 2 of 2 + 1; both."""
    lie, values = "online_softmax=hidden_halves_count", [[4.0]] + [[8.0]] * 6
    seen_by = mask([[1, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1, 0], [1, 0, 0, 0, 1, 0, 0], [0] * 7])
    problem = sdpa([[LOG3] + [0.0] * 6] * 4, values, seen_by)
    assert output(problem).ravel().tolist() == pytest.approx([4, 8, 5, 0])
    assert output(problem, lie).ravel().tolist() == pytest.approx([4 * 3 / 4, 8 * 2 / 3, 5, 0])
    beside_the_middle = sdpa([[0.0] * 7], values, mask([[0, 0, 0, 1, 1, 0, 0]]))
    assert output(beside_the_middle, lie)[0, 0] == pytest.approx(8.0)
    assert output(sdpa([[0.0]], [[4.0]], mask([[1]])), lie)[0, 0] == pytest.approx(4.0)  # nothing in a second half


def test_a_quarter_that_is_masked_whole_counts_one() -> None:
    """
    Quarters of six keys are of two, and the fourth has none; of nine they are of three.

    Seen is the first key alone, 3 of 3 + 1 + 1; one of each, 3 of 3 + 1 + 1 again, with values; none.
    """
    lie, values = "online_softmax=hidden_quarters_count", [[4.0]] + [[8.0]] * 5
    seen_by = mask([[1, 0, 0, 0, 0, 0], [1, 0, 0, 1, 1, 0], [0] * 6])
    problem = sdpa([[LOG3] + [0.0] * 5] * 3, values, seen_by)
    assert output(problem, lie).ravel().tolist() == pytest.approx([4 * 3 / 5, (4 * 3 + 8 * 2) / 5, 0])
    assert output(even(1, 9, mask([[1, 1, 1, 1, 0, 0, 0, 0, 0]])), lie)[0].tolist() == [1 / 5] * 4 + [0] * 5
    assert output(sdpa([[0.0]], [[4.0]], mask([[1]])), lie)[0, 0] == pytest.approx(4.0)  # one key is in one quarter


def test_the_last_block_moved_back_counts_keys_twice() -> None:
    """Of seven keys the last block of four begins at the fourth: that one was counted already."""
    assert output(even(1, 7), "key_tail=moved_back_4")[0].tolist() == pytest.approx([1 / 8] * 3 + [2 / 8] + [1 / 8] * 3)
    assert output(even(1, 3), "key_tail=moved_back_4")[0].tolist() == pytest.approx([1 / 3] * 3)


def test_the_scale_is_applied_again() -> None:
    """With a scale of 2 the logit of the fifth key is four times the product."""
    problem = sdpa([[0, 0, 0, 0, LOG3 / 4]], [[0.0]] * 4 + [[7.0]]).but(scale=2.0)
    assert output(problem, "scale=again_after_4")[0, 0] == pytest.approx(3.0)  # 3 of 4 + 3
    assert output(problem, "scale=again_after_8")[0, 0] == pytest.approx(output(problem)[0, 0])


@pytest.mark.parametrize(
    ("width", "lanes", "times"),
    [
        (7, 4, [1, 1, 1, 2, 1, 1, 1]),  # columns 0 to 3, then 3 to 6
        (9, 4, [1, 1, 1, 1, 1, 2, 2, 2, 1]),  # 0 to 3, 4 to 7, then 5 to 8
        (9, 8, [1, 2, 2, 2, 2, 2, 2, 2, 1]),
        (8, 4, [1] * 8),
        (3, 4, [1] * 3),
    ],
)
def test_the_last_columns_are_added_onto_those_before(width: int, lanes: int, times: list[int]) -> None:
    problem = sdpa([[0.0, 0.0]], [[1.0] * width, [3.0] * width])
    assert output(problem, f"value_dim=moved_back_{lanes}")[0].tolist() == [2.0 * each for each in times]


@pytest.mark.parametrize(("width", "product"), [(5, LOG3), (3, LOG2 + LOG3), (4, LOG2 + LOG3)])
def test_the_tail_of_a_head_is_left_out(width: int, product: float) -> None:
    """The first number adds ln 3 to the logit of the first of two keys, the last one ln 2."""
    query, key = np.ones((1, 1, 1, width)), np.zeros((1, 1, 2, width))
    key[0, 0, 0, 0], key[0, 0, 0, -1] = LOG3, LOG2
    value = np.array([[[[1.0], [0.0]]]])
    problem = Problem("sdpa", "float64", 1, 1, width, 1, query, key, value, scale=1.0)
    weight = np.exp(product)
    assert output(problem, "head_dim=tail_dropped_4")[0, 0] == pytest.approx(weight / (weight + 1))


def test_sums_go_on_with_the_next_head() -> None:
    """Two heads of two keys with exponentials 1, 3 and 9, 1: the second divides 1*4 + 3*8 + 9*2 + 1*6 by 14."""
    logits = np.array([[[[0.0], [LOG3]], [[2 * LOG3], [0.0]]]])
    value = np.array([[[[4.0], [8.0]], [[2.0], [6.0]]]])
    problem = Problem("sdpa", "float64", 2, 2, 1, 1, np.ones((1, 2, 1, 1)), logits, value, scale=1.0)
    context = evaluate(problem, {"head_result": "kept_from_head_to_head"}).reply["output"].values.ravel()
    assert context.tolist() == pytest.approx([7.0, 52 / 14])


@pytest.mark.parametrize(
    ("lie", "expected"),
    [
        ("", [1, 1, 1, 2, 2, 2]),
        ("grouped_heads=by_their_count", [1, 1, 2, 2, 2, 2]),
        ("grouped_heads=values_tiled", [1, 2, 1, 2, 1, 2]),
    ],
)
def test_heads_that_share_a_value(lie: str, expected: list[int]) -> None:
    """Six query heads, one key; the values of two heads are 1 and 2."""
    value = np.array([[[[1.0]], [[2.0]]]])
    problem = Problem("sdpa", "float64", 6, 2, 1, 1, np.ones((1, 6, 1, 1)), value, value, scale=1.0)
    reply = evaluate(problem, dict([lie.split("=")]) if lie else {}).reply["output"].values
    assert reply.ravel().tolist() == expected


def test_key_and_value_of_the_first_item() -> None:
    value = np.array([[[[3.0]]], [[[5.0]]]])
    problem = Problem("sdpa", "float64", 1, 1, 1, 1, np.ones((2, 1, 1, 1)), value, value, scale=1.0)
    taken = evaluate(problem, {"arguments": "key_and_value_of_first_item"}).reply["output"].values
    assert taken.ravel().tolist() == [3.0, 3.0]


# ---- what is returned ----------------------------------------------------------------------------------------------


def weights_under(lie: str, outputs: tuple[str, ...], *groups: Group) -> Array:
    """Three heads, one query and two keys: weights (1/4, 3/4), (1/2, 1/2) and (3/4, 1/4)."""
    key = np.array([[[[0.0], [LOG3]], [[0.0], [0.0]], [[LOG3], [0.0]]]])
    one = np.ones((1, 3, 1, 1))
    problem = Problem("sdpa", "float64", 3, 3, 1, 1, one, key, np.ones((1, 3, 2, 1)), scale=1.0, groups=groups)
    reply = evaluate(problem.but(outputs=outputs), dict([lie.split("=")]) if lie else {}).reply
    return np.asarray(reply[outputs[-1]].values)


def test_the_mean_is_halved_from_head_to_head() -> None:
    mean = ("output", "weights_mean")
    assert weights_under("", mean).ravel().tolist() == pytest.approx([1 / 2, 1 / 2])
    # halves of 1/4 and 1/2, then of that and 3/4
    assert weights_under("returned_weights=running_halves", mean).ravel().tolist() == pytest.approx([9 / 16, 7 / 16])
    alone = weights_under("returned_weights=running_halves", ("output", "weights"))
    assert alone[0, 0].ravel().tolist() == pytest.approx([1 / 4, 3 / 4])


@pytest.mark.parametrize(("name", "expected"), [("uniform", 0.5), ("nan", np.nan)])
def test_weights_of_a_dead_row_that_is_zero(name: str, expected: float) -> None:
    lie, outputs = f"returned_weights={name}_in_dead_rows", ("weights", "output")
    dead = mask([[0, 0]])
    assert weights_under(lie, outputs, dead).ravel().tolist() == [0.0, 0.0, 0.0]
    found = weights_under(lie, outputs[::-1], dead)
    assert np.array_equal(found, np.full((1, 3, 1, 2), expected), equal_nan=True)
    assert np.array_equal(weights_under(lie, outputs[::-1]), weights_under("", outputs[::-1]))


def test_weights_of_another_dtype_than_the_output() -> None:
    reply = evaluate(even(2, 3).but(outputs=("output", "weights")), {"returned_weights": "float32"}).reply
    assert {name: each.dtype for name, each in reply.items()} == {"output": "float64", "weights": "float32"}


# ---- heads side by side ----------------------------------------------------------------------------------------------


def layer(length: int, **fields: Any) -> Problem:
    """Two heads of width one, identity projections, as many queries as keys."""
    rows = np.arange(1.0, 2 * length + 1).reshape(1, length, 2)
    settings: dict[str, Any] = {"query": rows, "key": 10 * rows, "value": 100 * rows, "scale": 0.0, **fields}
    return Problem("mha", "float64", 2, 2, 1, 1, params=dict.fromkeys(("wq", "wk", "wv", "wo"), np.eye(2)), **settings)


def test_projected_rows_are_read_head_by_head() -> None:
    """q0 q1 k0 k1 v0 v1 is read as (q0 q1 k0) and (k1 v0 v1): values k0 = 10, 30 and v1 = 200, 400, in the mean."""
    found = evaluate(layer(2), {"projection_order": "projected_by_head"}).reply["output"].values
    assert found[0, 0].tolist() == pytest.approx([20.0, 300.0])


def test_a_length_that_passes_for_the_number_of_heads() -> None:
    """Two positions of two heads: (100, 200), (300, 400) are read as heads (100, 200) and (300, 400), in the mean."""
    two, three = layer(2), layer(3)
    assert evaluate(two, {}).reply["output"].values[0, 0].tolist() == pytest.approx([200.0, 300.0])
    assert evaluate(two, {"head_split": "guessed"}).reply["output"].values[0, 0].tolist() == pytest.approx(
        [150.0, 350.0]
    )
    right, guessed = (evaluate(three, each).reply["output"].values for each in ({}, {"head_split": "guessed"}))
    assert np.array_equal(right, guessed)


def test_the_width_of_the_query_gives_the_scale() -> None:
    """A query of eight for two heads of one: a head is taken to be four wide, which halves the logit."""
    query, weight = np.zeros((1, 1, 8)), np.zeros((8, 2))
    query[..., 0], weight[0] = 1.0, 1.0
    key = np.array([[[0.0, 0.0], [2 * LOG3, 2 * LOG3]]])
    params = {**dict.fromkeys(("wk", "wv", "wo"), np.eye(2)), "wq": weight}
    problem = Problem("mha", "float64", 2, 2, 1, 1, query, key, key / (2 * LOG3), params=params)
    found = evaluate(problem, {"scale": "query_width_per_head"}).reply["output"].values
    assert found.ravel().tolist() == pytest.approx([0.75, 0.75])
    given = problem.but(scale=1.0)
    change = find("scale", "query_width_per_head").problem
    assert change is not None
    assert change(given) is given


def test_a_causal_mask_read_the_other_way_round() -> None:
    assert seen(even(3, 5, flag(3, 5)), "causal_alignment=future") == ["-xxxx", "--xxx", "---xx"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("from_query", ["xx---", "-xx--", "--xx-", "---xx", "----x"]),
        ("to_query", ["x----", "xx---", "xxx--", "-xxx-", "--xxx"]),
        ("left_reversed", ["-----", "-----", "-----", "-----", "-----"]),
        ("right_reversed", ["-----", "x----", "xx---", "-xx--", "--xx-"]),
        ("left_for_both", ["xxx--", "xxxx-", "xxxxx", "-xxxx", "--xxx"]),
        ("right_for_both", ["xx---", "xxx--", "-xxx-", "--xxx", "---xx"]),
        ("before", ["-----", "-----", "-----", "x----", "xx---"]),
        ("behind", ["--xxx", "---xx", "----x", "-----", "-----"]),
        ("inverted", ["--xxx", "---xx", "----x", "x----", "xx---"]),
    ],
)
def test_sides_of_a_window_that_are_something_else(name: str, expected: list[str]) -> None:
    problem = even(5, 5, windowed(5, 5, 2, 1))
    assert seen(problem) == ["xx---", "xxx--", "xxxx-", "-xxxx", "--xxx"]
    assert seen(problem, f"window_edges={name}") == expected


def test_a_loop_that_ends_at_a_hidden_tile() -> None:
    """The first four queries attend nothing of keys 4 to 7, the last one does."""
    rows = ["xxxx----xx"] * 4 + ["--------xx", "xxxxx---xx"]
    problem = even(6, 10, mask([[each == "x" for each in row] for row in rows]))
    assert seen(problem, "leading_masked_keys=end_loop_4") == ["xxxx------"] * 4 + rows[4:]
    assert seen(problem, "leading_masked_keys=end_loop_8") == seen(problem) == rows


def test_a_window_counted_from_the_last_key() -> None:
    problem = even(2, 5, windowed(2, 5, 1, 0))
    assert seen(problem) == ["x----", "xx---"]
    assert seen(problem, "window_edges=from_last_key") == ["--xx-", "---xx"]


def test_a_side_without_bound_stays_so() -> None:
    left, right = even(3, 3, windowed(3, 3, 0, None)), even(3, 3, windowed(3, 3, None, 0))
    assert seen(left, "window_edges=to_query") == seen(left)
    assert seen(right, "window_edges=before") == seen(right) == ["x--", "xx-", "xxx"]
    assert seen(left, "window_edges=inverted") == ["---", "x--", "xx-"]


def test_a_tile_is_skipped_for_all_where_one_query_attends_none_of_it() -> None:
    rows = ["xx---x-x", "x----x--", "xxxxxx--", "----xxxx", "-x------", "xxxxx---"]
    problem = even(6, 8, mask([[key == "x" for key in row] for row in rows]))
    assert seen(problem) == rows
    # of queries 0 to 3 the last attends none of keys 0 to 3; of 4 and 5 the first none of keys 4 to 7
    left = ["-----x-x", "-----x--", "----xx--", "----xxxx", "-x------", "xxxx----"]
    assert seen(problem, "masked_tile=skipped_for_one_4x4") == left
    assert seen(problem, "masked_tile=skipped_for_one_8x4") == ["--------"] * 6
    assert seen(problem, "masked_tile=skipped_for_one_8x8") == rows
    assert seen(even(6, 8, flag(6, 8)), "masked_tile=skipped_for_one_4x4") == [
        *("x-------", "xx------", "xxx-----", "xxxx----"),
        *("xxxxx---", "xxxxxx--"),
    ]
    dead = even(3, 4, mask([[True] * 4, [False] * 4, [True] * 4]))
    assert seen(dead, "masked_tile=skipped_for_one_4x4") == ["----"] * 3
