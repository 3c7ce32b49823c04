"""Heads, halves and pages that are put together wrongly, on problems small enough to be worked by hand."""

import numpy as np
import pytest

from conformance.oracle.evaluate import evaluate
from conformance.oracle.variations import candidates
from conformance.spec.problem import Array, Group, Problem

from .test_tiles_by_hand import even, flag, mask, output, seen

LOG4, LOG9 = float(np.log(4.0)), float(np.log(9.0))

# ---- means over heads --------------------------------------------------------------------------------------------


def two_heads(*outputs: str) -> Problem:
    """One query, two keys of logits ln 4 and 0 in the first head, 0 and ln 9 in the second."""
    key = np.array([[[[LOG4], [0.0]], [[0.0], [LOG9]]]])
    return Problem("sdpa", "float64", 2, 2, 1, 1, np.ones((1, 2, 1, 1)), key, key, scale=1.0, outputs=outputs)


def weights(problem: Problem, **dialect: str) -> Array:
    return evaluate(problem, dialect).reply[problem.outputs[-1]].values


def test_the_softmax_of_the_mean_of_the_logits_is_no_mean_of_weights() -> None:
    """Weights 4/5 1/5 and 1/10 9/10 have the mean 9/20 11/20; logits ln 2 and ln 3 on average make 2/5 3/5."""
    asked, lie = two_heads("output", "weights_mean"), {"returned_weights": "of_mean_logits"}
    assert weights(asked).ravel() == pytest.approx([9 / 20, 11 / 20])
    assert weights(asked, **lie).ravel() == pytest.approx([2 / 5, 3 / 5])
    assert weights(two_heads("output", "weights"), **lie).ravel() == pytest.approx([4 / 5, 1 / 5, 1 / 10, 9 / 10])
    plain = two_heads("weights_mean", "output")
    assert np.array_equal(weights(plain, **lie), weights(plain))


def test_a_key_that_one_head_masks_has_no_mean_of_logits() -> None:
    lie = {"returned_weights": "of_mean_logits"}
    one = two_heads("weights_mean").but(groups=(mask(np.array([[[[1, 0]], [[1, 1]]]])),))
    assert weights(one).ravel() == pytest.approx([11 / 20, 9 / 20])
    assert weights(one, **lie).ravel().tolist() == [1, 0]
    none = two_heads("weights_mean").but(groups=(mask(np.array([[[[1, 0]], [[0, 1]]]])),))
    assert weights(none, **lie).ravel().tolist() == [0, 0]


def test_calls_without_a_mean_of_several_heads_are_left_alone() -> None:
    mean = two_heads("output", "weights_mean")
    one = mean.but(query=mean.query[:, :1], key=mean.key[:, :1], value=mean.value[:, :1], num_heads=1, num_kv_heads=1)
    asked = ["of_mean_logits" in {row.name for row in candidates(each)} for each in (mean, two_heads("weights"), one)]
    assert asked == [True, False, False]


# ---- halves of a sequence ----------------------------------------------------------------------------------------


def test_a_causal_flag_begins_anew_in_the_second_half() -> None:
    """Of 5 queries the first half has 3, of 8 keys 4, of 3 keys 2."""
    lie = "causal_alignment=anew_in_second_half"
    assert seen(even(5, 8, flag(5, 8)), lie) == ["x-------", "xx------", "xxx-----", "xxxxx---", "xxxxxx--"]
    assert seen(even(5, 3, flag(5, 3)), lie) == ["x--", "xx-", "xx-", "xxx", "xxx"]
    assert seen(even(7, 3, flag(7, 3)), lie) == ["x--", "xx-", "xx-", "xx-", "xxx", "xxx", "xxx"]
    for other in (even(5, 5, flag(5, 5)), even(1, 8, flag(1, 8)), even(3, 5, flag(3, 5, 2)), even(4, 1, flag(4, 1))):
        assert np.array_equal(output(other, lie), output(other))


# ---- pages of several items --------------------------------------------------------------------------------------


def items(*values: list[float], queries: int = 1) -> Problem:
    """One item for each list, of one head: all logits are zero, and the output is the mean of the values."""
    array = np.array(values)[:, None, :, None]
    zeros = np.zeros((len(values), 1, queries, 1))
    return Problem("sdpa", "float64", 1, 1, 1, 1, zeros, np.zeros(array.shape), array)


def means(problem: Problem, lie: str) -> list[float]:
    values = evaluate(problem, dict([lie.split("=")])).reply["output"].values
    return [float(each) for each in values[:, 0, 0, 0]]


def test_an_item_begins_where_the_last_page_of_the_one_before_does() -> None:
    """Of 6 keys 4 are in whole pages of 4: the last two are the first two of the next item; the last item is right."""
    problem = items([1, 1, 1, 1, 1, 1], [3, 7, 3, 7, 3, 7], [2, 4, 6, 8, 10, 12])
    assert means(problem, "arguments=pages_overlap_4") == pytest.approx([(4 + 3 + 7) / 6, (20 + 2 + 4) / 6, 7])
    assert means(problem, "arguments=pages_overlap_8") == pytest.approx(
        [7, 7, 7]
    )  # no page is whole: one place for all
    one = items([1, 2, 3, 4, 5, 6])
    assert means(one, "arguments=pages_overlap_4") == means(one, "arguments=pages_overlap_16") == [3.5]


def test_keys_lie_in_pages_as_values_do() -> None:
    """Of 5 keys the last is the first of the next item, which has a logit of ln 4 and a value of 8."""
    key, value = np.zeros((2, 1, 5, 1)), np.zeros((2, 1, 5, 1))
    key[1, 0, 0], value[1, 0, 0] = LOG4, 8.0
    problem = Problem("sdpa", "float64", 1, 1, 1, 1, np.ones((2, 1, 1, 1)), key, value, scale=1.0)
    assert means(problem, "arguments=pages_overlap_4") == pytest.approx([4.0, 4.0])
    assert means(problem, "scale=none") == pytest.approx([0.0, 4.0])


def test_whole_pages_and_single_items_are_left_alone() -> None:
    def named(problem: Problem) -> set[str]:
        return {row.name for row in candidates(problem) if row.name.startswith("pages_overlap")}

    assert named(items([0.0] * 8, [0.0] * 8)) == {"pages_overlap_16"}
    assert named(items([0.0] * 7)) == set()


# ---- flags that end with an item ---------------------------------------------------------------------------------


def test_a_causal_flag_ends_with_the_last_key_of_an_item() -> None:
    """
    Two queries, four keys: the second sees all. Of items with 4, 3 and 1 keys it sees 4, 3 and 1 of the first ones.

    Values 1 2 4 8: means of 1 2 4 and of all; of the first two and the first three; of none and of the first.
    """
    lie = {"causal_alignment": "end_of_each_item"}
    kept = np.array([[1, 1, 1, 1], [1, 1, 1, 0], [1, 0, 0, 0]], dtype=bool)
    padding = Group("padding", ("key_padding",), "bool", kept[:, None, None])
    problem = items(*[[1.0, 2.0, 4.0, 8.0]] * 3, queries=2)
    flagged = problem.but(groups=(padding, flag(2, 4, 2)))

    def rows(each: Problem, **dialect: str) -> list[float]:
        return [float(mean) for mean in evaluate(each, dialect).reply["output"].values.ravel()]

    assert rows(flagged) == pytest.approx([7 / 3, 15 / 4, 7 / 3, 7 / 3, 1, 1])
    assert rows(flagged, **lie) == pytest.approx([7 / 3, 15 / 4, 3 / 2, 7 / 3, 0, 1])
    for groups in ((padding, flag(2, 4)), (padding, flag(2, 4, 1)), (flag(2, 4, 2),), (padding,)):
        assert rows(problem.but(groups=groups), **lie) == rows(problem.but(groups=groups))


def test_an_item_whose_first_keys_are_padding_loses_its_last() -> None:
    """Keys 2 and 3 of 4 are left: two of them, so that the second of two queries sees up to key 1, which is padding."""
    padding = Group("padding", ("key_padding",), "bool", np.array([0, 0, 1, 1], dtype=bool)[None, None, None])
    assert seen(even(2, 4, padding, flag(2, 4, 2))) == ["--x-", "--xx"]
    assert seen(even(2, 4, padding, flag(2, 4, 2)), "causal_alignment=end_of_each_item") == ["----", "----"]
