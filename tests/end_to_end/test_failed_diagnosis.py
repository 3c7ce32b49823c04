"""An exception in the search for causes costs the causes, but not the verdicts, the report or the exit code."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from conformance.cli.main import main
from conformance.gate.decision import INCOMPLETE

from ..running import records

FAKES = Path(__file__).parents[1] / "fakes"
SUBJECT = "fake.varied[inverted_mask]"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> tuple[Path, int, str]:
    """Run a subject that inverts masks, while the search for causes raises an exception."""

    def broken(cells: Sequence[Any], *_: Any) -> None:
        raise ValueError(f"no causes of {len(cells)} cells")

    monkeypatch.setattr("conformance.engine.diagnosing.diagnose", broken)
    folder = tmp_path / "out"
    asked = ["-a", str(FAKES / "varied.py") + "[inverted_mask]", "-k", "masks/attention_2d/*"]
    code = main(["run", *asked, "--out", str(folder)])
    return folder, code, capsys.readouterr().out


def test_the_run_is_incomplete_and_says_why(run: tuple[Path, int, str]) -> None:
    folder, code, out = run
    assert code == INCOMPLETE
    (said,) = json.loads((folder / "verdict.json").read_text(encoding="utf-8"))["gate"]["incomplete"]
    assert said.startswith(f"{SUBJECT}: the search for causes ended in an internal error (ValueError: no causes of ")
    assert said.endswith("so causes may be missing; please report it with the traceback in run.jsonl")
    assert said in " ".join(out.split())


def test_the_log_has_every_verdict_and_the_traceback(run: tuple[Path, int, str]) -> None:
    logged = records(run[0])
    (diagnosis,) = (record for record in logged if record["type"] == "diagnosis")
    assert "in broken" in diagnosis["fault"]
    failing = [record for record in logged if record["type"] == "cell" and record["verdict"] == "fail"]
    assert diagnosis["failures"] == len(failing) > 1


def test_the_report_names_what_explains_each_cell_alone(run: tuple[Path, int, str]) -> None:
    folder, _, out = run
    assert (folder / "index.html").exists()
    assert "ignore this key" in out


@pytest.mark.usefixtures("run")
def test_nothing_of_it_is_kept_for_later_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    again = tmp_path / "again"
    asked = ["-a", str(FAKES / "varied.py") + "[inverted_mask]", "-k", "masks/attention_2d/*"]
    assert main(["run", *asked, "--out", str(again)]) == 1
    (diagnosis,) = (record for record in records(again) if record["type"] == "diagnosis")
    assert "fault" not in diagnosis
    assert diagnosis["causes"][0]["decisions"] == {"polarity[attn_mask]": "ignore"}
