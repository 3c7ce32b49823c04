"""The log of an interrupted run loses at most the line that was being written."""

import errno
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.disk import identity
from conformance.engine import runlog
from conformance.engine.runlog import OWNER, RunLog, RunLogError, read_log
from conformance.spec.texts import harmless

HEADER = {"type": "header", "run": "r"}
CELL = {"type": "cell", "case": "c", "subject": "s", "verdict": "pass"}
FOOTER = {"type": "footer", "exit_code": 0}

# Lines of a log: a header that announces two cases, a case record, and a cell record.
OF_TWO = '{"type": "header", "schema": 2, "case_records": 2}\n'
CASE = '{"type": "case", "schema": 2, "case": "c"}\n'
LOGGED = '{"type": "cell", "schema": 2}\n'


def write(path: Path, *records: dict[str, Any]) -> Path:
    with RunLog.create(path) as log:
        for record in records:
            log.append(record)
    return path


def test_a_record_is_in_the_file_when_append_returns(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with RunLog.create(path) as log:
        log.append(HEADER)
        assert tuple(read_log(path).records) == ({"type": "header", "schema": 2, "run": "r"},)


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
        "schema": 2,
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
        ({"type": "cell", "evidence": {1: 2}}, "1 is not a valid key"),
        ({"type": "comment"}, "unknown record type 'comment', expected one of header, case, worker, cell"),
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
    assert tuple(after.records[:-1]) == tuple(records)
    assert len(after.records) == kept + 1


def test_a_cut_log_is_not_complete(tmp_path: Path) -> None:
    assert not read_log(write(tmp_path / "cut.jsonl", HEADER, CELL)).complete
    assert read_log(write(tmp_path / "whole.jsonl", HEADER, CELL, FOOTER)).complete


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", ":1: no header: the run was interrupted before it began"),
        ('{"type": "header", "sch', ":1: no header"),
        ('{"type": "header", "schema": 3}\n', ":1: schema 3; this version reads the schemas 1 and 2"),
        ('{"type": "header", "schema": 1}\nnonsense\n{"type": "cell", "schema": 1}\n', ":2: not strict JSON"),
        ('{"type": "header", "schema": 1}\n{"type": "cell", "schema": 1, "rms": NaN}\n', ":2: not strict JSON: NaN"),
        (
            '{"type": "header", "schema": 1}\n{"type": "cell", "schema": 1, "schema": 1}\n',
            "an object has a duplicate key",
        ),
        ('{"type": "cell", "schema": 1}\n', ":1: the header must be the first line of a run log"),
        (
            '{"type": "header", "schema": 1}\n{"type": "header", "schema": 1}\n',
            ":2: the header must be the first line of a run log",
        ),
        ('{"type": "header", "schema": 1}\n{"type": "remark", "schema": 1}\n', ":2: not a record of a run log"),
        ("[]\n", ":1: not a record of a run log"),
        (f"{OF_TWO}", ":2: the run was interrupted before it began: 0 of 2 case records are there"),
        (f"{OF_TWO}{CASE}", ":3: the run was interrupted before it began: 1 of 2 case records are there"),
        (
            f"{OF_TWO}{CASE}{LOGGED}",
            ":3: a record of type 'cell'; expected case record 2 of the 2 that the header announces",
        ),
        (f"{OF_TWO}{CASE * 3}", ":4: a case record too many: the header announces 2, which must follow it"),
        (
            '{"type": "header", "schema": 2, "case_records": -1}\n',
            ":1: case_records is -1, expected a number of records",
        ),
        ('{"type": "header", "schema": 2, "case_records": true}\n', "expected a number of records"),
    ],
)
def test_what_is_no_run_log_is_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(RunLogError) as caught:
        read_log(path)
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(path))


def test_a_finished_run_is_taken_up_with_its_footer(tmp_path: Path) -> None:
    path = write(tmp_path / "run.jsonl", HEADER, FOOTER)
    whole = path.read_bytes()
    log, records = RunLog.resume(path)
    log.close()
    assert records[-1]["type"] == "footer"
    assert path.read_bytes() == whole


@pytest.mark.parametrize("length", [None, 0, 1, 20, 40])
def test_a_run_that_was_cut_before_its_header_begins(tmp_path: Path, length: int | None) -> None:
    path = tmp_path / "run.jsonl"
    if length is not None:
        path.write_bytes(write(tmp_path / "other.jsonl", HEADER | {"run": "x" * 50}).read_bytes()[:length])
    log, records = RunLog.resume(path)
    with log:
        assert not records
        log.append(HEADER)
    assert len(read_log(path).records) == 1


@pytest.mark.parametrize("cut", [0, 1, len(CASE), len(CASE) + 20, 2 * len(CASE) - 1])
def test_a_run_that_was_cut_before_all_of_its_cases_begins(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(OF_TWO + (CASE + CASE)[:cut], encoding="utf-8")
    log, records = RunLog.resume(path)
    with log:
        assert not records
    assert not path.read_bytes()


def test_a_run_that_was_cut_after_its_cases_resumes(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(OF_TWO + CASE + CASE, encoding="utf-8")
    log, records = RunLog.resume(path)
    log.close()
    assert [record["type"] for record in records] == ["header", "case", "case"]


@pytest.mark.parametrize("cases", ["", CASE])
def test_a_log_with_a_line_that_is_too_long_is_not_begun_anew(
    tmp_path: Path, cases: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runlog, "MAX_RECORD", 64)
    path = tmp_path / "run.jsonl"
    text = OF_TWO + cases + CASE[:-2] + "x" * 64 if cases else OF_TWO[:-2] + "x" * 64
    path.write_text(text, encoding="utf-8")
    with pytest.raises(RunLogError, match="the line has more than 64 bytes"):
        RunLog.resume(path)
    assert path.read_text(encoding="utf-8") == text


def test_a_log_with_a_cell_in_place_of_a_case_is_not_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(OF_TWO + CASE + LOGGED, encoding="utf-8")
    with pytest.raises(RunLogError, match="expected case record 2 of the 2"):
        RunLog.resume(path)
    assert path.read_text(encoding="utf-8") == OF_TWO + CASE + LOGGED


def test_what_is_no_log_is_not_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("notes of mine", encoding="utf-8")
    with pytest.raises(RunLogError, match="this is not a run log"):
        RunLog.resume(path)
    assert path.read_text(encoding="utf-8") == "notes of mine"
    assert [each.name for each in tmp_path.iterdir()] == ["run.jsonl"]


def test_a_log_has_one_owner_who_is_named(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with RunLog.create(path) as log:
        log.append(HEADER)
        for take in (RunLog.resume, RunLog.hold):
            with pytest.raises(RunLogError) as caught:
                take(path)
            said = (
                rf"{re.escape(str(path))}: the run is in use by process {os.getpid()} on \S+ since \d{{4}}-\S+Z: wait "
            )
            assert re.match(said, str(caught.value))
        log.append(CELL)
    assert not (tmp_path / OWNER).exists()
    with RunLog.hold(path):
        assert len(read_log(path).records) == 2


def test_a_log_whose_owner_was_killed_is_free(tmp_path: Path) -> None:
    program = "import sys, os; from conformance.engine.runlog import RunLog; from pathlib import Path\n"
    program += f"log = RunLog.create(Path({str(tmp_path / 'run.jsonl')!r})); log.append({HEADER!r})\n"
    program += "os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", program], check=False)
    assert (tmp_path / OWNER).exists()
    (tmp_path / f".index.html.{identity()}.part").write_text("half", encoding="utf-8")
    log, records = RunLog.resume(tmp_path / "run.jsonl")
    log.close()
    assert len(records) == 1
    assert [each.name for each in tmp_path.iterdir()] == ["run.jsonl"]


def test_where_nothing_can_be_locked_a_log_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    with RunLog.create(tmp_path / "run.jsonl") as log:
        assert not log.locked
        log.append(HEADER)


def test_text_is_harmless_in_the_file_and_in_what_comes_back(tmp_path: Path) -> None:
    with RunLog.create(tmp_path / "run.jsonl") as log:
        log.append(HEADER)
        record = log.append(CELL | {"reason": "cannot open caf\udce9\x1b[31m\n::error::x"})
    assert record["reason"] == "cannot open caf\\udce9\n\\::error::x"
    assert read_log(tmp_path / "run.jsonl").records[1] == record


@pytest.mark.parametrize("text", ["\x1b[31m", "\x7f", "\x9b", "\ud800", "::error::", "##[x]", "\r", "\u2028"])
def test_text_of_an_older_log_is_harmless_when_it_is_read(tmp_path: Path, text: str) -> None:
    path = write(tmp_path / "run.jsonl", HEADER)
    for ascii_only in (True, False):
        line = json.dumps(CELL | {"schema": 1, text: [text]}, ensure_ascii=ascii_only)
        with path.open("ab") as file:
            file.write(line.encode("utf-8", "surrogatepass") + b"\n")
        found = read_log(path).records[-1]
        assert found == harmless(found)
        assert text not in found


def test_a_record_that_does_not_fit_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.jsonl"
    write_some = os.write

    def full(file: int, data: Any) -> int:
        if len(data) < 20:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write_some(file, bytes(data)[: len(data) // 2])

    with RunLog.create(path) as log:
        log.append(HEADER)
        before = path.read_bytes()
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", full)
            with pytest.raises(OSError, match=r"No space left on device: '.*run\.jsonl'"):
                log.append(CELL)
        assert path.read_bytes() == before
        log.append(CELL)
    assert len(read_log(path).records) == 2
