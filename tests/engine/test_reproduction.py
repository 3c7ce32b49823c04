"""A reproduction and the judge decide the same about a reply."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from conformance.bridge.profile import Profile
from conformance.bridge.reproducing import EXPECTED, TOLERANCE, VARIANCE, compared
from conformance.bridge.tensor import Tensor
from conformance.spec.problem import Array
from conformance.verdicts.compare import RMS_LIMIT, compare, counted_variance
from conformance.verdicts.expectation import Expectation, expect

from ..problems import random_sdpa

AT = (0, 1, 2, 3)


def expectation() -> Expectation:
    return expect(random_sdpa(0), {}, Profile.ordinary("float32"))


def changed(values: Array, number: float) -> Array:
    other = values.copy()
    other[AT] = number
    return other


def replies() -> Mapping[str, tuple[Array, str]]:
    """Return name -> a reply and its dtype; mostly float64, so that the errors are exactly the intended ones."""
    expected, bound = expectation().reply["output"].values, expectation().bounds["output"]
    return {
        "exact": (expected, "float64"),
        "just within": (changed(expected, expected[AT] + 0.99 * bound.tolerance[AT]), "float64"),
        "just beyond": (changed(expected, expected[AT] + 1.01 * bound.tolerance[AT]), "float64"),
        "beyond together": (expected + 1.01 * RMS_LIMIT * np.sqrt(counted_variance(bound)), "float64"),
        "nan": (changed(expected, np.nan), "float64"),
        "inf": (changed(expected, np.inf), "float64"),
        "dtype": (expected, "float32"),
        "shape": (expected[..., :-1], "float64"),
    }


@pytest.mark.parametrize("name", replies())
def test_a_reproduction_decides_as_the_judge_does(name: str) -> None:
    found = expectation()
    expected = replace(found.reply["output"], dtype="float64")
    bound = found.bounds["output"]
    values, dtype = replies()[name]
    actual = Tensor.of(values.astype(dtype))
    judged = compare("output", expected, actual, bound, rms_gate=True)
    arrays = {
        f"{EXPECTED}.output": expected.values,
        f"{TOLERANCE}.output": bound.tolerance,
        f"{VARIANCE}.output": counted_variance(bound),
    }
    beyond, text = compared("output", actual, {"dtype": "float64", "rms_limit": RMS_LIMIT}, arrays)
    assert beyond == (judged.verdict == "fail") == (name not in ("exact", "just within"))
    if "beyond" in name or "within" in name:
        assert (
            f"output: max error {judged.numbers['max_error']:.3g}; {judged.budget:.3g} of the allowed error used"
            in text
        )
    if name == "beyond together":
        assert judged.numbers["beyond"] == 0
        assert "root mean square 1.01 of its limit" in text


def test_without_a_limit_of_the_root_mean_square_each_element_stands_for_itself() -> None:
    found = expectation()
    bound, values = found.bounds["output"], replies()["beyond together"][0]
    arrays = {
        f"{EXPECTED}.output": found.reply["output"].values,
        f"{TOLERANCE}.output": bound.tolerance,
        f"{VARIANCE}.output": counted_variance(bound),
    }
    assert not compared("output", Tensor.of(values), {"dtype": "float64", "rms_limit": None}, arrays)[0]


def test_where_nothing_is_judged_a_non_finite_number_may_stand() -> None:
    arrays = {
        f"{EXPECTED}.output": np.array([1.0, 2.0]),
        f"{TOLERANCE}.output": np.array([np.inf, 0.5]),
        f"{VARIANCE}.output": np.array([0.0, 0.1]),
    }
    about = {"dtype": "float64", "rms_limit": None}
    assert compared("output", Tensor.of(np.array([np.inf, 2.25])), about, arrays) == (
        False,
        "output: max error 0.25; 0.5 of the allowed error used, 0.25 at [1] (2.25, expected 2, allowed 0.5)",
    )
    assert compared("output", Tensor.of(np.array([1.0, np.inf])), about, arrays) == (
        True,
        "output: inf at [1], expected 2",
    )
