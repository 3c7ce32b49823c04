"""Variations of kernels that look at whole tiles: the keys that each query sees, drawn by hand, and rows worked out."""

from typing import Any

import numpy as np
import pytest

from conformance.oracle.evaluate import evaluate
from conformance.oracle.other_masks import causal, window
from conformance.spec.problem import Array, Group, Problem

LOG2 = float(np.log(2.0))
LOG3 = float(np.log(3.0))


def sdpa(logits: Any, value: Any, *groups: Group) -> Problem:
    """One item and head; the logits (seq_len_q, seq_len_k) are the key, which every query picks its row of."""
    products = np.asarray(logits, dtype=np.float64)
    queries = len(products)
    arrays = (np.eye(queries)[None, None], products.T[None, None], np.asarray(value, dtype=np.float64)[None, None])
    return Problem("sdpa", "float64", 1, 1, queries, arrays[2].shape[-1], *arrays, groups=groups, scale=1.0)


def even(queries: int, keys: int, *groups: Group) -> Problem:
    """All logits are zero, and values are such that the output is the weights."""
    return sdpa(np.zeros((queries, keys)), np.eye(keys), *groups)


def flag(queries: int, keys: int, offset: int = 0) -> Group:
    return Group("is_causal", ("causal",), "flag", causal(queries, keys, offset), offset=offset)


def mask(values: Any, element: str = "bool") -> Group:
    array = np.asarray(values, dtype=bool if element == "bool" else np.float64)
    return Group("mask", ("attention",), element, array if array.ndim == 4 else array[None, None])


def output(problem: Problem, lie: str = "") -> Array:
    dialect = dict([lie.split("=")]) if lie else {}
    return np.asarray(evaluate(problem, dialect).reply["output"].values[0, 0])


def seen(problem: Problem, lie: str = "") -> list[str]:
    """One word for each query: x for a key with weight, - for one without."""
    return ["".join("x" if weight else "-" for weight in row) for row in output(problem, lie)]


# ---- causal flags ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lie", "expected"),
    [
        ("causal_query_tile=first_4", ["x------", "x------", "x------", "x------", "xxxxx--"]),
        ("causal_query_tile=last_4", ["xxxx---", "xxxx---", "xxxx---", "xxxx---", "xxxxx--"]),
        ("causal_query_tile=last_8", ["xxxxx--"] * 5),
        ("causal_query_tile=moved_back_4", ["x------", "xxxxx--", "xxxxxx-", "xxxxxxx", "xxxxxxx"]),
        ("causal_query_tile=restarts_4", ["x------", "xx-----", "xxx----", "xxxx---", "x------"]),
        ("causal_query_tile=unmasked_4x4", ["xxxx---", "xxxx---", "xxxx---", "xxxx---", "xxxxx--"]),
        ("causal_query_tile=unmasked_8x4", ["xxxx---", "xxxx---", "xxxx---", "xxxx---", "xxxxx--"]),
        ("causal_query_tile=unmasked_8x8", ["x------", "xx-----", "xxx----", "xxxx---", "xxxxx--"]),
        ("causal_key_tile=shown_4", ["xxxx---", "xxxx---", "xxxx---", "xxxx---", "xxxxxxx"]),
        ("causal_key_tile=hidden_4", ["-------", "-------", "-------", "xxxx---", "xxxx---"]),
        ("causal_alignment=key_in_block_4", ["x---x--", "xx--xx-", "xxx-xxx", "xxxxxxx", "xxxxxxx"]),
    ],
)
def test_a_causal_flag_by_tiles(lie: str, expected: list[str]) -> None:
    problem = even(5, 7, flag(5, 7))
    assert seen(problem) == ["x------", "xx-----", "xxx----", "xxxx---", "xxxxx--"]
    assert seen(problem, lie) == expected
    assert seen(even(5, 7, mask(np.tri(5, 7))), lie) == seen(problem)  # a mask is no flag


def test_tiles_count_from_the_first_query_wherever_the_diagonal_begins() -> None:
    problem = even(3, 5, flag(3, 5, 1))
    assert seen(problem) == ["xx---", "xxx--", "xxxx-"]
    assert seen(problem, "causal_query_tile=last_4") == ["xxxx-"] * 3
    assert seen(problem, "causal_key_tile=shown_4") == ["xxxx-"] * 3
    assert seen(problem, "causal_query_tile=moved_back_4") == seen(problem)  # one tile, which stays


def test_tiles_of_queries_and_of_keys_are_rounded_together() -> None:
    problem = even(5, 7, flag(5, 7))
    both = evaluate(problem, {"causal_key_tile": "shown_4", "causal_query_tile": "first_4"}).reply["output"].values
    assert [int((row > 0).sum()) for row in both[0, 0]] == [4, 4, 4, 4, 7]


# ---- windows and masks -----------------------------------------------------------------------------------------


def test_a_window_begins_at_the_next_tile() -> None:
    edges = (3, 0)
    group = Group("window", ("window",), "flag", window(7, 7, *edges), window=edges)
    right = ["x------", "xx-----", "xxx----", "xxxx---", "-xxxx--", "--xxxx-", "---xxxx"]
    assert seen(even(7, 7, group)) == right
    # queries 4 to 6 would begin with key 1, so they begin with key 4
    assert seen(even(7, 7, group), "window_edges=from_next_tile_4") == [*right[:4], "----x--", "----xx-", "----xxx"]
    assert seen(even(7, 7, group), "window_edges=from_next_tile_8") == right


def test_a_window_that_leaves_the_keys_shows_none_or_all() -> None:
    edges = (2, 1)
    group = Group("window", ("window",), "flag", window(5, 6, *edges), window=edges)
    right = ["xx----", "xxx---", "xxxx--", "-xxxx-", "--xxxx"]
    assert seen(even(5, 6, group)) == right
    assert seen(even(5, 6, group), "window_edges=begins_before_keys_none") == ["------"] * 2 + right[2:]
    assert seen(even(5, 6, group), "window_edges=begins_before_keys_all") == ["xxxxxx"] * 2 + right[2:]
    assert seen(even(5, 6, group), "window_edges=ends_behind_keys_none") == right  # query 4 sees the last key
    short = Group("window", ("window",), "flag", window(5, 4, *edges), window=edges)
    fewer = ["xx--", "xxx-", "xxxx", "-xxx", "--xx"]
    assert seen(even(5, 4, short)) == fewer
    assert seen(even(5, 4, short), "window_edges=ends_behind_keys_none") == [*fewer[:3], "----", "----"]
    assert seen(even(5, 4, short), "window_edges=ends_behind_keys_all") == [*fewer[:3], "xxxx", "xxxx"]
    open_ = Group("window", ("window",), "flag", window(5, 4, None, None), window=(None, None))
    assert seen(even(5, 4, open_), "window_edges=begins_before_keys_none") == ["xxxx"] * 5


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
    per_item = Group("mask", ("attention",), "int", np.array(column, dtype=np.float64)[None, None])
    assert seen(even(3, 3, per_item), lie) == ["xxx", "-xx", "xxx"]


def test_rows_of_a_mask_begin_again_with_every_tile_of_queries() -> None:
    rows = np.tri(7)
    triangle = ["x------", "xx-----", "xxx----", "xxxx---", "xxxxx--", "xxxxxx-", "xxxxxxx"]
    assert seen(even(7, 7, mask(rows)), "mask_rows=again_4") == [*triangle[:4], *triangle[:3]]
    assert seen(even(7, 7, mask(rows)), "mask_rows=again_8") == triangle
    assert seen(even(7, 7, mask(rows[2:3])), "mask_rows=again_4") == ["xxx----"] * 7  # one row for all
    assert seen(even(7, 7, flag(7, 7)), "mask_rows=again_4") == triangle  # a flag has no rows
    added = mask(np.where(rows, 0.0, -np.inf), "float")
    assert seen(even(7, 7, added), "mask_rows=again_4") == [*triangle[:4], *triangle[:3]]


def test_bits_of_a_mask_are_read_in_the_other_order() -> None:
    lie = "mask_axes[mask]=bits_reversed"
    row = [[1, 1, 0, 1, 1, 1, 1, 0, 1, 1, 0]]
    assert seen(even(1, 11, mask(row)), lie) == ["-xxxx-xx" + "---"]
    assert seen(even(1, 11, mask([[1]])), lie) == ["xxxxxxxx" + "---"]
    # keys 3, 4 of five read each other, the first three what lies behind the last
    assert seen(even(1, 5, mask([[1, 1, 1, 0, 1]])), lie) == ["---x-"]


def test_a_tile_of_a_mask_is_judged_by_its_corners() -> None:
    hole = [[1, 1, 1, 1, 0], [1, 0, 1, 1, 1], [1, 1, 1, 1, 0]]
    assert seen(even(3, 5, mask(hole)), "mask_axes[mask]=corners_4") == ["xxxx-", "xxxx-", "xxxx-"]
    mixed = [[1, 1, 1, 0, 0], [1, 0, 1, 1, 1], [1, 1, 1, 1, 0]]
    assert seen(even(3, 5, mask(mixed)), "mask_axes[mask]=corners_4") == ["xxx--", "x-xx-", "xxxx-"]
    assert seen(even(3, 5, mask(mixed)), "mask_axes[mask]=corners_8") == ["xxx--", "x-xxx", "xxxx-"]


# ---- keys in blocks --------------------------------------------------------------------------------------------


def test_a_last_block_that_is_full_is_dropped() -> None:
    assert seen(even(1, 8), "key_tail=whole_dropped_4") == ["xxxx----"]
    assert seen(even(1, 8), "key_tail=whole_dropped_8") == ["--------"]
    assert seen(even(1, 7), "key_tail=whole_dropped_4") == ["xxxxxxx"]


def test_parts_are_combined_without_their_maxima() -> None:
    # the maxima of keys 0 to 3 and of key 4 are ln 3 and 0: weights 1, 1/3, 1/3, 1/3 and 1
    problem = sdpa([[LOG3, 0.0, 0.0, 0.0, 0.0]], [[3.0], [0.0], [0.0], [0.0], [5.0]])
    assert output(problem)[0, 0] == pytest.approx((9 + 5) / 7)
    assert output(problem, "online_softmax=parts_without_maxima_4")[0, 0] == pytest.approx((3 + 5) / 3)
    assert output(problem, "online_softmax=parts_without_maxima_8")[0, 0] == pytest.approx(2.0)
    assert output(problem, "online_softmax=nothing_rescaled_4")[0, 0] == pytest.approx(2.0)  # it does not rise


def test_weights_are_returned_under_the_maximum_of_their_time() -> None:
    """Logits 0 0 0 0 and ln 2: weights 1/6 and 1/3; the maximum rises by ln 2 after the first block of 4."""
    problem = sdpa([[0.0, 0.0, 0.0, 0.0, LOG2]], np.eye(5)).but(outputs=("output", "weights"))

    def weights(block: int) -> Array:
        reply = evaluate(problem, {"returned_weights": f"running_maximum_{block}"}).reply
        np.testing.assert_allclose(reply["output"].values.ravel(), [1 / 6] * 4 + [1 / 3])
        return reply["weights"].values.ravel()

    np.testing.assert_allclose(weights(4), [1 / 3] * 5)
    np.testing.assert_allclose(weights(8), [1 / 6] * 4 + [1 / 3])


def test_a_maximum_that_rises_a_little_does_not_rescale() -> None:
    def rising(*tops: float) -> Problem:
        """Four keys of each logit, in their order, the first of each with a value."""
        return sdpa([np.repeat(tops, 4)], [[2.0 * (key % 4 == 0) * 5.0 ** (key // 4)] for key in range(4 * len(tops))])

    lie = "online_softmax=lazily_rescaled_4"
    # a rise by 2 is not followed, one by 512 is; sums are of 4 keys each
    assert output(rising(0.0, LOG2), lie)[0, 0] == pytest.approx((2 + 10) / 8)
    assert output(rising(0.0, 9 * LOG2), lie)[0, 0] == pytest.approx((2 / 512 + 10) / (4 / 512 + 4))
    both = (2 / 512 + 10 / 512 + 50) / (8 / 512 + 4)
    assert output(rising(0.0, LOG2, 10 * LOG2), lie)[0, 0] == pytest.approx(both)
    # masked at first: -inf to 0 is no small rise
    late = sdpa([[-np.inf] * 4 + [0.0]], np.eye(5))
    assert output(late, lie).tolist() == [[0.0, 0.0, 0.0, 0.0, 1.0]]


def test_queries_of_a_tile_are_rescaled_together() -> None:
    rises = np.array([1.0] * 16 + [9.0] + [1.0] * 3)  # of the 17th query it is large enough
    logits = np.concatenate([np.zeros((20, 16)), np.repeat(rises[:, None], 16, axis=1)], axis=1)
    problem = sdpa(logits, np.repeat([[1.0], [0.0]], 16, axis=0))
    right = 1 / (1 + np.exp(rises))
    np.testing.assert_allclose(output(problem).ravel(), right)
    alone = np.where(rises > 8, right, 0.5)
    np.testing.assert_allclose(output(problem, "online_softmax=lazily_rescaled_by_e_16").ravel(), alone)
    by_16 = np.where(np.arange(20) < 16, 0.5, right)
    np.testing.assert_allclose(output(problem, "online_softmax=lazily_rescaled_by_e_16x16").ravel(), by_16)
    np.testing.assert_allclose(output(problem, "online_softmax=lazily_rescaled_16x16").ravel(), by_16)
    np.testing.assert_allclose(output(problem, "online_softmax=lazily_rescaled_by_e_32x16").ravel(), right)
    np.testing.assert_allclose(output(problem, "online_softmax=lazily_rescaled_by_e_16x32").ravel(), right)


def test_a_query_that_sees_nothing_in_the_first_block_is_no_number() -> None:
    rows = [[0, 0, 0, 0, 1], [0, 0, 0, 1, 1], [0, 0, 0, 0, 0]]
    found = output(even(3, 5, mask(rows)), "leading_masked_keys=nan_4")
    assert np.isnan(found[0]).all()
    assert found[1:].tolist() == [[0.0, 0.0, 0.0, 0.5, 0.5], [0.0] * 5]
    assert np.isfinite(output(even(3, 5, mask(rows)), "leading_masked_keys=nan_8")).all()


def test_a_row_that_underflows_counts_as_fully_masked() -> None:
    low, high = (sdpa([[logit, logit]], [[4.0], [8.0]]) for logit in (-2000.0, 2000.0))
    assert output(low).tolist() == [[6.0]]
    assert output(low, "softmax_maximum=missing_guarded").tolist() == [[0.0]]
    assert np.isnan(output(low, "softmax_maximum=missing")).all()
    assert np.isnan(output(high, "softmax_maximum=missing_guarded")).all()


def test_infinity_that_is_attended_with_no_weight_left_is_no_number() -> None:
    problem = sdpa([[0.0, -2000.0]], [[4.0], [np.inf]], mask([[1, 0]]))
    assert output(problem).tolist() == [[4.0]]
    assert np.isnan(output(problem, "use[mask]=ignored")).all()
