"""Two mistakes of one function are reported as two causes, each with its own condition and all its calls."""

from collections.abc import Sequence

import pytest

from conformance.deviations.deviation import Dialect
from conformance.diagnosis.candidates import Candidate, Cause
from conformance.diagnosis.condition_fit import Guards
from conformance.diagnosis.conditions import Condition, always
from conformance.diagnosis.diagnosis import diagnose, record_of
from conformance.diagnosis.evidence import Evidence
from conformance.diagnosis.search import Search
from conformance.diagnosis.separation import needed, separated

from .judged_cells import IGNORED, REVERSED, SIZES, cell, padded, plain, subject

BOTH = {**IGNORED, **REVERSED}
HALF = Condition(dtype=["float16"])


def reported(causes: Sequence[Cause]) -> list[tuple[dict[str, str], Condition, int]]:
    return [(dict(cause.candidate.change), cause.guards[0], len(cause.cells)) for cause in causes]


def test_each_of_two_mistakes_has_its_condition_and_all_its_calls() -> None:
    """The mask is ignored in 10 of 20 calls; values are reversed in the 10 calls in float16, 5 of which have a mask."""
    found = diagnose(subject(lambda p: BOTH if p.dtype == "float16" else IGNORED))
    assert len(found.causes) > 1
    assert found.unexplained == ()
    assert sorted(reported(found.separated), key=str) == sorted(
        [(IGNORED, always(), 10), (REVERSED, HALF, 10)], key=str
    )


def test_mistakes_that_always_show_together_are_two_as_well() -> None:
    found = diagnose(subject(lambda _: BOTH))
    assert [dict(cause.candidate.change) for cause in found.causes] == [BOTH]
    assert reported(found.separated) == [(REVERSED, always(), 20), (IGNORED, always(), 10)]


def test_one_mistake_is_not_separated() -> None:
    found = diagnose(subject(lambda p: REVERSED if p.dtype == "float16" else {}))
    assert reported(found.causes) == [(REVERSED, HALF, 10)]
    assert found.separated == ()
    assert "separated" not in record_of(found)


def test_the_record_has_both_forms() -> None:
    record = record_of(diagnose(subject(lambda _: BOTH)))
    assert [each["decisions"] for each in record["causes"]] == [BOTH]
    assert [each["decisions"] for each in record["separated"]] == [REVERSED, IGNORED]
    assert [each["sentence"] for each in record["separated"]] == [
        "applies the weights to the values in reverse key order",
        "ignores padding",
    ]


def test_an_accepted_deviation_is_marked_if_another_cause_fails_all_its_calls() -> None:
    accepted = ("use[padding]", "ignored")
    together, alone = (diagnose(subject(lie)) for lie in (lambda _: BOTH, lambda p: BOTH if p.batch > 1 else IGNORED))
    for found, marked in ((together, [IGNORED]), (alone, [])):
        separated = record_of(found, accepts=lambda way: way == accepted)["separated"]
        assert [each["decisions"] for each in separated if each.get("accepted")] == marked
    assert not any("accepted" in each for each in record_of(together)["separated"])


def _alike(second: Dialect) -> tuple[list[Evidence], list[Cause]]:
    """Two calls that no condition distinguishes, and their causes; the first shows both mistakes."""
    cells = [cell(padded(2, 5, 7), BOTH), cell(padded(2, 5, 7), second)]
    causes = [Cause(Candidate(tuple(BOTH.items())), (always(),), (cells[0],), (), 8.0)]
    return cells, causes + [Cause(Candidate(tuple(second.items())), (always(),), (cells[1],))] * bool(second)


def test_a_mistake_that_shows_under_no_condition_is_not_separated() -> None:
    cells, causes = _alike(REVERSED)
    assert separated(cells, Guards(cells), causes) == ()
    cells, causes = _alike({})
    assert separated(cells, Guards(cells), causes) == ()


def test_mistakes_under_the_same_condition_stay_together() -> None:
    """The condition costs once for the pair; it would cost twice for two separate deviations."""
    found = diagnose(subject(lambda p: BOTH if p.batch == 1 else {}))
    assert [(change, when) for change, when, _ in reported(found.causes)] == [(BOTH, Condition(sizes={"batch": 1}))]
    assert found.separated == ()


@pytest.mark.parametrize("without", [(), ("combine_open",)], ids=["combined", "not combined"])
def test_a_call_that_shows_two_known_mistakes_at_once_is_explained(
    without: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pair for a single call would cost more than the call; two deviations that are already known cost nothing."""
    for step in without:
        monkeypatch.setattr(Search, step, lambda _: None)
    sizes = [size for size in SIZES if size[0] > 1]
    cells = [cell(plain(*size, "float16"), REVERSED) for size in sizes]
    cells += [cell(padded(1, *size[1:]), IGNORED) for size in sizes]
    cells += [cell(padded(*size), {}) for size in sizes] + [cell(plain(1, *size[1:]), {}) for size in sizes]
    last = cell(padded(1, 5, 7, "float16"), BOTH)
    found = diagnose([*cells, last])
    assert found.unexplained == ((last,) if without else ())


def test_a_deviation_that_a_call_does_not_need_is_left_out() -> None:
    change = (*IGNORED.items(), *REVERSED.items())
    assert needed(cell(padded(2, 5, 7), BOTH), change) == change
    assert needed(cell(padded(2, 5, 7), IGNORED), change) == tuple(IGNORED.items())
    assert needed(cell(plain(2, 5, 7), REVERSED), change) == tuple(REVERSED.items())
