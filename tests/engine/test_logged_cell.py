"""The record of a judged cell: what is written is what is read."""

import math
from pathlib import Path

import pytest
from pydantic import ValidationError

from conformance.engine.logged_cell import (
    Failure,
    JudgedCell,
    LoggedCell,
    LoggedDeclaration,
    LoggedDeviation,
    LoggedExplanation,
    LoggedKnown,
    LoggedMask,
    LoggedOutput,
    LoggedPattern,
    LoggedRelation,
    LoggedRepetition,
)
from conformance.engine.runlog import RunLog

LEAST = LoggedCell(case="a/b", subject="x.sdpa", verdict="unsupported")

# Every field has another value than its default.
WHOLE = LoggedCell(
    case="a/b",
    subject="x.sdpa",
    verdict="fail",
    fail_class="semantic",
    budget=math.inf,
    reason="output: wrong",
    outputs=(
        LoggedOutput(
            output="output",
            verdict="fail",
            budget=math.inf,
            message="wrong",
            dtype="float16",
            max_error=math.inf,
            at=(0, 2, 1),
            expected=-math.inf,
            actual=0.0,
            error=math.inf,
            bound=0.0,
            rms=0.0,
            coverage=0.5,
            not_judged=0,
            beyond=3,
            elements=7,
            beyond_worst=False,
        ),
    ),
    explanation=LoggedExplanation(
        decision="scale", name="none", declared="canonical", sentence="does not scale", remedy="scale", budget=0.0
    ),
    ties=("scale=query_dim",),
    route=(LoggedMask(slot="mask", kinds=("causal",), element="bool", axes=("q", "k"), verbatim=True),),
    dropped_outputs=("weights",),
    declared=LoggedDeclaration(
        profile={"mm": "tf32"},
        dialect=(LoggedDeviation(decision="softcap", name="after_bias", source="https://example.org"),),
        evidence="read",
    ),
    differs_from_canonical=False,
    mistake="key_width",
    searched=False,
    uncalibrated=True,
    known=LoggedKnown(reason="r", link="l", entry="known.yaml:3", versions={"x": ">=1"}, decisions=("scale=none",)),
    covered_by={"known.yaml:3": "matched"},
    evidence={"kernel": "math"},
    seconds={"call": 0.0},
    compiles=False,
    cached=True,
    digests={"problem": "sha256:1"},
    error=Failure(kind="ValueError", message="m", traceback="t", stage="framework"),
    repeats=LoggedRepetition(found="same", again=3, alone=0, reason="equal"),
    invariants=(LoggedRelation(name="last_key", found="broken", sentence="lets it in", where="output"),),
    pattern=LoggedPattern(calls=3, beyond=0, elements=7, not_read="-", odd=()),
    tensors="tensors/00001.npz",
    rerun="conformance run",
)


@pytest.mark.parametrize("cell", [LEAST, WHOLE])
def test_what_is_written_is_what_is_read(tmp_path: Path, cell: LoggedCell) -> None:
    with RunLog.create(tmp_path / "run.jsonl") as log:
        log.append(cell.record())
        assert LoggedCell.model_validate(log.read(log.start)) == cell


def test_only_what_applies_is_in_the_log() -> None:
    assert LEAST.record() == {"type": "cell", "case": "a/b", "subject": "x.sdpa", "verdict": "unsupported"}
    names = {field.alias or name for name, field in LoggedCell.model_fields.items()}
    assert names | {"type"} == WHOLE.record().keys()


def test_a_zero_and_a_false_that_say_something_are_in_the_log() -> None:
    record = WHOLE.record()
    assert (record["compiles"], record["differs_from_canonical"]) == (False, False)
    assert (record["repeats"]["alone"], record["pattern"]["beyond"]) == (0, 0)
    assert (record["class"], record["error"]["type"]) == ("semantic", "ValueError")


def test_an_empty_part_of_what_applies_is_in_the_log() -> None:
    declared = LoggedDeclaration(profile={}, dialect=(), evidence="")
    explanation = LoggedExplanation(decision="scale", name="none", sentence="does not scale", remedy="")
    empty: dict[str, tuple[()]] = {"ties": (), "route": ()}
    cell = LEAST.model_copy(update={"declared": declared, "explanation": explanation, "compiles": False, **empty})
    assert cell.record() == {
        **LEAST.record(),
        "declared": {"profile": {}, "dialect": (), "evidence": ""},
        "explanation": {"decision": "scale", "name": "none", "sentence": "does not scale", "remedy": ""},
        "compiles": False,
        **empty,
    }


def test_an_unknown_key_is_ignored_and_a_wrong_value_is_not() -> None:
    assert LoggedCell.model_validate({**LEAST.record(), "of_a_later_release": 1}) == LEAST
    with pytest.raises(ValidationError, match="verdict"):
        LoggedCell.model_validate({**LEAST.record(), "verdict": "perhaps"})
    with pytest.raises(ValidationError, match="budget"):
        LoggedCell.model_validate({**LEAST.record(), "budget": "much"})


def test_what_is_kept_in_memory() -> None:
    kept = JudgedCell.of(WHOLE, 11)
    assert (kept.key, kept.verdict, kept.fail_class, kept.budget) == (WHOLE.key, "fail", "semantic", math.inf)
    assert (kept.green, kept.dropped_outputs, kept.tensors, kept.start) == (True, ("weights",), WHOLE.tensors, 11)
    assert kept.known is not None
    assert kept.known is JudgedCell.of(WHOLE).known
