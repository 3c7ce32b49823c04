"""
What action.yml runs: the command that its inputs say (docs/ci.md).

They come as environment variables, so that no text of a workflow is ever a part of a script.
"""

import os
import shlex
import sys
from collections.abc import Iterator, Mapping

from conformance.cli.errors import UsageError
from conformance.cli.main import main
from conformance.gate.decision import USAGE
from conformance.report.annotations import command

COMMAND = "conformance"


def run_action(inputs: Mapping[str, str]) -> int:
    """
    Run what ARGUMENTS say, with reports in FOLDER and annotations, and return the exit code.

    What is wrong with ARGUMENTS is an annotation, too: nobody looks for it in a log.
    """
    try:
        words = read_arguments(inputs.get("ARGUMENTS", ""))
    except UsageError as error:
        print(command("error", str(error), "arguments"))
        return USAGE
    return main([*words, "--out", inputs["FOLDER"], "--annotations", "github"])


def read_arguments(text: str) -> list[str]:
    """
    Split every line as a shell does, by itself: globs stay as they are.

    Raises:
        UsageError: there is none, a quote is not closed in its line, or what is run is said twice.
    """
    words = [word for number, line in enumerate(text.splitlines(), 1) for word in _words(line, number)]
    if not words:
        raise UsageError("arguments are empty: say what follows `conformance`, such as run -a torch.sdpa")
    if words[0] == COMMAND:
        raise UsageError(f"arguments begin with {COMMAND}, which is run anyway: leave it out")
    return words


def _words(line: str, number: int) -> Iterator[str]:
    try:
        yield from shlex.split(line)
    except ValueError as error:
        fault = "it ends in a backslash" if "escaped" in str(error) else "a quote is not closed"
        remedy = "each line is split by itself, and its quotes have to be closed in it"
        raise UsageError(f"line {number} of arguments: {fault}: {line.strip()}\n{remedy}") from None


if __name__ == "__main__":
    sys.exit(run_action(os.environ))
