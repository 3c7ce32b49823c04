"""A reply held against other dialects, where the scores are declared as coarse as they may be."""

import numpy as np
import pytest

from conformance.bridge.contract import Facts
from conformance.bridge.profile import Profile
from conformance.deviations.catalogue import evaluate
from conformance.diagnosis.evidence import Evidence
from conformance.diagnosis.suspect import Suspect
from conformance.spec.problem import MaskOperand, Problem
from conformance.spec.rounding import to_tensor
from conformance.verdicts.expectation import expect

from ..problems import sdpa

MASKED = {"softmax_maximum": "of_masked_keys"}


def two_items() -> Problem:
    """Keys of value 1 and 3 are attended; a masked one has a logit that is greater by 120, and by 20."""
    key = np.array([[[[0.0], [0.0], [120.0]]], [[[0.0], [0.0], [20.0]]]])
    value = np.tile([[1.0], [3.0], [50.0]], (2, 1, 1, 1))
    shown = MaskOperand("mask", ("attention",), "bool", np.array([[[[1, 1, 0]]]], dtype=bool))
    return sdpa(np.ones((2, 1, 1, 1)), key, value, shown, dtype="float16")


@pytest.mark.parametrize(
    ("output", "explained"),
    [
        ([0.0, 0.0], True),  # exp(-20) is zero in float16
        ([0.0, 2.0], True),  # and is not in float32, in which exp(-120) is
        ([2.0, 2.0], False),  # what is declared
        ([2.0, 0.0], False),
    ],
)
def test_underflow_is_tried_in_float32_where_float16_is_declared(output: list[float], *, explained: bool) -> None:
    problem, profile = two_items(), Profile.uniform("float16")
    declared = expect(problem, {}, profile)
    assert declared.reply["output"].values.ravel().tolist() == [2.0, 2.0]
    actual = {"output": to_tensor(np.reshape(output, (2, 1, 1, 1)), "float16")}
    assert Suspect(problem, declared, profile, actual).explained_by(MASKED) == explained


def test_numbers_of_either_arithmetic_are_those_that_are_told() -> None:
    found = [evaluate(two_items(), MASKED, score).reply["output"].values.ravel() for score in ("float16", "float32")]
    assert np.allclose(found, [[0.0, 0.0], [0.0, 2.0]], rtol=1e-6, atol=0.0)


@pytest.mark.parametrize(("decision", "name"), [("softmax_maximum", "of_all"), ("mask_fill", "times_infinity")])
def test_another_maximum_of_what_is_nan_is_no_evidence(decision: str, name: str) -> None:
    """An implementation may take such a maximum for none; what else makes NaN of finite rows is evidence."""
    query = np.ones((1, 1, 2, 1))
    query[0, 0, 0] = np.nan
    shown = MaskOperand("mask", ("attention",), "bool", np.array([[[[1, 1, 0]]]], dtype=bool))
    value, profile = np.array([[[[1.0], [3.0], [5.0]]]]), Profile.uniform("float32")
    asked = sdpa(query, value, value, shown, dtype="float32")
    facts = Facts("sdpa", "float32", "cpu", "", ("output",))
    cell = Evidence("case", facts, asked, expect(asked, {}, profile), profile)
    assert np.isnan(evaluate(asked, {decision: name}).reply["output"].values).all()
    assert cell.contradicts(((decision, name),)) == (decision != "softmax_maximum")
