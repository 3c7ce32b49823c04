"""The pattern that is read with one-hot values is the attention matrix, in pieces of the problem's own shape."""

from typing import Any

import numpy as np
import pytest

from conformance.deviations.evaluate import evaluate
from conformance.diagnosis.attention_matrix import MAX_CALLS, joined, pieces
from conformance.spec.problem import Array, Problem


def sdpa(**more: Any) -> Problem:
    """Two items, three heads, four queries, seven keys, values of width 3: a pattern takes three calls."""
    draw = np.random.default_rng(5).standard_normal
    query, key, value = draw((2, 3, 4, 5)), draw((2, 3, 7, 5)), draw((2, 3, 7, 3))
    return Problem("sdpa", "float64", 3, 3, 5, 3, query, key, value).but(**more)


def mha(output_dim: int) -> Problem:
    """Two heads of width 3 that share one key head, values of width 5 projected to 3."""
    draw = np.random.default_rng(7).standard_normal
    params = {
        "wq": draw((4, 6)),
        "wk": draw((5, 3)),
        "wv": draw((5, 3)),
        "wo": draw((6, output_dim)),
        "bq": draw(6),
        "bk": draw(3),
        "bv": draw(3),
        "bo": draw(output_dim),
    }
    return Problem("mha", "float64", 2, 1, 3, 3, draw((2, 4, 4)), draw((2, 7, 5)), draw((2, 7, 5)), params=params)


def unprojected() -> Problem:
    """The heads of `mha` side by side, as they are."""
    problem = mha(6)
    return problem.but(params={name: array for name, array in problem.params.items() if name not in ("wo", "bo")})


def appended() -> Problem:
    """`mha` with a learned key, whose value is not zero."""
    problem = mha(11)
    return problem.but(params={**problem.params, "bias_k": np.full(3, 0.5), "bias_v": np.full(3, 7.0)})


def read(problem: Problem) -> tuple[int, Array | None]:
    """How many calls it took, and the pattern, where the oracle answers."""
    asked = pieces(problem)
    assert not isinstance(asked, str), asked
    answers = [(piece, evaluate(piece.asked_of(problem)).reply["output"].values) for piece in asked]
    return len(asked), joined(problem, answers)


@pytest.mark.parametrize(
    ("problem", "calls"),
    [(sdpa(), 3), (sdpa(value=np.ones((2, 3, 7, 7)), value_dim=7), 1), (mha(11), 3), (mha(5), 6), (mha(2), 8)],
    ids=["three keys a call", "all keys", "both heads", "one head", "two keys of one head"],
)
def test_the_pieces_are_the_weights(problem: Problem, calls: int) -> None:
    expected = evaluate(problem.but(outputs=("weights",))).reply["weights"].values
    number, pattern = read(problem)
    assert number == calls
    assert pattern is not None
    np.testing.assert_allclose(pattern, expected, atol=1e-15)


def test_the_value_of_an_appended_key_is_not_in_the_pattern() -> None:
    problem = appended()
    expected = evaluate(problem.but(outputs=("weights",))).reply["weights"].values
    _number, pattern = read(problem)
    assert pattern is not None
    assert expected.shape[-1] == 8
    np.testing.assert_allclose(pattern, expected[..., :7], atol=1e-15)


def test_no_piece_has_another_shape() -> None:
    problem = mha(11)
    asked = pieces(problem)
    assert not isinstance(asked, str)
    assert {piece.asked_of(problem).value.shape for piece in asked} == {problem.value.shape}
    assert {piece.asked_of(problem).params["wo"].shape for piece in asked} == {(6, 11)}


def test_an_output_of_another_shape_gives_no_pattern() -> None:
    problem = sdpa()
    asked = pieces(problem)
    assert not isinstance(asked, str)
    assert joined(problem, [(asked[0], np.zeros((2, 4, 9)))]) is None


@pytest.mark.parametrize(
    ("problem", "why"),
    [
        (sdpa(alias="kv"), "key and value are one tensor, so the values cannot be replaced"),
        (sdpa(outputs=("weights",)), "the output is not requested"),
        (
            sdpa(key=np.zeros((2, 3, 80, 5)), value=np.zeros((2, 3, 80, 3))),
            f"reading them takes 27 calls; the limit is {MAX_CALLS}",
        ),
        (unprojected(), "the layer has no output projection that could be set"),
        (mha(4).but(residual=True), "the layer adds the query to the output"),
    ],
    ids=["alias", "weights", "calls", "no output projection", "residual"],
)
def test_what_is_not_read_is_not_read_for_a_reason(problem: Problem, why: str) -> None:
    assert pieces(problem) == why
