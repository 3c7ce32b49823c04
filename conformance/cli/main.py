"""The entry point: from arguments to an exit code."""

import argparse
import importlib
import os
import sys
import traceback
from collections.abc import Callable, Sequence

from conformance.cli.errors import UsageError
from conformance.cli.parser import build_parser
from conformance.gate.decide import INTERNAL, INTERRUPTED, USAGE
from conformance.spec.mistakes import CaseFileErrors


def _function(command: str) -> Callable[[argparse.Namespace], int]:
    """Import the function of one command (`module:name`): `--help` needs none of them."""
    module, _, name = command.partition(":")
    function: Callable[[argparse.Namespace], int] = getattr(importlib.import_module(f"conformance.cli.{module}"), name)
    return function


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code (docs/exit-codes.md)."""
    parser = build_parser()
    if "_ARGCOMPLETE" in os.environ:
        importlib.import_module("conformance.cli.completion").answer(parser)
    arguments = parser.parse_args(argv)
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
    except KeyboardInterrupt:
        print("conformance: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of stdout has gone (`| head`): nothing is left to say, also not at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return INTERRUPTED
    except Exception:  # noqa: BLE001 - the last resort: a bug of ours must not look like a verdict
        traceback.print_exc()
        print("conformance: internal error: please report it with the text above", file=sys.stderr)
        return INTERNAL
