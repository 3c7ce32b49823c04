"""
The program of action.yml: it runs the command in the inputs of the action (docs/ci.md).

The inputs are passed as environment variables, so that no text of a workflow becomes part of a script.
"""

import os
import shlex
import sys
from collections.abc import Iterator, Mapping

from conformance.cli.argument_parser import UsageError
from conformance.cli.main import main
from conformance.gate.decision import USAGE
from conformance.report.annotations import command

COMMAND = "conformance"


def run_action(inputs: Mapping[str, str]) -> int:
    """
    Run the command in ARGUMENTS with annotations and with reports in FOLDER, and return the exit code.

    A mistake in ARGUMENTS is reported as an annotation, because users rarely read the log.
    """
    try:
        words = read_arguments(inputs.get("ARGUMENTS", ""))
    except UsageError as error:
        print(command("error", str(error), "arguments"))
        return USAGE
    return main([*words, "--out", inputs["FOLDER"], "--annotations", "github"])


def read_arguments(text: str) -> list[str]:
    """
    Split each line as a shell does, but without expanding globs.

    Raises:
        UsageError: the text is empty, a quote is not closed in its line, or the text begins with `conformance`.
    """
    words = [word for number, line in enumerate(text.splitlines(), 1) for word in _words(line, number)]
    if not words:
        raise UsageError("arguments are empty: write what follows `conformance`, such as run -a torch.sdpa")
    if words[0] == COMMAND:
        raise UsageError(f"arguments begin with {COMMAND}, which the action adds itself: leave it out")
    return words


def _words(line: str, number: int) -> Iterator[str]:
    try:
        yield from shlex.split(line)
    except ValueError as error:
        fault = "it ends in a backslash" if "escaped" in str(error) else "a quote is not closed"
        remedy = "each line is split separately, so close its quotes in the same line"
        raise UsageError(f"line {number} of arguments: {fault}: {line.strip()}\n{remedy}") from None


if __name__ == "__main__":
    sys.exit(run_action(os.environ))
