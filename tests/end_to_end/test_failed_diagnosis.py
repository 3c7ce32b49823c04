"""An exception in the search for causes costs neither the verdicts nor the report; the run is incomplete."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from conformance.cli.main import main
from conformance.gate.decision import INCOMPLETE, REJECTED

from ..running import records

FAKES = Path(__file__).parents[1] / "fakes"
SUBJECT = "fake.varied[inverted_mask]"
ASKED = ["run", "-a", str(FAKES / "varied.py") + "[inverted_mask]", "-k", "masks/attention_2d/*", "--out"]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> tuple[Path, int, str]:
    """
    Run a subject that inverts masks, while the search for causes raises an exception.

    Its folder counts as that of the packaged adapters, the only ones whose results are cached.
    """

    def broken(cells: Sequence[Any], *_: Any) -> None:
        raise ValueError(f"no causes of {len(cells)} cells")

    monkeypatch.setenv("CONFORMANCE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("conformance.places.adapters", lambda: FAKES)
    folder = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr("conformance.engine.diagnosing.diagnose", broken)
        code = main([*ASKED, str(folder)])
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


def test_it_is_not_what_a_later_run_takes_from_the_cache(run: tuple[Path, int, str], tmp_path: Path) -> None:
    """The replies are cached, so they are diagnosed; after this run, the whole result is."""
    assert run[1] == INCOMPLETE
    diagnoses = []
    for name in ("second", "third"):
        assert main([*ASKED, str(tmp_path / name)]) == REJECTED
        logged = records(tmp_path / name)
        assert all(record["cached"] for record in logged if record["type"] == "cell" and "seconds" in record)
        diagnoses += [record for record in logged if record["type"] == "diagnosis"]
    assert ["fault" in each for each in diagnoses] == [False, False]
    assert [each["causes"][0]["decisions"] for each in diagnoses] == [{"polarity[attn_mask]": "ignore"}] * 2


def test_a_single_call_whose_causes_cannot_be_searched_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search within one call fails, that of the whole subject does not: both verdicts and causes are there."""

    def broken(*_: Any) -> None:
        raise ZeroDivisionError("no explanation")

    monkeypatch.setenv("CONFORMANCE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("conformance.engine.judging.explained", broken)
    assert main([*ASKED, str(tmp_path / "out")]) == INCOMPLETE
    (said,) = json.loads((tmp_path / "out" / "verdict.json").read_text(encoding="utf-8"))["gate"]["incomplete"]
    assert "ended in an internal error (ZeroDivisionError: no explanation), so causes may be missing" in said
    logged = records(tmp_path / "out")
    assert sum(record["type"] == "cell" and record["verdict"] == "fail" for record in logged) > 1
    (diagnosis,) = (record for record in logged if record["type"] == "diagnosis")
    assert "in broken" in diagnosis["fault"]
    assert diagnosis["causes"][0]["decisions"] == {"polarity[attn_mask]": "ignore"}
