"""The numbers of published texts: the shipped file is what the recipe makes; and checks that no case can express."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.deviations.catalogue import evaluate
from conformance.spec.loader import load
from conformance.spec.materialise import materialise
from conformance.spec.problem import Problem
from conformance.verdicts.expectation import published_finding

ROOT = Path(__file__).parents[2] / "cases"
FILE = ROOT / "published" / "stepwise.npz"
SENTENCE = [0, 4, 5, 2, 1, 3]
SECOND_WORD = [
    *(0.5146, 0.9938, -0.2587, -1.0826, -0.0444, 1.6236, -2.3229, 1.0878),
    *(0.6716, 0.6933, -0.9487, -0.0765, -0.1526, 0.1167, 0.4403, -1.4465),
]
OMEGA = [8.5808, -7.6597, 3.2558, 1.0395, 11.1466, -0.4800]
DIGITS = 4


def problem(case_id: str) -> Problem:
    suite = case_id.rpartition("/")[0]
    (case,) = (each for each in load([ROOT / f"{suite}.yaml"], ROOT) if each.id == case_id)
    return materialise(case)


def recipe() -> dict[str, Any]:
    """Return the arrays that the code in the text makes, with its weights transposed from (out, in) to (in, out)."""
    import torch  # noqa: PLC0415 - only where frameworks are installed

    torch.manual_seed(123)
    embedded = torch.nn.Embedding(6, 16)(torch.tensor(SENTENCE)).detach()
    torch.manual_seed(123)
    weights = {name: torch.rand(width, 16).T for name, width in (("wq", 24), ("wk", 24), ("wv", 28))}
    arrays = {"query": embedded[None, 1:2], "key": embedded[None], "value": embedded[None], **weights}
    return {name: np.ascontiguousarray(tensor.numpy()) for name, tensor in arrays.items()}


@pytest.mark.frameworks
def test_the_shipped_file_is_what_the_recipe_makes() -> None:
    made = recipe()
    with np.load(FILE) as shipped:
        assert set(shipped.files) == set(made)
        for name, array in made.items():
            assert shipped[name].dtype == array.dtype == np.float32
            assert np.array_equal(shipped[name], array), name


def test_the_shipped_words_are_the_printed_ones() -> None:
    np.testing.assert_allclose(problem("published/stepwise/second_word").query[0, 0], SECOND_WORD, atol=0.5e-4)


def test_the_scores_before_the_softmax_are_the_printed_ones() -> None:
    products = evaluate(problem("published/stepwise/second_word")).state.products
    assert np.round(products[0, 0, 0], DIGITS).tolist() == OMEGA


def test_the_gradient_of_the_softmax_is_that_of_the_text() -> None:
    case = problem("published/softmax/steep")
    assert case.grad_output is not None
    grad = case.grad_output[0, 0, 0]
    logits = np.array([10.0, 50.0, 100.0])
    weights = np.exp(logits - 100.0) / np.exp(logits - 100.0).sum()
    slopes = np.array([[weights[i] * ((i == k) - weights[k]) for k in range(3)] for i in range(3)])
    found = evaluate(case).reply["grad_key"].values[0, 0]
    np.testing.assert_allclose(found[:2, 0], (grad @ slopes)[:2], rtol=1e-12)
    assert abs(found[2, 0] - (grad @ slopes)[2]) <= 2.0**-52 * np.abs(grad).max()  # 1 - weight is lost in float64
    assert not found[:, 1:].any()
    assert np.abs(found[:, 0]).max() < 1e-20


@pytest.mark.parametrize("suite", ["stepwise", "softmax"])
def test_the_oracle_agrees_with_every_printed_number(suite: str) -> None:
    printed = [case for case in load([ROOT / "published" / f"{suite}.yaml"], ROOT) if case.published]
    assert len(printed) == 1
    finding = published_finding(printed[0], materialise(printed[0]))
    assert finding is not None
    assert (finding.problem, finding.budget <= 1.0) == ("", True)
