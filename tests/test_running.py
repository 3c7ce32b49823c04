"""The commands that tests run: each is a process of its own, with its own folder, variables and streams."""

import subprocess
import sys
from pathlib import Path

import pytest

from .running import conformance, records

SLOW = Path(__file__).parent / "fakes" / "liar.py"


def test_a_command_ends_as_in_a_process_that_is_started_for_it(tmp_path: Path) -> None:
    for words in (["list", "cases", "-k", "masks/attention_2d/holes*"], ["check", "nowhere.py:f"], ["--help"]):
        here = conformance(*words, cwd=tmp_path)
        command = [sys.executable, "-m", "conformance", *words]
        there = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
        assert (here.returncode, here.stdout, here.stderr) == (there.returncode, there.stdout, there.stderr)


def test_a_command_has_the_variables_and_the_folder_that_it_is_given(tmp_path: Path) -> None:
    command = ("run", "-a", "numpy.sdpa", "-k", "masks/attention_2d/holes*", "--out", "out")
    done = conformance(*command, cwd=tmp_path, env={"CONFORMANCE_CACHE": str(tmp_path / "cache")})
    assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"out", "cache"}
    assert records(tmp_path / "out")[0]["command"] == ["conformance", *command]


def test_a_command_that_takes_too_long_is_killed(tmp_path: Path) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        conformance("run", "-a", f"{SLOW}[hang]", "--out", str(tmp_path / "out"), patience=1.0)
    assert conformance("--help").returncode == 0
