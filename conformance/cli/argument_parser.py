"""The argument parser of a command: summary, example, exit code 4 for wrong usage, and suggestions for typos."""

import argparse
import difflib
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn, TypeAlias

from conformance.gate.decision import USAGE
from conformance.spec.mistakes import nearest

# Levels of output.
QUIET, PLAIN, VERBOSE = -1, 0, 1

# Minimum similarity of an option that is suggested for a mistyped one.
_MIN_SIMILARITY = 0.5
# Lists of up to this length are printed in full.
_MAX_CHOICES = 4


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that exits with 4 on wrong usage and suggests the nearest word for a mistyped one."""

    def error(self, message: str) -> NoReturn:
        """Print the usage and the message, and exit with 4."""
        self.print_usage(sys.stderr)
        print(f"{self.prog}: {message}; see {self.prog} --help", file=sys.stderr)
        raise SystemExit(USAGE)

    def parse_known_args(  # type: ignore[override]  # one signature for the two of the base
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parse the arguments, and exit with 4 if one is not accepted by this command."""
        words = list(sys.argv[1:] if args is None else args)
        self._refuse_options(words)
        found, left = super().parse_known_args(words, namespace)
        if left:
            self.error(f"unexpected argument {left[0]!r}: write positional arguments together, not between options")
        return found, left

    def _refuse_options(self, words: Sequence[str]) -> None:
        """Report an unknown option first, before argparse reports a missing argument."""
        for word in words:
            if word == "--" or (self._subparsers is not None and not word.startswith("-")):
                return
            name = word.partition("=")[0] if word.startswith("--") else word[:2]
            number = re.fullmatch(r"-\d*\.?\d+", word)
            if word.startswith("-") and word != "-" and " " not in word and not number:
                self._refuse(name)

    def _refuse(self, name: str) -> None:
        options = self._option_string_actions
        if name not in options:
            near = difflib.get_close_matches(name, options, 1, _MIN_SIMILARITY) if name.startswith("--") else ()
            hint = f"; did you mean {near[0]}?" if near else f"; the options are {', '.join(options)}"
            self.error(f"there is no option {name}{hint}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """
        Check that a value is one of the choices.

        Raises:
            argparse.ArgumentError: it is not; the message lists the choices, or suggests the nearest if there are many.
        """
        if action.choices is not None and value not in action.choices:
            choices = [str(choice) for choice in action.choices]
            few = len(choices) <= _MAX_CHOICES
            hint = f"; choose from {', '.join(choices)}" if few else nearest(value, choices)
            raise argparse.ArgumentError(action, f"invalid choice: {value!r}{hint}")


# The type that add_subparsers returns.
Commands: TypeAlias = "argparse._SubParsersAction[Parser]"  # noqa: SLF001 - it has no public name


def command(commands: Commands, name: str, summary: str, example: str) -> Parser:
    """Add a command. The example is a command line without the leading word conformance."""
    return commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=f"example: conformance {example}",
        allow_abbrev=False,
    )
