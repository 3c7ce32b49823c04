"""Run the command line as users do, and read the log of a run."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def conformance(
    *words: str, cwd: Path | None = None, env: Mapping[str, str] | None = None, patience: float | None = 1800
) -> subprocess.CompletedProcess[str]:
    """Run one command. env: variables that are added to our own. patience: the timeout in seconds."""
    command = [sys.executable, "-m", "conformance", *words]
    variables = {**os.environ, **(env or {})}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=patience, check=False, cwd=cwd, env=variables
    )


def with_suite(folder: Path, text: str) -> Path:
    """Write the suite `small` into the cases of a project, and return the project."""
    (folder / "cases").mkdir(exist_ok=True)
    (folder / "cases" / "small.yaml").write_text(text, encoding="utf-8")
    return folder


def records(folder: Path) -> list[dict[str, Any]]:
    """Return the records of a run folder."""
    return [json.loads(line) for line in (folder / "run.jsonl").read_text(encoding="utf-8").splitlines()]


def cells(folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the cells of a run folder, by case and subject."""
    return {(each["case"], each["subject"]): each for each in records(folder) if each["type"] == "cell"}
