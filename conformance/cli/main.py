"""The entry point: it runs one command and returns its exit code."""

import argparse
import importlib
import os
import sys
import traceback
from collections.abc import Callable, Sequence

from conformance.cli.errors import EnvironmentFault, UsageError, is_fault, sentence
from conformance.cli.parser import build_parser
from conformance.cli.standard_streams import ended_by_signals, tolerate_closed_streams
from conformance.gate.decision import CONFORMS, INTERNAL, INTERRUPTED, USAGE
from conformance.spec.mistakes import CaseFileErrors


def _function(command: str) -> Callable[[argparse.Namespace], int]:
    """Import the function of one command (`module:name`) only when it runs, because --help needs none of them."""
    module, _, name = command.partition(":")
    function: Callable[[argparse.Namespace], int] = getattr(importlib.import_module(f"conformance.cli.{module}"), name)
    return function


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code (docs/exit-codes.md)."""
    with tolerate_closed_streams() as (out, _), ended_by_signals():
        parser = build_parser()
        if "_ARGCOMPLETE" in os.environ:
            importlib.import_module("conformance.cli.command_completion").answer(parser)
        arguments = parser.parse_args(argv)
        code = _ended(arguments)
        out.flush()
        return _reported(code, out.fault, arguments)


def _ended(arguments: argparse.Namespace) -> int:
    """Run the command, and turn every exception into an exit code."""
    try:
        return int(_function(arguments.command)(arguments))
    except CaseFileErrors as error:
        count = len(error.mistakes)
        print(error, file=sys.stderr)
        print(f"{count} {'mistake' if count == 1 else 'mistakes'}; nothing was run", file=sys.stderr)
        return USAGE
    except UsageError as error:
        print(f"conformance: {error}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt as error:
        print(f"conformance: {error if error.args else 'interrupted'}", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - a bug must not look like a verdict
        _report(error)
        return INTERNAL


def _report(error: Exception) -> None:
    """Print what ended the command: a fault of the environment as one sentence, a bug with its traceback."""
    if isinstance(error, EnvironmentFault):
        print(f"conformance: {error}", file=sys.stderr)
    elif isinstance(error, OSError) and is_fault(error):
        print(f"conformance: {sentence(error)}", file=sys.stderr)
    else:
        traceback.print_exc()
        print("conformance: internal error: please report it with the text above", file=sys.stderr)


def _reported(code: int, fault: OSError | None, arguments: argparse.Namespace) -> int:
    """
    Return the exit code, which changes if stdout could not be written.

    A command that only prints fails then; a command that writes a folder keeps its exit code. A closed pipe, such as
    `| head`, changes nothing, because the reader wanted no more.
    """
    if fault is None or isinstance(fault, BrokenPipeError):
        return code
    print(f"conformance: standard output cannot be written: {sentence(fault)}", file=sys.stderr)
    return INTERNAL if code == CONFORMS and not hasattr(arguments, "out") else code
