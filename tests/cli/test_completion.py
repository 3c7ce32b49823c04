"""Shell completion of commands, options, choices, subjects and case ids; the script for bash is run."""

import subprocess
import sys
from pathlib import Path

import pytest

from conformance.cli.main import main

ASK = """
source <(conformance completion bash)
COMP_LINE="$1"; COMP_POINT=${#1}; COMP_TYPE=9
_python_argcomplete conformance
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def bash(tmp_path: Path) -> dict[str, str]:
    """Environment variables with which bash finds the command."""
    script = tmp_path / "conformance"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m conformance "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    return {"PATH": f"{tmp_path}:/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parents[2])}


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("conformance ru", ["run"]),
        ("conformance run --last", ["--last-failed"]),
        ("conformance schema ver", ["verdict"]),
        ("conformance run -a numpy.s", ["numpy.sdpa"]),
        ("conformance run -k masks/key", ["masks/key_padding/"]),
        ("conformance run --out pypro", []),
    ],
)
def test_bash_completes(bash: dict[str, str], line: str, completed: list[str], tmp_path: Path) -> None:
    done = subprocess.run(
        ["bash", "-c", ASK, "ask", line], env=bash, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    found = [word.strip() for word in done.stdout.split("\v") if word.strip()]
    words = [word for entry in found for word in entry.split("\n")]
    assert words[: len(completed)] == completed, done.stderr
    assert bool(words) == bool(completed)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_says_where_it_goes(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith("# ")
    assert f"conformance completion {shell}" in first
    assert any("_ARGCOMPLETE" in line for line in lines)


def test_without_the_library_it_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "argcomplete", None)
    assert main(["completion", "bash"]) == 4
    said = "conformance: completion needs argcomplete: python -m pip install argcomplete\n"
    assert capsys.readouterr().err == said
