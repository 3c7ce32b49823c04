"""
Every example that `--help` shows works.

Examples in RUN run unchanged, in a folder with our own cases and two runs. Examples in COLLECTED run with
--collect-only. Examples in PREPARED stop before pip is asked for versions. Examples in PARSED take a minute or need
what is not installed here, so they are only parsed; tests/checking, tests/cli/test_probe.py and tests/golden run such
commands.
"""

import argparse
import shlex
import shutil
from pathlib import Path
from typing import Any, NoReturn

import pytest

from conformance.cli import provisioning
from conformance.cli.argument_parser import UsageError
from conformance.cli.main import main
from conformance.cli.parser import build_parser

from ..parsers import COMMANDS

ROOT = Path(__file__).parents[2]
RUN = {
    *("list", "list cases", "list adapters", "validate", "explain", "schema", "report", "repro", "compare"),
    *("known", "known update", "completion"),
}
COLLECTED = {"", "run", "smoke", "probe"}
PREPARED = {"upgrade", "bisect"}
PARSED = {"check", "port", "audit", "import", "import onnx"}
EXAMPLES = {
    parser.prog.removeprefix("conformance").strip(): shlex.split(
        (parser.epilog or "").partition("example: conformance ")[2].partition(" > ")[0]
    )
    for parser in COMMANDS
}


def test_every_command_has_an_example_that_is_tried() -> None:
    assert set(EXAMPLES) == RUN | COLLECTED | PREPARED | PARSED
    assert len(EXAMPLES) == len(RUN) + len(COLLECTED) + len(PREPARED) + len(PARSED)
    for command, words in EXAMPLES.items():
        assert words[: len(command.split())] == command.split() or command in ("list", "known", "import", "")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with our own cases, a list of known deviations, and two runs of a few calls."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "cases").symlink_to(ROOT / "cases")
    (folder / "mine.yaml").write_text("format: 1\ndeviations: []\n", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        words = ["run", "-q", "-a", "numpy.sdpa", "-k", "masks/key_padding/trailing*"]
        assert main([*words, "--out", "reports/before"]) == 0
    for name in ("after", "latest"):
        shutil.copytree(folder / "reports" / "before", folder / "reports" / name)
    return folder


@pytest.mark.parametrize("command", sorted(RUN))
def test_an_example_runs(command: str, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(runs)
    assert main(EXAMPLES[command]) == 0


@pytest.mark.parametrize("command", sorted(COLLECTED))
def test_an_example_is_collected(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*EXAMPLES[command], "--collect-only"]) in (0, 7), "7: the framework is not installed here"
    assert capsys.readouterr().out.endswith("; nothing was started\n")


@pytest.mark.parametrize("command", sorted(PREPARED))
def test_an_example_is_prepared(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*_: Any) -> NoReturn:
        raise UsageError("here versions are asked for")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONFORMANCE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(provisioning, "refuse_absent", stop)
    lock = tmp_path / "lock.txt"
    lock.write_text("torch==2.13.0\n", encoding="utf-8")
    assert main([*EXAMPLES[command], "--constraint", str(lock)]) == 4
    assert capsys.readouterr().err == "conformance: here versions are asked for\n"


@pytest.mark.parametrize("command", sorted(PARSED))
def test_an_example_is_parsed(command: str) -> None:
    words = EXAMPLES[command]
    of_words = (each for each in COMMANDS if words[: len(names := each.prog.split()[1:])] == names)
    parser = max(of_words, key=lambda each: len(each.prog))
    found: argparse.Namespace = build_parser().parse_args(words)
    assert found.command == parser.get_default("command")
