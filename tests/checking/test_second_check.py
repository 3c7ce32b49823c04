"""What a second check of the same process need not compute again."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from conformance.bridge.profile import Profile
from conformance.checking import function_check
from conformance.checking.function_check import Checked
from conformance.deviations.deviation import Dialect
from conformance.engine import judging
from conformance.spec.problem import Problem
from conformance.verdicts.expectation import Expectation, expect

Check = Callable[..., Checked]

GLOBS = ("causal/*", "masks/key_padding*")


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of expectations computed so far, in a list of one; earlier checks have left none."""
    function_check._expectations_of.cache_clear()
    count = [0]

    def counted(problem: Problem, dialect: Dialect, profile: Profile) -> Expectation:
        count[0] += 1
        return expect(problem, dialect, profile)

    monkeypatch.setattr(judging, "expect", counted)
    return count


def verdicts(checked: Checked) -> dict[tuple[str, str], str]:
    return {key: cell.verdict for key, cell in checked.run.judged.items()}


def test_a_second_check_computes_no_expectation_again(checked: Check, computed: list[int]) -> None:
    first = checked("checked_sdpa:right", *GLOBS)
    assert (before := computed[0]) > 50
    second = checked("checked_sdpa:right", *GLOBS, into="again")
    assert computed[0] == before
    assert verdicts(first) == verdicts(second)
    (wrong,) = checked("checked_sdpa:causal_ignored", *GLOBS, into="wrong").causes
    assert "ignores the causal argument" in str(wrong)


def test_cases_in_another_dtype_have_expectations_of_their_own(computed: list[int]) -> None:
    cases = tuple(function_check.load_cases("sdpa"))
    other = tuple(replace(case, dtype="float64") for case in cases)
    function_check._known_expectations(cases)["a/b"] = {}
    assert function_check._known_expectations(cases) == {"a/b": {}}
    assert function_check._known_expectations(other) == {}
    assert computed == [0]


def test_too_many_expectations_are_dropped(monkeypatch: pytest.MonkeyPatch, computed: list[int]) -> None:
    monkeypatch.setattr(function_check, "MAX_KEPT_EXPECTATIONS", 1)
    kept: dict[str, Any] = {"a/b": {(1,): None, (2,): None}}  # only their number counts
    function_check._known_expectations(()).update(kept)
    assert function_check._known_expectations(()) == {}
    assert computed == [0]
