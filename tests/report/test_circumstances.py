"""A statement about some calls names these calls."""

from collections.abc import Sequence

import pytest

from conformance.diagnosis.behaviour_profile import Line, Observation
from conformance.report.circumstances import calls, limit


@pytest.mark.parametrize(
    ("circumstances", "said"),
    [
        ([""], ""),
        (["without weights"], "in calls without weights"),
        (["bool mask"], "in calls with a bool mask"),
        (["int mask"], "in calls with an int mask"),
        (["no mask"], "in calls without a mask"),
        (["float32"], "in calls in float32"),
        (["float32", "bfloat16"], "in calls in float32, or in bfloat16"),
        (["flag", "bool mask"], "in calls with a bool mask or a flag"),
        (["bool mask and flag", "flag", "bool mask"], "in calls with a bool mask, a flag, or both"),
        (["bool mask and flag", "float mask"], "in calls with a bool mask and a flag, or a float mask"),
        (["attn_mask and is_causal"], "in calls with attn_mask and is_causal"),
        (
            ["without weights, three tensors", "with weights, key is value"],
            (
                "in calls without weights and with three tensors as query, key and value, "
                "or with weights and with one tensor as key and value"
            ),
        ),
        (["flag, without weights"], "in calls with a flag and without weights"),
    ],
)
def test_circumstances_are_written_in_words(circumstances: Sequence[str], said: str) -> None:
    assert calls(circumstances) == said


def test_a_mask_that_other_calls_have_together_with_another_is_the_only_one() -> None:
    assert calls(["bool mask"], ["bool mask and flag"]) == "in calls with only a bool mask"
    assert (
        calls(["bool mask", "float mask"], ["bool mask and flag"]) == "in calls with only a bool mask or a float mask"
    )
    assert calls(["bool mask, with weights"], ["bool mask and flag, with weights"]) == (
        "in calls with only a bool mask and with weights"
    )
    assert calls(["bool mask"], ["float mask and flag"]) == "in calls with a bool mask"


def seen(circumstance: str, *observed: str, case: str, varies: bool = False) -> Observation:
    return Observation(circumstance, ("zero",), observed, (), (case,), varies=varies)


def test_a_limit_is_said_only_of_behaviour_that_differs_between_calls() -> None:
    mean, nan = (seen("bool mask", "uniform", case="a"), seen("float mask", "nan", "zero", case="b"))
    also = seen("flag; int mask", "uniform", "nan", case="c")
    assert limit(Line("fully_masked_row", "agrees", (mean, nan)), "b") == "in calls with a float mask"
    several = Line("fully_masked_row", "agrees", (mean, nan, also))
    assert limit(several, "a") == "in calls with a bool mask, a flag or an int mask"
    assert limit(Line("fully_masked_row", "agrees", (mean, also)), "a") == ""
    varying = seen("", "uniform", "nan", case="d", varies=True)
    assert limit(Line("fully_masked_row", "agrees", (varying,)), "d") == "in some calls"
