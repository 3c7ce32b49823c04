"""A reply is compared with other dialects; the declared dtype of the scores is as coarse as allowed."""

import numpy as np
import pytest

from conformance.bridge.contract import Facts
from conformance.bridge.profile import Profile
from conformance.deviations.catalogue import evaluate
from conformance.diagnosis.evidence import Evidence
from conformance.diagnosis.suspect import Suspect
from conformance.spec.problem import MaskOperand, Problem
from conformance.spec.rounding import round_to, to_tensor
from conformance.verdicts.expectation import expect

from ..problems import one_query, sdpa

MASKED = {"softmax_maximum": "of_masked_keys"}


def two_items() -> Problem:
    """Attended keys have values 1 and 3; the logit of a masked key is greater, by 120 or by 20."""
    key = np.array([[[[0.0], [0.0], [120.0]]], [[[0.0], [0.0], [20.0]]]])
    value = np.tile([[1.0], [3.0], [50.0]], (2, 1, 1, 1))
    shown = MaskOperand("mask", ("attention",), "bool", np.array([[[[1, 1, 0]]]], dtype=bool))
    return sdpa(np.ones((2, 1, 1, 1)), key, value, shown, dtype="float16")


@pytest.mark.parametrize(
    ("output", "explained"),
    [
        ([0.0, 0.0], True),  # exp(-20) is zero in float16
        ([0.0, 2.0], True),  # in float32, exp(-20) is not zero, but exp(-120) is
        ([2.0, 2.0], False),  # the declared answer
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
    """An implementation may ignore NaN in the maximum; any other cause of NaN in finite rows is evidence."""
    query = np.ones((1, 1, 2, 1))
    query[0, 0, 0] = np.nan
    shown = MaskOperand("mask", ("attention",), "bool", np.array([[[[1, 1, 0]]]], dtype=bool))
    value, profile = np.array([[[[1.0], [3.0], [5.0]]]]), Profile.uniform("float32")
    asked = sdpa(query, value, value, shown, dtype="float32")
    facts = Facts("sdpa", "float32", "cpu", "", ("output",))
    cell = Evidence("case", facts, asked, expect(asked, {}, profile), profile)
    assert np.isnan(evaluate(asked, {decision: name}).reply["output"].values).all()
    assert cell.contradicts(((decision, name),)) == (decision != "softmax_maximum")


@pytest.mark.parametrize(("off", "explained"), [(0.0, True), (2.0**-24, True), (2.0**-12, False)])
def test_a_result_in_a_coarser_dtype_may_have_its_roundings(off: float, *, explained: bool) -> None:
    """float64 is declared. The reply is float32 and differs by up to one of its roundings, or by 4,096 of them."""
    problem, profile = sdpa(*np.ones((3, 1, 1, 2, 3)) / 3.0), Profile.uniform("float64")
    declared = expect(problem, {}, profile)
    actual = {"output": to_tensor(round_to(declared.reply["output"].values * (1 + off), "float32"), "float32")}
    suspect = Suspect(problem, declared, profile, actual)
    assert suspect.explained_by({"result_dtype": "float32"}) == explained
    assert not suspect.explained_by({"result_dtype": "float16"})


@pytest.mark.parametrize(("logit", "nan"), [(80.0, False), (300.0, False), (800.0, True)])
def test_scores_have_the_range_of_a_finer_result(logit: float, *, nan: bool) -> None:
    """The exponential overflows at 88 in float32 and at 709 in float64; the reply is computed in float64."""
    problem, profile = one_query([logit, logit], [2.0, 4.0], dtype="float32"), Profile.uniform("float32")
    declared = expect(problem, {}, profile)
    actual = {"output": to_tensor(np.full((1, 1, 1, 1), np.nan if nan else 3.0), "float64")}
    suspect = Suspect(problem, declared, profile, actual)
    both = {"result_dtype": "float64", "softmax_maximum": "missing"}
    assert suspect.explained_by(both)
    assert suspect.explained_by({"result_dtype": "float64"}) == (not nan)


@pytest.mark.parametrize(("factor", "conforms"), [(1.0, True), (1.0 + 2.0**-12, False)])
def test_equal_weights_that_are_added_one_by_one_are_a_worst_case(factor: float, *, conforms: bool) -> None:
    """Each of 256 weights exp(-17) is less than half a unit in the last place of the sum, 1, so it is lost."""
    logits = np.array([7.0, *np.zeros(256)], dtype=np.float32)
    shown = MaskOperand("mask", ("attention",), "bool", np.arange(257).reshape(1, 1, 1, 257) == 0)
    values = np.array([1.0, *np.full(256, 100.0)], dtype=np.float32)
    problem, profile = one_query(logits, values, shown, dtype="float32"), Profile.uniform("float32")
    weights = np.exp(np.where(shown.values.ravel(), logits, np.float32(-10.0)) - np.float32(7.0))
    total = np.cumsum(weights, dtype=np.float32)[-1]
    output = np.cumsum(weights / total * values, dtype=np.float32)[-1:]
    assert total == 1.0
    declared, fill = expect(problem, {}, profile), {"mask_fill": "puts_-10"}
    actual = {
        "output": to_tensor(
            np.reshape(round_to(output.astype(np.float64) * factor, "float32"), (1, 1, 1, 1)), "float32"
        )
    }
    suspect = Suspect(problem, declared, profile, actual)
    assert not suspect.conforms_under(fill)
    assert suspect.loosely_conforms_under(fill) == conforms
    assert not suspect.loosely_conforms_under({"scale": "none"})
