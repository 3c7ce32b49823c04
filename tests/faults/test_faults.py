"""A small part of the fault session (`nox -s faults`), and tests that its checks can fail."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from . import faults
from .faults import Place, Whole


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Place, Whole]:
    place = Place(tmp_path_factory.mktemp("whole"))
    return place, faults.whole_run(place)


@pytest.fixture
def whole(judged: tuple[Place, Whole]) -> Whole:
    return judged[1]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="timers of the processor that kill are Linux's")
@pytest.mark.parametrize(("since", "moment"), [("start", 0.1), ("header", 0.3), ("footer", 0.05)])
def test_a_killed_run_is_finished_as_if_nothing_had_happened(
    place: Place, whole: Whole, since: str, moment: float
) -> None:
    found = faults.kill(since)(place, whole, moment)
    assert found is not None, "it ended before"
    stage, problems = found
    assert problems == [], stage


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_run_with_its_verdict_and_without_remains(
    place: Place, whole: Whole, number: signal.Signals
) -> None:
    assert faults.signalled(place, whole, number) == []


def test_a_file_size_limit_is_told_in_a_sentence(place: Place, whole: Whole) -> None:
    assert faults.limited(place, whole, 200_000) == []


@pytest.mark.parametrize("words", ["2>/dev/full", ">&- 2>&-"])
def test_streams_that_are_lost_change_neither_files_nor_exit_code(place: Place, whole: Whole, words: str) -> None:
    assert faults.streams(place, whole, words) == []


def test_a_file_that_cannot_be_written_is_told_before_anything_is_run(place: Place) -> None:
    assert faults.unwritable(place) == []


def test_a_run_has_one_owner(place: Place, whole: Whole) -> None:
    assert faults.second_owner(place, whole) == []


def test_report_restores_every_file(place: Place, whole: Whole) -> None:
    assert faults.restored(place, whole) == []


def test_whatever_is_missed_is_noticed(judged: tuple[Place, Whole]) -> None:
    place, whole = judged
    assert place.differs(whole, whole.code, "") == []
    assert place.differs(whole, 0, "why") == ["exit code 0, expected 1: why"]
    spoilt = replace(whole, verdict=b"{}", baseline=b"{}")
    assert place.differs(spoilt, whole.code, "") == ["verdict.json differs", "base.json differs"]
    left = (place.out / ".index.html.1-2-3.part", place.temporary / "conformance-x", place.out / "owner.json")
    for each in left:
        each.write_text("", encoding="utf-8")
    assert len(place.left_over()) == len(left)
    for each in left:
        each.unlink()


def test_a_process_that_lives_on_is_noticed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "GONE", 0.2)
    environ = os.environ | {"TMPDIR": str(place.temporary)}
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=environ) as process:
        assert place.living() == [f"process {process.pid} lives"]
        process.kill()
    assert place.living() == []


def test_a_kill_that_leaves_something_is_a_row_that_is_not_whole() -> None:
    row = faults.Row("kills")
    row.add("first", [])
    row.add("second", ["verdict.json differs"])
    assert str(row).split() == ["kills", "2", "1"]
    assert row.missed == ["second: verdict.json differs"]
