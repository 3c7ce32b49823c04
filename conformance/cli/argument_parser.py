"""
The argument parser of a command, and the errors of the command line.

It prints a summary and an example, ends with exit code 4 for wrong usage, and suggests the nearest word for a typo.
"""

import argparse
import difflib
import errno
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

from conformance.disk import see_writable
from conformance.gate.decision import USAGE
from conformance.spec.mistakes import nearest
from conformance.spec.texts import capital

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
        description=f"{capital(summary)}.",
        epilog=f"example: conformance {example}",
        allow_abbrev=False,
    )


class UsageError(Exception):
    """The user gave a wrong argument; the message says what to do."""


class EnvironmentFault(Exception):  # noqa: N818 - neither our error nor the user's
    """The machine prevents us from continuing; the message says what is wrong and what to do."""


# Errors of the operating system that are faults of the environment: a full disk, a limit, a forbidden file.
FAULTS = frozenset(
    {
        *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.EACCES, errno.EPERM),
        *(errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENAMETOOLONG, errno.ESTALE),
    }
)


# Those of them that another folder name does not solve.
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


def resumable(error: OSError, folder: Path) -> EnvironmentFault:
    """Return the fault that stopped a run, with the options that resume it."""
    again = f"continue with --out {shlex.quote(str(folder))} --resume"
    return EnvironmentFault(f"{sentence(error)}; when this is fixed, {again}")


def is_fault(error: OSError) -> bool:
    """Return whether an error is a fault of the environment and not a bug."""
    return error.errno in FAULTS or isinstance(error, shutil.Error)


def sentence(error: OSError) -> str:
    """Return the message of the operating system, with the path."""
    if isinstance(error, shutil.Error):
        return "; ".join(f"{path}: {why}" for _, path, why in error.args[0])
    where = f"{error.filename}: " if error.filename is not None else ""
    return f"{where}{error.strerror or error}"


def see_writable_files(*paths: Path | None) -> None:
    """
    Check, before anything runs, that these files can be written.

    Raises:
        UsageError: a file cannot be written.
    """
    for path in paths:
        try:
            if path is not None:
                see_writable(path)
        except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: a loop of links; ValueError: a NUL
            why = error.strerror if isinstance(error, OSError) else error
            raise UsageError(f"{path} cannot be written: {why}; nothing was run: name another file") from error


def see_run(folder: Path) -> None:
    """
    Check that a run folder exists.

    Raises:
        UsageError: it does not; the message suggests the nearest name.
    """
    if not folder.exists():
        raise absent("run folder", folder)


def absent(kind: str, path: Path) -> UsageError:
    """Return the error for a path that is missing, with the nearest name in its folder, or that is something else."""
    if path.exists():
        return UsageError(f"{path} is not a {kind}")
    names = sorted(each.name for each in path.parent.glob("*"))
    near = difflib.get_close_matches(path.name, names, 1)
    hint = f"; did you mean {path.parent / near[0]}?" if near else ""
    return UsageError(f"there is no {kind} {path}{hint}")
