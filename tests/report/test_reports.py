"""All reports together, and for a run of the size that they must support."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conformance.engine import runlog
from conformance.report import RunLogError, page_data, write_reports

from .build_run import large


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


def test_of_a_large_run_every_line_and_every_array_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = large(tmp_path)
    lines = (folder / "run.jsonl").read_text(encoding="utf-8").count("\n")
    read: Counter[str] = Counter()
    for module, name in ((runlog, "strict_json"), (page_data, "blob")):
        monkeypatch.setattr(module, name, counting(read, name, getattr(module, name)))
    write_reports(folder)
    assert read == {"strict_json": lines, "blob": 200}


def counting(read: Counter[str], name: str, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def counted(given: Any) -> Any:
        read[name] += 1
        return function(given)

    return counted
