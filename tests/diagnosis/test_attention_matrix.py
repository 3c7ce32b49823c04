"""The pattern read with one-hot values is the attention matrix; each piece has the shape of the problem."""

from typing import Any

import numpy as np
import pytest

from conformance.deviations.catalogue import evaluate
from conformance.deviations.deviation import with_params, without_params
from conformance.diagnosis.attention_matrix import MAX_CALLS, joined, pieces
from conformance.spec.problem import Array, Problem

from ..problems import DIM, random_mha, random_sdpa


def sdpa(keys: int = 7, value_dim: int = 3, **fields: Any) -> Problem:
    """An sdpa problem; with seven keys and values of width 3, its pattern takes three calls."""
    return random_sdpa(5, dtype="float64", seq_len_k=keys, value_dim=value_dim, **fields)


def mha(output_dim: int) -> Problem:
    """An mha problem with two heads that share one key head; values are projected to width 3."""
    return random_mha(
        7, dtype="float64", batch=5, num_heads=2, num_kv_heads=1, seq_len_q=13, value_dim=3, output_dim=output_dim
    )


def unprojected() -> Problem:
    """`mha` without an output projection: its output is the concatenated heads."""
    return without_params(mha(6), "wo", "bo")


def appended() -> Problem:
    """`mha` with a learned key whose value is not zero."""
    return with_params(mha(11), bias_k=np.full(DIM, 0.5), bias_v=np.full(3, 7.0))


def read(problem: Problem) -> tuple[int, Array | None]:
    """The number of calls, and the pattern; the oracle answers the calls."""
    asked = pieces(problem)
    assert not isinstance(asked, str), asked
    answers = [(piece, evaluate(piece.asked_of(problem)).reply["output"].values) for piece in asked]
    return len(asked), joined(problem, answers)


@pytest.mark.parametrize(
    ("problem", "calls"),
    [(sdpa(), 3), (sdpa(value_dim=13), 1), (mha(11), 3), (mha(5), 6), (mha(2), 8)],
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
            sdpa(keys=79),
            f"reading them takes 27 calls; the limit is {MAX_CALLS}",
        ),
        (unprojected(), "the layer has no output projection that could be set"),
        (mha(4).but(residual=True), "the layer adds the query to the output"),
    ],
    ids=["alias", "weights", "calls", "no output projection", "residual"],
)
def test_what_is_not_read_is_not_read_for_a_reason(problem: Problem, why: str) -> None:
    assert pieces(problem) == why
