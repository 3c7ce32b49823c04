"""All reports at once, and at the size that they must bear."""

import time
from pathlib import Path
from types import ModuleType

import pytest

from conformance.report import RunLogError, write_reports


def test_every_report_is_written(demonstration: Path) -> None:
    write_reports(demonstration)
    assert {path.name for path in demonstration.iterdir()} == {
        "run.jsonl",
        "index.html",
        "junit.xml",
        "summary.md",
        "tensors",
    }


def test_reports_are_functions_of_the_folder(demonstration: Path) -> None:
    names = ("index.html", "junit.xml", "summary.md")
    write_reports(demonstration)
    first = [(demonstration / name).read_bytes() for name in names]
    write_reports(demonstration)
    assert [(demonstration / name).read_bytes() for name in names] == first


def test_a_log_that_is_refused_leaves_no_report(tmp_path: Path) -> None:
    (tmp_path / "run.jsonl").write_text("{")
    with pytest.raises(RunLogError):
        write_reports(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["run.jsonl"]


def test_a_large_run_is_reported_in_seconds(build: ModuleType, tmp_path: Path) -> None:
    folder = build.large(tmp_path)
    began = time.process_time()
    write_reports(folder)
    assert time.process_time() - began < 10  # about one second where nothing else runs
