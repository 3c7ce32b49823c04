"""The parser of a command: its summary, its example, our exit code for wrong usage, and what may have been meant."""

import argparse
import difflib
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn, TypeAlias

from conformance.gate.decision import USAGE
from conformance.spec.mistakes import nearest

# How much is told.
QUIET, PLAIN, VERBOSE = -1, 0, 1

# How similar an option must be to be meant.
_MIN_SIMILARITY = 0.5
# As many choices are all named.
_MAX_CHOICES = 4


class Parser(argparse.ArgumentParser):
    """argparse with our exit code for wrong usage, and with the nearest word for one that there is not."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, how the command is used, and exit with 4."""
        self.print_usage(sys.stderr)
        print(f"{self.prog}: {message}; see {self.prog} --help", file=sys.stderr)
        raise SystemExit(USAGE)

    def parse_known_args(  # type: ignore[override]  # one signature for the two of the base
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parse; what this command does not take is told here, where its options are known."""
        words = list(sys.argv[1:] if args is None else args)
        self._refuse_options(words)
        found, left = super().parse_known_args(words, namespace)
        if left:
            self.error(f"unexpected argument {left[0]!r}: what is no option stands together, not between options")
        return found, left

    def _refuse_options(self, words: Sequence[str]) -> None:
        """Tell an option that there is not, before anything that is missing."""
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
            hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(options)}"
            self.error(f"there is no option {name}{hint}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """
        Tell a choice that there is not.

        Raises:
            argparse.ArgumentError: with the nearest one, or all of few.
        """
        if action.choices is not None and value not in action.choices:
            choices = [str(choice) for choice in action.choices]
            few = len(choices) <= _MAX_CHOICES
            hint = f"; there are {', '.join(choices)}" if few else nearest(value, choices)
            raise argparse.ArgumentError(action, f"invalid choice: {value!r}{hint}")


# What add_subparsers returns.
Commands: TypeAlias = "argparse._SubParsersAction[Parser]"  # noqa: SLF001 - it has no public name


def command(commands: Commands, name: str, summary: str, example: str) -> Parser:
    """Add a command; the example is one without the word conformance."""
    return commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=f"example: conformance {example}",
        allow_abbrev=False,
    )
