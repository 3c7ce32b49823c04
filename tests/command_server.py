"""
A process that has imported the command line and forks for each command, so that each starts a second sooner.

Each line of its stdin is a request as JSON: words, cwd, env, stdout and stderr (files). It answers with the process id
of the command and then with its return code, each in a line. A command runs as `python -m conformance` does, in a
process of its own.
"""

import importlib
import io
import json
import os
import runpy
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def serve() -> None:
    """Answer requests until stdin ends."""
    _import_all()
    for line in sys.stdin:
        request = json.loads(line)
        process = os.fork()
        if not process:
            _become(request)
        _say(process)
        _, status = os.waitpid(process, 0)
        _say(os.waitstatus_to_exitcode(status))


def _import_all() -> None:
    """Import what commands import, read the packaged cases, and compile the page's template: commands inherit them."""
    cli = importlib.import_module("conformance.cli")
    for file in sorted(Path(str(cli.__file__)).parent.glob("*.py")):
        importlib.import_module(f"conformance.cli.{file.stem}")
    importlib.import_module("conformance.cli.case_choice").load_cases((), (), None)
    importlib.import_module("conformance.report.run_page").template()


def _say(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


def _become(request: Mapping[str, Any]) -> None:
    """In the new process: be the command, and exit as it does."""
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    sys.path[0] = request["cwd"]
    for descriptor, file in ((0, os.devnull), (1, request["stdout"]), (2, request["stderr"])):
        opened = os.open(file, os.O_RDWR)
        os.dup2(opened, descriptor)
        os.close(opened)
    sys.stdin = io.TextIOWrapper(io.FileIO(0), encoding="utf-8")
    sys.argv = ["conformance", *request["words"]]
    runpy.run_module("conformance", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    serve()
