"""The table of replays names only what exists, and the script that replays its rows detects wrong results."""

import json
import re
import runpy
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from packaging.version import Version

from conformance import places
from conformance.engine.adapters import read_adapters, subjects_of
from conformance.spec.loader import load
from conformance.spec.mistakes import matches

SCRIPT = Path(__file__).parents[1] / "replays" / "replay.py"
replay = SimpleNamespace(**runpy.run_path(str(SCRIPT)))
ROWS = {row["id"]: row for row in replay.rows([])}


def test_rows_are_chosen_by_glob() -> None:
    assert len(ROWS) >= 10
    assert {row["id"].partition("_")[0] for row in replay.rows(["ort_*"])} == {"ort"}


@pytest.mark.parametrize("name", ROWS)
def test_a_row_names_releases_a_subject_and_cases_that_exist(name: str) -> None:
    row = ROWS[name]
    assert row.keys() - {"both", "change"} == {
        *("id", "package", "bad", "good", "neighbours", "subject", "cases", "says", "link"),
    }
    assert Version(row["bad"]) != Version(row["good"])
    assert len({Version(version) for version in row["neighbours"]}) == 2
    re.compile(row["says"])
    subjects = {subject.name: subject for subject in subjects_of(read_adapters([places.adapters()]))}
    assert row["subject"] in subjects
    ids = [case.id for case in load([places.cases()], places.cases())]
    assert [glob for glob in row["cases"] if not any(matches(glob, case) for case in ids)] == []


def test_the_page_tells_what_every_row_came_to() -> None:
    page = (Path(__file__).parents[2] / "docs" / "upgrading.md").read_text(encoding="utf-8")
    told = dict(re.findall(r"^\| `(\w+)` \|(.*)\|$", page, re.MULTILINE))
    assert told.keys() == ROWS.keys()
    for name, row in ROWS.items():
        good, bad, said, calm = (cell.strip() for cell in told[name].split(" | "))
        assert (good, bad) == (f"{row['package']} {row['good']}", row["bad"])
        assert re.search(row["says"], said)
        assert calm.startswith(f"{row['neighbours'][0]} to {row['neighbours'][1]}: ")


ROW = {
    "id": "one",
    "package": "frame",
    "bad": "1.0",
    "good": "2.0",
    "neighbours": ["2.0", "2.1"],
    "subject": "frame.sdpa",
    "cases": ["*"],
    "says": "is ignored",
}
RIGHT = {
    "there": {"exit_code": 1, "headline": "Regressed: frame 1.0: is_causal is ignored"},
    "back": {"exit_code": 0, "headline": "Nothing regressed. Fixed: frame 2.0"},
    "neighbours": {"exit_code": 0, "headline": "Unchanged: 3 verdicts on 1 subject"},
}


def replayed(monkeypatch: pytest.MonkeyPatch, found: Mapping[str, Any]) -> list[bool]:
    """Whether the script accepts each trial of a row whose commands have these results."""

    def conformance(words: list[str], out: Path) -> Any:
        assert words[0] == ("compare" if out.name == "back" else "upgrade")
        return found[out.name]

    monkeypatch.setitem(replay.trials.__globals__, "conformance", conformance)
    return [right for _, right, _ in replay.trials(ROW, Path("out"), [])]


def test_a_row_that_comes_out_as_it_should(monkeypatch: pytest.MonkeyPatch) -> None:
    assert replayed(monkeypatch, RIGHT) == [True, True, True]


@pytest.mark.parametrize(
    ("place", "found", "at"),
    [
        ("there", {"exit_code": 0, "headline": "Unchanged: is ignored"}, 0),
        ("there", {"exit_code": 7, "headline": "Incomplete: is ignored"}, 0),
        ("there", {"exit_code": 1, "headline": "Regressed: frame 1.0: another sentence"}, 0),
        ("back", {"exit_code": 1, "headline": "Fails in another way than before"}, 1),
        ("back", {"exit_code": 0, "headline": "Unchanged: 3 verdicts on 1 subject"}, 1),
        ("neighbours", {"exit_code": 1, "headline": "Regressed"}, 2),
        ("neighbours", {"exit_code": 7, "headline": "Incomplete"}, 2),
    ],
)
def test_what_should_not_be_is_found(
    monkeypatch: pytest.MonkeyPatch, place: str, found: Mapping[str, Any], at: int
) -> None:
    assert replayed(monkeypatch, {**RIGHT, place: found}) == [number != at for number in range(3)]


def test_a_command_that_fails_gives_its_last_words(tmp_path: Path) -> None:
    found = replay.conformance(["upgrade", "nothing"], tmp_path)
    assert found["exit_code"] == 4
    assert "expected NAME==VERSION" in found["headline"]
    (tmp_path / "comparison.json").write_text(json.dumps(RIGHT["back"]), encoding="utf-8")
    assert replay.conformance(["upgrade", "nothing"], tmp_path) == RIGHT["back"]
