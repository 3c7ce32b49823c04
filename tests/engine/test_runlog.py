"""The log of a cut run loses at most the line that was being written."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.engine.runlog import RunLog, RunLogError, read_log

HEADER = {"type": "header", "run": "r"}
CELL = {"type": "cell", "case": "c", "subject": "s", "verdict": "pass"}
FOOTER = {"type": "footer", "exit_code": 0}


def write(path: Path, *records: dict[str, Any]) -> Path:
    with RunLog.create(path) as log:
        for record in records:
            log.append(record)
    return path


def test_a_record_is_in_the_file_when_append_returns(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with RunLog.create(path) as log:
        log.append(HEADER)
        assert read_log(path).records == ({"type": "header", "schema": 1, "run": "r"},)


def test_numbers_that_json_lacks_are_words(tmp_path: Path) -> None:
    odd = {
        "budget": float("inf"),
        "at": (np.int64(1), 2),
        "rms": np.float32("nan"),
        "least": -np.inf,
        "exact": np.True_,
    }
    path = write(tmp_path / "run.jsonl", HEADER, CELL | odd)
    line = path.read_text(encoding="utf-8").splitlines()[1]
    assert json.loads(line, parse_constant=pytest.fail) == CELL | {
        "schema": 1,
        "budget": "inf",
        "at": [1, 2],
        "rms": "nan",
        "least": "-inf",
        "exact": True,
    }


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"type": "cell", "reason": object()}, "is not a JSON value"),
        ({"type": "cell", "evidence": {1: 2}}, "1 is not a name"),
        ({"type": "comment"}, "a record of type 'comment'; a run log has header, worker, cell, diagnosis, footer"),
    ],
)
def test_what_is_no_record_is_refused_and_nothing_written(tmp_path: Path, record: Any, message: str) -> None:
    path = tmp_path / "run.jsonl"
    with RunLog.create(path) as log, pytest.raises((TypeError, ValueError), match=message):
        log.append(record)
    assert not path.read_bytes()


def test_an_existing_log_is_not_overwritten(tmp_path: Path) -> None:
    path = write(tmp_path / "run.jsonl", HEADER)
    with pytest.raises(FileExistsError):
        RunLog.create(path)


@given(cut=st.integers(min_value=1))
def test_a_run_that_was_cut_anywhere_resumes_after_its_last_whole_line(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    path = write(tmp_path_factory.mktemp("log") / "run.jsonl", HEADER, *[CELL | {"case": str(n)} for n in range(5)])
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) - cut % (len(whole) - len(whole.splitlines()[0]))])
    kept = path.read_bytes().count(b"\n")
    log, records = RunLog.resume(path)
    with log:
        assert len(records) == kept
        log.append(FOOTER)
    after = read_log(path)
    assert after.complete
    assert after.records[:-1] == records
    assert len(after.records) == kept + 1


def test_a_cut_log_is_not_complete(tmp_path: Path) -> None:
    assert not read_log(write(tmp_path / "cut.jsonl", HEADER, CELL)).complete
    assert read_log(write(tmp_path / "whole.jsonl", HEADER, CELL, FOOTER)).complete


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", ":1: no header: the run was cut before it began"),
        ('{"type": "header", "sch', ":1: no header"),
        ('{"type": "header", "schema": 2}\n', ":1: schema 2; this version reads schema 1"),
        ('{"type": "header", "schema": 1}\nnonsense\n{"type": "cell", "schema": 1}\n', ":2: not strict JSON"),
        ('{"type": "header", "schema": 1}\n{"type": "cell", "schema": 1, "rms": NaN}\n', ":2: not strict JSON: NaN"),
        ('{"type": "header", "schema": 1}\n{"type": "cell", "schema": 1, "schema": 1}\n', "a key stands twice"),
        ('{"type": "cell", "schema": 1}\n', ":1: a run log has one header, in its first line"),
        ('{"type": "header", "schema": 1}\n{"type": "header", "schema": 1}\n', ":2: a run log has one header"),
        ('{"type": "header", "schema": 1}\n{"type": "remark", "schema": 1}\n', ":2: not a record of a run log"),
        ("[]\n", ":1: not a record of a run log"),
    ],
)
def test_what_is_no_run_log_is_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(RunLogError) as caught:
        read_log(path)
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(path))


def test_a_finished_run_has_nothing_to_resume(tmp_path: Path) -> None:
    path = write(tmp_path / "run.jsonl", HEADER, FOOTER)
    with pytest.raises(RunLogError, match="the run came to its end"):
        RunLog.resume(path)
