"""Run the command line as users do, and read the log of a run."""

import atexit
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import IO, Any

SERVER = Path(__file__).parent / "command_server.py"


def conformance(
    *words: str, cwd: Path | None = None, env: Mapping[str, str] | None = None, patience: float | None = 1800
) -> "subprocess.CompletedProcess[str]":
    """Run one command in a new process. env: variables that are added to our own. patience: the timeout in seconds."""
    with tempfile.TemporaryDirectory() as folder:
        said = {name: Path(folder) / name for name in ("stdout", "stderr")}
        for file in said.values():
            file.touch()
        request = {
            "words": words,
            "cwd": str(cwd or Path.cwd()),
            "env": {**os.environ, **(env or {})},
            **{name: str(file) for name, file in said.items()},
        }
        code = _served(request, patience)
        return subprocess.CompletedProcess(words, code, *(file.read_text(encoding="utf-8") for file in said.values()))


@cache
def _server() -> "subprocess.Popen[bytes]":
    """The process that runs the commands of this process; it ends with it. Its pipes keep nothing back."""
    server = subprocess.Popen([sys.executable, str(SERVER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    atexit.register(server.kill)
    return server


def _served(request: Mapping[str, Any], patience: float | None) -> int:
    """
    The return code of a command.

    Raises:
        TimeoutExpired: it took longer than `patience` seconds, and was killed.
    """
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(json.dumps(request).encode() + b"\n")
    process = int(server.stdout.readline())
    timely = _readable(server.stdout, patience)
    if not timely:
        os.kill(process, signal.SIGKILL)
    code = int(server.stdout.readline())
    if not timely and patience is not None:
        raise subprocess.TimeoutExpired(request["words"], patience)
    return code


def _readable(stream: IO[bytes], patience: float | None) -> bool:
    """Whether the stream has something to read before the time is over."""
    return bool(select.select([stream], [], [], patience)[0])


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
