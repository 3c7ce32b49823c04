"""Variations of what lies side by side, on problems small enough to be worked by hand."""

from typing import Any

import numpy as np
import pytest

from conformance.oracle.evaluate import evaluate
from conformance.oracle.variations import find
from conformance.spec.problem import Array, Group, Problem

from .test_tiles_by_hand import even as masked_evenly
from .test_tiles_by_hand import seen


def even(values: Any, num_heads: int, *groups: Group, queries: int = 1, **fields: Any) -> Problem:
    """All logits are zero: the output is the mean of the values (batch, num_kv_heads, seq_len_k, 1) attended."""
    array = np.asarray(values, dtype=np.float64)
    batch, kv_heads, _, _ = array.shape
    zeros = np.zeros((batch, num_heads, queries, 1))
    return Problem(
        "sdpa", "float64", num_heads, kv_heads, 1, 1, zeros, np.zeros(array.shape), array, groups=groups, **fields
    )


def output(problem: Problem, **dialect: str) -> Array:
    return evaluate(problem, dialect, "float64").reply["output"].values


def padding(*rows: list[int]) -> Group:
    return Group("padding", ("key_padding",), "bool", np.array(rows, dtype=bool)[:, None, None])


def test_one_of_key_and_value_is_tiled() -> None:
    """Four heads share two: repeated 0 0 1 1, tiled 0 1 0 1. One key each, so the output is the value."""
    problem = even([[[[3.0]], [[5.0]]]], 4)
    assert output(problem).ravel().tolist() == [3, 3, 5, 5]
    assert output(problem, grouped_heads="values_tiled").ravel().tolist() == [3, 5, 3, 5]
    assert output(problem, grouped_heads="keys_tiled").ravel().tolist() == [3, 3, 5, 5]


def test_keys_are_tiled_alone() -> None:
    """
    Query 1; keys 0 and ln 3 in the first head, ln 3 and 0 in the second; values 4 and 8 in both.

    Weights 1/4 and 3/4 make 7, 3/4 and 1/4 make 5: heads 7 7 5 5, with tiled keys 7 5 7 5.
    """
    log3 = float(np.log(3.0))
    key = np.array([[[[0.0], [log3]], [[log3], [0.0]]]])
    value = np.broadcast_to(np.array([[[[4.0], [8.0]]]]), (1, 2, 2, 1))
    problem = Problem("sdpa", "float64", 4, 2, 1, 1, np.ones((1, 4, 1, 1)), key, value, scale=1.0)
    np.testing.assert_allclose(output(problem).ravel(), [7, 7, 5, 5])
    np.testing.assert_allclose(output(problem, grouped_heads="keys_tiled").ravel(), [7, 5, 7, 5])
    np.testing.assert_allclose(output(problem, grouped_heads="values_tiled").ravel(), [7, 7, 5, 5])


def test_results_of_grouped_heads_are_stored_members_first() -> None:
    """
    Three of six heads share values, 3 and 13, then 5 and 15; heads 1 and 5 see the second key, the others the first.

    Heads 0 1 2 and 3 4 5 are two groups: stored as 0 3 1 4 2 5. The weights stay.
    """
    seen = np.array([[1, 0], [0, 1], [1, 0], [1, 0], [1, 0], [0, 1]], dtype=bool)[None, :, None]
    mask = Group("mask", ("attention",), "bool", seen)
    problem = even([[[[3.0], [13.0]], [[5.0], [15.0]]]], 6, mask, outputs=("output", "weights"))
    assert output(problem).ravel().tolist() == [3, 13, 3, 5, 5, 15]
    assert output(problem, head_result="members_first").ravel().tolist() == [3, 5, 13, 5, 3, 15]
    found = evaluate(problem, {"head_result": "members_first"}, "float64").reply["weights"].values
    np.testing.assert_array_equal(found, seen)
    alone = even([[[[3.0]], [[5.0]]]], 2)
    assert output(alone, head_result="members_first").ravel().tolist() == [3, 5]


def test_grouped_heads_of_a_layer_are_merged_members_first() -> None:
    """One key, so that heads 0 to 3 return the values 3, 3, 5, 5; wo is the identity."""
    rows = np.zeros((1, 1, 4)), np.zeros((1, 1, 2)), np.array([[[3.0, 5.0]]])
    params = {"wq": np.eye(4), "wk": np.eye(2), "wv": np.eye(2), "wo": np.eye(4)}
    problem = Problem("mha", "float64", 4, 2, 1, 1, *rows, params=params)
    assert output(problem).ravel().tolist() == [3, 3, 5, 5]
    assert output(problem, head_result="members_first").ravel().tolist() == [3, 5, 3, 5]


def test_packed_keys_and_values_are_read_by_head() -> None:
    """
    Packed k0 k1 v0 v1: head 0 has key k0 and value k1, head 1 has key v0 and value v1.

    One key, so the output is what is taken for the values: the second key, then the second value.
    """
    rows = np.zeros((1, 1, 2)), np.array([[[2.0, 3.0]]]), np.array([[[5.0, 7.0]]])
    params = dict.fromkeys(("wq", "wk", "wv", "wo"), np.eye(2))
    problem = Problem("mha", "float64", 2, 2, 1, 1, *rows, params=params)
    assert output(problem).ravel().tolist() == [5, 7]
    assert output(problem, projection_order="kv_by_head").ravel().tolist() == [3, 7]
    alone = Problem("mha", "float64", 1, 1, 2, 2, *rows, params=params)
    assert output(alone, projection_order="kv_by_head").ravel().tolist() == [5, 7]


def test_the_mean_is_taken_over_items_too() -> None:
    """
    Two items of three heads, all weight on the one key that is not hidden: rows by head 100 100 100 and 010 001 001.

    Unfolded as three of two: means of rows 0, 2, 4 and of rows 1, 3, 5.
    """
    hidden = np.zeros((2, 3, 1, 3), dtype=bool)
    for row, key in enumerate((0, 0, 0, 1, 2, 2)):
        hidden.reshape(6, 3)[row, key] = True
    values = np.zeros((2, 3, 3, 1))
    mask = Group("mask", ("attention",), "bool", hidden)
    problem = even(values, 3, mask, outputs=("output", "weights", "weights_mean"))

    def mean(**dialect: str) -> Array:
        return evaluate(problem, dialect, "float64").reply["weights_mean"].values

    np.testing.assert_allclose(mean()[:, 0], np.array([[1, 0, 0], [0, 1 / 3, 2 / 3]]))
    found = mean(returned_weights="mean_over_items")[:, 0]
    np.testing.assert_allclose(found, np.array([[2, 0, 1], [1, 1, 1]]) / 3)


@pytest.mark.parametrize(("width", "scale"), [(8, 16**-0.5), (16, 0.25), (32, 32**-0.5), (128, 128**-0.5)])
def test_the_scale_of_a_head_that_is_filled_up(width: int, scale: float) -> None:
    """A head of 11 is filled up to 16, 16, 32 and 128; a given scale stays, and so does that of a whole multiple."""
    rng = np.random.default_rng(3)
    query, key, value = (rng.normal(size=(1, 1, length, 11)) for length in (2, 5, 5))
    problem = Problem("sdpa", "float64", 1, 1, 11, 11, query, key, value)
    name = f"head_dim_padded_{width}"
    np.testing.assert_allclose(output(problem, scale=name), output(problem.but(scale=scale)), rtol=1e-13)
    two = output(problem, scale="head_dim_power_of_two")
    np.testing.assert_allclose(two, output(problem.but(scale=0.25)), rtol=1e-13)
    given = problem.but(scale=0.7)
    np.testing.assert_array_equal(output(given, scale=name), output(given))


def test_a_causal_flag_counts_the_keys_that_are_left() -> None:
    """Values 1 2 4 8; the second item lacks its first two keys: its first query sees 4, the others 4 and 8."""
    values = np.broadcast_to(np.array([1.0, 2.0, 4.0, 8.0])[None, None, :, None], (2, 1, 4, 1))
    flag = Group("is_causal", ("causal",), "flag", np.tri(3, 4, dtype=bool)[None, None], offset=0)
    problem = even(values, 1, padding([1, 1, 1, 0], [0, 0, 1, 1]), flag, queries=3)
    np.testing.assert_allclose(output(problem)[..., 0], np.array([[[1, 1.5, 7 / 3]], [[0, 0, 4]]]))
    found = output(problem, causal_alignment="among_attended")[..., 0]
    np.testing.assert_allclose(found, np.array([[[1, 1.5, 7 / 3]], [[4, 6, 6]]]))


def test_a_mask_is_looked_up_in_the_first_item() -> None:
    """Values 1 and 3; the second item lacks the last key. Where the first lacks one too, the mask counts."""
    values = np.broadcast_to(np.array([1.0, 3.0])[None, None, :, None], (2, 1, 2, 1))
    key = {"use[padding]": "ignored_if_first_allows"}
    free = even(values, 1, padding([1, 1], [1, 0]))
    assert output(free).ravel().tolist() == [2, 1]
    assert output(free, **key).ravel().tolist() == [2, 2]
    cut = even(values, 1, padding([0, 1], [1, 0]))
    assert output(cut, **key).ravel().tolist() == output(cut).ravel().tolist() == [3, 1]


def test_a_causal_flag_compares_places_in_one_sequence_of_all_items() -> None:
    """
    Two queries and three keys an item; values 1 2 4. The second item's queries lie at 2 and 3, its keys at 3, 4, 5.

    So its first query sees nothing, and its second the first key alone; the first item is right: 1, then 3/2.
    """
    values = np.tile(np.array([1.0, 2.0, 4.0])[:, None], (2, 1, 1, 1))
    seen = np.tri(2, 3, dtype=bool)[None, None]
    problem = even(values, 1, Group("is_causal", ("causal",), "flag", seen, offset=0), queries=2)
    assert output(problem).ravel().tolist() == [1, 1.5, 1, 1.5]
    assert output(problem, causal_alignment="packed_items").ravel().tolist() == [1, 1.5, 0, 1]
    alone = even(values[:1], 1, Group("is_causal", ("causal",), "flag", seen, offset=0), queries=2)
    assert output(alone, causal_alignment="packed_items").ravel().tolist() == [1, 1.5]


def test_padding_of_the_own_half_is_taken_for_both_halves_of_the_keys() -> None:
    """Of four keys the first and the last are padded: one half is without its first, the other one without its last."""
    padding = Group("lengths", ("key_padding",), "bool", np.array([[[[0, 1, 1, 0]]]], dtype=bool))
    assert seen(masked_evenly(4, 4, padding), "padded_keys=of_own_half") == ["-x-x", "-x-x", "x-x-", "x-x-"]
    odd = masked_evenly(3, 4, padding)
    change = find("padded_keys", "of_own_half").problem
    assert change is not None
    assert change(odd) is odd


# ---- zeros for padding -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "expected"), [("zeroed", 13 / 4), ("zeroed_with_values", 7 / 4)])
def test_zeros_for_padding_are_no_mask(name: str, expected: float) -> None:
    """Logits are ln 2, 0 and, padded, ln 9; values 1, 5 and 6: weights 1/2, 1/4, 1/4 beside a logit of zero."""
    key, value = np.log([[[[2.0], [1.0], [9.0]]]]), np.array([[[[1.0], [5.0], [6.0]]]])
    padding = Group("lengths", ("key_padding",), "bool", np.array([[[[1, 1, 0]]]], dtype=bool))
    problem = Problem("sdpa", "float64", 1, 1, 1, 1, np.ones((1, 1, 1, 1)), key, value, groups=(padding,), scale=1.0)
    assert evaluate(problem).reply["output"].values.ravel() == pytest.approx([7 / 3])
    assert evaluate(problem, {"padded_keys": name}).reply["output"].values.ravel() == pytest.approx([expected])
