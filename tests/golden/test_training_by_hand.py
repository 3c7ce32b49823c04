"""Variations of kernels for training, on problems small enough to be worked by hand or by a loop of its own."""

from typing import Any

import numpy as np
import pytest

from conformance.oracle.evaluate import evaluate
from conformance.spec.problem import Array, Group, Problem

from .test_loops_by_hand import windowed
from .test_tiles_by_hand import even, flag, mask, output, sdpa

LOG2 = float(np.log(2.0))
LOG3 = float(np.log(3.0))


# ---- widths of a head --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "filled"), [(3, 16), (16, 16), (17, 32), (40, 64), (64, 64)])
def test_the_scale_of_a_power_of_two_that_is_not_below_16(width: int, filled: int) -> None:
    rng = np.random.default_rng(5)
    query, key, value = (rng.normal(size=(1, 1, length, width)) for length in (2, 5, 5))
    problem = Problem("sdpa", "float64", 1, 1, width, width, query, key, value)
    found = output(problem, "scale=head_dim_power_of_two_from_16")
    np.testing.assert_allclose(found, output(problem.but(scale=filled**-0.5)), rtol=1e-13)
    given = problem.but(scale=0.7)
    np.testing.assert_array_equal(output(given, "scale=head_dim_power_of_two_from_16"), output(given))


@pytest.mark.parametrize(("width", "product"), [(3, 0.0), (4, LOG2 + LOG3), (5, LOG3), (9, LOG3)])
def test_whole_parts_of_a_head_alone_are_multiplied(width: int, product: float) -> None:
    """The first number adds ln 3 to the logit of the first of two keys, the last one ln 2."""
    query, key = np.ones((1, 1, 1, width)), np.zeros((1, 1, 2, width))
    key[0, 0, 0, 0], key[0, 0, 0, -1] = LOG3, LOG2
    value = np.array([[[[1.0], [0.0]]]])
    problem = Problem("sdpa", "float64", 1, 1, width, 1, query, key, value, scale=1.0)
    weight = np.exp(product)
    assert output(problem, "head_dim=whole_parts_4")[0, 0] == pytest.approx(weight / (weight + 1))


def wider_values() -> Array:
    """Four query heads of two numbers share two keys, of one position each; values of three numbers are 1 to 6."""
    value = np.arange(1.0, 7.0).reshape(1, 2, 1, 3)
    problem = Problem("sdpa", "float64", 4, 2, 2, 3, np.ones((1, 4, 1, 2)), np.ones((1, 2, 1, 2)), value)
    return evaluate(problem, {"value_dim": "of_keys"}).reply["output"].values[0, :, 0]


def test_values_are_read_as_wide_as_keys() -> None:
    assert wider_values().tolist() == [[1, 2, 0], [1, 2, 0], [4, 5, 0], [4, 5, 0]]


def test_projected_values_are_read_as_wide_as_keys() -> None:
    """Two heads of one number; values of two are 1 2 and 3 4, with a bias of 10."""
    rows = np.zeros((1, 1, 2)), np.zeros((1, 1, 2)), np.array([[[1.0, 2.0, 3.0, 4.0]]])
    params = {"wq": np.eye(2), "wk": np.eye(2), "wv": np.eye(4), "bv": np.full(4, 10.0), "wo": np.eye(4)}
    problem = Problem("mha", "float64", 2, 2, 1, 2, *rows, params=params)
    assert evaluate(problem, {}).reply["output"].values.ravel().tolist() == [11, 12, 13, 14]
    found = evaluate(problem, {"value_dim": "of_keys"}).reply["output"].values
    assert found.ravel().tolist() == [11, 0, 13, 0]


# ---- heads of a group --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("interleaved_rows", ["x-----", "xxx---", "xxxxx-"], ["xx----", "xxxx--", "xxxxxx"]),
        ("interleaved_by_head", ["x-----", "xxx---", "xx----"], ["xx----", "x-----", "xxx---"]),
    ],
)
def test_positions_of_queries_that_are_packed_by_position(name: str, first: list[str], second: list[str]) -> None:
    """Two heads share six keys; rows 0 to 5 are query 0 of both, query 1 of both, query 2 of both."""
    eye, nothing = np.eye(6)[None, None], np.zeros((1, 2, 3, 1))
    problem = Problem("sdpa", "float64", 2, 1, 1, 6, nothing, np.zeros((1, 1, 6, 1)), eye, groups=(flag(3, 6),))
    heads = evaluate(problem, {"causal_alignment": name}).reply["output"].values[0]
    assert [["".join("x" if weight else "-" for weight in row) for row in head] for head in heads] == [first, second]


def test_a_mask_is_taken_from_the_head_of_the_number_of_the_shared_one() -> None:
    """Six heads share two: heads 0, 1, 2 read the mask of head 0, heads 3, 4, 5 that of head 1; each shows one key."""
    group = mask(np.eye(6)[None, :, None])
    value = np.arange(1.0, 13.0).reshape(1, 2, 6, 1)
    problem = Problem("sdpa", "float64", 6, 2, 1, 1, np.ones((1, 6, 1, 1)), value, value, groups=(group,), scale=1.0)
    assert evaluate(problem, {}).reply["output"].values.ravel().tolist() == [1, 2, 3, 10, 11, 12]
    found = evaluate(problem, {"mask_axes[mask]": "of_shared_head"}).reply["output"].values
    assert found.ravel().tolist() == [1, 1, 1, 8, 8, 8]
    found = evaluate(problem, {"mask_axes[mask]": "of_first_in_group"}).reply["output"].values
    assert found.ravel().tolist() == [1, 1, 1, 10, 10, 10]  # heads 0 and 3 are the first of their groups


def test_the_first_head_tells_which_tiles_are_looked_at() -> None:
    """Its second query sees the last key alone: the other head loses keys 0 to 3, for its first query as well."""
    first = np.array([[0, 0, 0, 0, 1], [0, 0, 0, 0, 1]])
    second = np.array([[1, 0, 0, 0, 1], [0, 1, 1, 0, 0]])
    group = mask(np.stack([first, second])[None])
    nothing, eye = np.zeros((1, 2, 5, 1)), np.broadcast_to(np.eye(5), (1, 2, 5, 5))
    problem = Problem("sdpa", "float64", 2, 2, 1, 5, nothing[:, :, :2], nothing, eye, groups=(group,))

    def of_second(name: str) -> Any:
        return evaluate(problem, {"mask_axes[mask]": name}).reply["output"].values[0, 1].tolist()

    assert of_second("empty_tiles_of_first_head_1x4") == [[0, 0, 0, 0, 1], [0, 0, 0, 0, 0]]
    assert of_second("empty_tiles_of_first_head_4x4") == [[0, 0, 0, 0, 1], [0, 0, 0, 0, 0]]
    assert of_second("empty_tiles_of_first_head_1x8") == [[0.5, 0, 0, 0, 0.5], [0, 0.5, 0.5, 0, 0]]
    first[0, 0] = 1
    problem = problem.but(groups=(mask(np.stack([first, second])[None]),))
    assert of_second("empty_tiles_of_first_head_1x4") == [[0.5, 0, 0, 0, 0.5], [0, 0, 0, 0, 0]]
    assert of_second("empty_tiles_of_first_head_4x4") == [[0.5, 0, 0, 0, 0.5], [0, 0.5, 0.5, 0, 0]]


# ---- sums that are put together ----------------------------------------------------------------------------------


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
    """Logits 0 0 0 0 and ln 2: sums of 4, with values of 4, and of 2, with a value of 7."""
    problem = sdpa([[0, 0, 0, 0, LOG2]], [[4.0], [4.0], [4.0], [4.0], [7.0]])
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
        (7.0, "lazily_rescaled_by_e_4", True),
        (9.0, "lazily_rescaled_by_e_4", False),
        (3.0, "lazily_rescaled_to_4_4", True),
        (5.0, "lazily_rescaled_to_4_4", False),
        (3.0, "lazily_rescaled_to_4_8", False),
        (7.0, "lazily_rescaled_by_e_8", False),
    ],
)
def test_a_rise_that_is_small_enough_is_forgotten(rise: float, lie: str, *, kept: bool) -> None:
    """Four keys of logit 0, one that is higher: where sums keep their scale each of the five weighs 1."""
    problem = sdpa([[0, 0, 0, 0, rise]], [[0.0]] * 4 + [[1.0]])
    weight = 1.0 if kept else np.exp(rise)
    assert output(problem, f"online_softmax={lie}")[0, 0] == pytest.approx(weight / (weight + 4))


def test_zeros_behind_the_keys_are_left_to_the_flag() -> None:
    """Five keys of logit 0 are eight: query i weighs 1 / (i + 1) what it sees, and of query 7 on there are eight."""
    problem = even(9, 5, flag(9, 5))
    assert output(problem).sum(axis=-1).tolist() == pytest.approx([1.0] * 9)
    found = output(problem, "key_tail=flagged_zeros_4")
    assert found.sum(axis=-1).tolist() == pytest.approx([1.0] * 5 + [5 / 6, 5 / 7, 5 / 8, 5 / 8])
    assert output(problem, "key_tail=flagged_zeros_16")[8].tolist() == pytest.approx([1 / 9] * 5)
    for other in (even(9, 5), even(9, 5, mask(np.tri(9, 5))), even(3, 5, flag(3, 5, 2)), even(9, 4, flag(9, 4))):
        assert np.array_equal(output(other, "key_tail=flagged_zeros_4"), output(other))


def test_zeros_behind_the_keys_are_masked_as_the_last_key() -> None:
    """Five keys of logit 0 are eight: three more count where the fifth is seen, by every mask, and by flags."""
    lie = "key_tail=zeros_as_the_last_4"
    seen_by = mask([[1, 1, 1, 1, 1], [1, 1, 1, 1, 0], [0, 0, 0, 0, 1], [0, 0, 0, 0, 0]])
    sums: list[tuple[tuple[Group, ...], list[float]]] = [
        ((seen_by,), [5 / 8, 1, 1 / 4, 0]),
        ((seen_by, flag(4, 5, 4)), [1, 1, 1 / 3, 0]),  # query 0 is shown places to 4, query 2 to 6
        ((seen_by, windowed(4, 5, 4, 4)), [1, 1, 1 / 3, 0]),
        ((mask([[0, 0, 0, 0, LOG2]] * 4, "float"),), [6 / 12] * 4),
        ((mask([[0, 0, 0, 0, -np.inf]] * 4, "float"),), [1] * 4),
    ]
    for groups, expected in sums:
        assert output(even(4, 5, *groups), lie).sum(axis=-1).tolist() == pytest.approx(expected)
    for other in (even(4, 5), even(9, 5, flag(9, 5)), even(4, 4, mask(np.ones((4, 4))))):
        assert np.array_equal(output(other, lie), output(other))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sum_kept_4x1", [1, 1, 1, 1, 1 / 2, 1 / 3, 1 / 2, 1 / 2, 1 / 2, 1 / 4]),
        ("sum_kept_8x1", [1, 1, 1, 1, 1, 1 / 2, 1 / 2, 1 / 2, 1 / 2, 1 / 2]),
        ("sum_kept_4x2", [1, 1, 1, 1, 1, 1 / 2, 1 / 2, 1 / 2, 1 / 2, 1 / 2]),
        ("sum_kept_8x2", [1] * 10),
    ],
)
def test_the_sum_of_another_tile_is_kept(name: str, expected: list[float]) -> None:
    """Two heads of five queries, one key: tiles are rows 0 to 3 and row 4 of the first head, then of the second."""
    one = np.ones((1, 2, 1, 1))
    problem = Problem("sdpa", "float64", 2, 2, 1, 1, np.zeros((1, 2, 5, 1)), one, one)
    found = evaluate(problem, {"head_result": name}).reply["output"].values
    assert found.ravel().tolist() == pytest.approx(expected)


def test_what_is_kept_counts_by_its_logits_and_not_where_nothing_is_attended() -> None:
    """Exponentials 3 and 1, then none, then 2: sums of 4, of 4 and of 6, by the value of the head alone."""
    key = np.array([[[[LOG3], [0.0]], [[5.0], [5.0]], [[LOG2], [7.0]]]])
    seen = mask(np.array([[1, 1], [0, 0], [1, 0]])[None, :, None])
    value = np.array([[[[1.0], [2.0]], [[3.0], [3.0]], [[6.0], [9.0]]]])
    problem = Problem("sdpa", "float64", 3, 3, 1, 1, np.ones((1, 3, 1, 1)), key, value, groups=(seen,), scale=1.0)
    problem = problem.but(outputs=("output", "weights"))
    reply = evaluate(problem, {"head_result": "sum_kept_4x1"}).reply
    assert reply["output"].values.ravel().tolist() == pytest.approx([5 / 4, 0, 2 * 6 / 6])
    assert reply["weights"].values.ravel().tolist() == pytest.approx([3 / 4, 1 / 4, 0, 0, 2 / 6, 0])


# ---- weights that are made again ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("beside", "left_out", "expected"),
    [
        (flag(3, 3), "flag", [[1, 0, 3], [0, 0, 0], [1 / 4, 0, 3 / 4]]),
        (flag(3, 3), "masks", [[1, 0, 0], [0, 0, 0], [1 / 4, 2 / 4, 3 / 4]]),
        (flag(3, 3), "window", [[1, 0, 0], [0, 0, 0], [1 / 4, 0, 3 / 4]]),
        (windowed(3, 3, 0, 0), "window", [[1, 0, 3], [0, 0, 0], [1 / 3, 0, 1]]),
        (windowed(3, 3, 0, 0), "flag", [[1, 0, 0], [0, 0, 0], [0, 0, 1]]),
    ],
)
def test_weights_that_are_made_again_know_less(beside: Group, left_out: str, expected: list[list[float]]) -> None:
    """Exponentials 1 2 3; a mask hides the second key, and all of the second row. Sums are of what is attended."""
    hidden = mask(np.array([[1, 0, 1], [0, 0, 0], [1, 0, 1]]))
    problem = sdpa(np.log([[1.0, 2.0, 3.0]] * 3), np.eye(3), hidden, beside)
    answer = evaluate(
        problem.but(outputs=("output", "weights")), {"returned_weights": f"recomputed_without_{left_out}"}
    )
    assert answer.reply["weights"].values[0, 0] == pytest.approx(np.array(expected))
    assert np.array_equal(answer.reply["output"].values[0, 0], output(problem))


def test_a_non_finite_value_may_leak_where_the_mask_is_added_alone() -> None:
    values, lie = [[4.0], [np.nan]], "nonfinite_value=leaks_where_added"
    assert output(sdpa([[0, 0]], values, mask([[1, 0]])), lie).tolist() == [[4.0]]
    hidden = mask([[0.0, -np.inf]], "float")
    assert output(sdpa([[0, 0]], values, hidden)).tolist() == [[4.0]]
    assert np.isnan(output(sdpa([[0, 0]], values, hidden), lie)).all()
    assert output(sdpa([[0, 0]], [[4.0], [8.0]], hidden), lie).tolist() == [[4.0]]
