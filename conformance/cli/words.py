"""The parser of a command: its summary, its example, our exit code for wrong usage."""

import argparse
import sys
from typing import NoReturn, TypeAlias

from conformance.gate.decide import USAGE


class Parser(argparse.ArgumentParser):
    """argparse with our exit code for wrong usage."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, how the command is used, and exit with 4."""
        self.print_usage(sys.stderr)
        print(f"{self.prog}: {message}; see {self.prog} --help", file=sys.stderr)
        raise SystemExit(USAGE)


Commands: TypeAlias = "argparse._SubParsersAction[Parser]"  # noqa: SLF001 - it has no public name
"""What add_subparsers returns."""


def command(commands: Commands, name: str, summary: str, example: str) -> Parser:
    """Add a command; the example is one without the word conformance."""
    return commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=f"example: conformance {example}",
        allow_abbrev=False,
    )
