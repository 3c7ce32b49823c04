"""A sample of the inputs of `nox -s fuzz`, and tests that a session can fail."""

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from . import fuzz
from .fuzz import Session, bears, input_of, shares
from .readers import READERS, USAGE, Reader, Shelf

SAMPLE = 250
BY_NAME = {reader.name: reader for reader in READERS}


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    return Shelf.made(tmp_path_factory.mktemp("fuzz"))


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_no_reader_raises_in_a_sample(reader: Reader, shelf: Shelf) -> None:
    session = Session(shelf, seed=1)
    session.run(reader, shares(SAMPLE, READERS)[reader.name])
    assert session.counts[reader.name] == shares(SAMPLE, READERS)[reader.name]
    assert [(failure.number, failure.said) for failure in session.failures] == []


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_the_real_files_are_good_and_an_input_depends_on_its_seed(reader: Reader, shelf: Shelf) -> None:
    read = [bears(reader, shelf, content) for content in shelf.corpus[reader.name]]
    assert not any(said for said, _ in read)
    # A suite without its array file is refused, and so is a command for a call that is not in the log.
    assert 2 * [code for _, code in read].count(USAGE) < len(read)
    one, same, other = (input_of(reader, shelf, seed, 5) for seed in (1, 1, 2))
    assert one == same != other


def _raises(_shelf: Shelf, content: bytes) -> int:
    return {b"": 0}[content[:0] + content[:1]]


def _says_internal(_shelf: Shelf, _content: bytes) -> int:
    return fuzz.INTERNAL


def _prints_a_traceback(_shelf: Shelf, _content: bytes) -> int:
    print("Traceback (most recent call last):", file=sys.stderr)  # noqa: T201 - as a command would
    return 0


def _loops(_shelf: Shelf, _content: bytes) -> int:
    while True:
        pass


@cache
def _peak_before() -> int:
    return int(fuzz.peak())


def _takes_memory(_shelf: Shelf, _content: bytes) -> int:
    """Allocate 400 MB more than the peak memory of this process, which other tests may have raised."""
    return len(b"x" * ((_peak_before() + 400) << 20)) * 0


@pytest.mark.parametrize(
    ("read", "said"),
    [
        (_raises, "KeyError"),
        (_says_internal, "exit code 3"),
        (_prints_a_traceback, "Traceback"),
        (_loops, "was given up after 0.2 s"),
        (_takes_memory, " MB"),
    ],
)
def test_a_reader_that_fails_is_caught(
    read: Callable[[Shelf, bytes], int], said: str, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fuzz, "HANG", 0.2 if read is _loops else 600.0)
    # On a busy machine, allocating the memory can exceed the time limit, which has its own test.
    monkeypatch.setattr(fuzz, "SECONDS", 600.0)
    session = Session(shelf, seed=1)
    session.run(replace(BY_NAME["cases"], read=read), 1)
    assert session.failures
    assert said in session.failures[0].said


def test_a_slow_reader_is_caught(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "SECONDS", 0.0)
    assert bears(BY_NAME["cases"], shelf, b"format: 1")[0].startswith("took ")


def test_a_session_ends_with_1_where_an_input_failed_and_keeps_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = (replace(BY_NAME["pyproject"], read=_raises),)
    monkeypatch.setattr(fuzz, "READERS", broken)
    assert fuzz.main(["--count", "3", "--seed", "4", "--keep", str(tmp_path / "kept")]) == 1
    assert len(list((tmp_path / "kept").iterdir())) == 3
    assert "pyproject: seed 4, 3 inputs, 0 refused, 3 failed" in capsys.readouterr().out
