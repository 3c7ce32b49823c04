"""What a check need not compute again: expectations of an earlier one, and the search for an unknown mistake."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conformance.bridge.profile import Profile
from conformance.checking import arithmetic, function_check
from conformance.checking.function_check import Checked
from conformance.deviations.deviation import Dialect
from conformance.diagnosis.candidates import Cause
from conformance.diagnosis.diagnosis import first_look
from conformance.diagnosis.evidence import Evidence
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


UNKNOWN = """
import numpy as np

def attend(query, key, value, *, mask=None, is_causal=False, scale=None):
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    logits = np.sin(query @ key.swapaxes(-1, -2) * scale) * 1.7
    attended = np.ones(logits.shape[-2:], bool)
    attended = np.tril(attended) if is_causal else attended
    logits = np.where(attended if mask is None else attended & mask, logits, -np.inf)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return (weights / weights.sum(-1, keepdims=True)) @ value
"""


def test_a_mistake_of_plain_calls_without_a_name_is_searched_once_before_judging(
    monkeypatch: pytest.MonkeyPatch, checked: Check, tmp_path: Path
) -> None:
    """It shows in every call, so no other call tells more of a second mistake."""
    looked: list[tuple[Cause, ...]] = []

    def recorded(cells: Sequence[Evidence]) -> tuple[Cause, ...]:
        looked.append(first_look(cells))
        return looked[-1]

    monkeypatch.setattr(arithmetic, "first_look", recorded)
    (tmp_path / "unknown.py").write_text(UNKNOWN, encoding="utf-8")
    found = checked(f"{tmp_path / 'unknown.py'}:attend", "causal/offset/past_of*")
    assert looked == [()]
    assert str(found.causes[0]).startswith("no cause found (more than rounding)")
