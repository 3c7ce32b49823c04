"""Functions that the commands with created environments share: pins, affected subjects, and the progress of pip."""

import argparse
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

from packaging.utils import canonicalize_name
from rich.markup import escape
from rich.status import Status

from conformance import places
from conformance.cli.argument_parser import UsageError
from conformance.cli.offer import adapters_of
from conformance.engine.adapters import AdapterError, SelectionError, Subject, select, subjects_of
from conformance.engine.environments import Environment, Unusable, distributions_of, examine, our_own
from conformance.engine.package_pins import Locked, PinError, Sides, read_constraints, unmet, without_version
from conformance.engine.provision import ProvisionError, absent, interpreter_of
from conformance.report.terminal import plain_console

# Minimum number of seconds between two progress lines if stderr is not a terminal.
EVERY = 10.0


def cache() -> Path:
    """Return the folder of created environments."""
    return places.cache() / "environments"


def maker(arguments: argparse.Namespace) -> tuple[str, Locked]:
    """
    Return the interpreter that creates environments, and the locked versions: of --constraint, or installed there.

    Raises:
        UsageError: the interpreter cannot be used, or the file cannot be read.
    """
    environment = _environment(arguments.python)
    if arguments.constraint is None:
        return interpreter_of(environment.python), Locked(environment.distributions)
    try:
        return interpreter_of(environment.python), read_constraints(arguments.constraint)
    except PinError as error:
        raise UsageError(str(error)) from error


def _environment(python: str | None) -> Environment:
    if python is None:
        return our_own()
    examined = examine("default", python, judges=False)
    if isinstance(examined, Unusable):
        raise UsageError(f"--python: {examined.reason}")
    return examined


def named_subjects(patterns: Sequence[str], device: str) -> list[Subject]:
    """
    Return the subjects that match the patterns, or all, whether or not their packages are installed.

    Raises:
        UsageError: an adapter file or a pattern cannot be used.
    """
    try:
        subjects = subjects_of(adapters_of(patterns), device)
        return select([subject for subject in subjects if device in subject.devices], patterns)
    except (AdapterError, SelectionError) as error:
        raise UsageError(str(error)) from error


def affected(subjects: Iterable[Subject], sides: Sides) -> list[Subject]:
    """Return the subjects that require a package whose version differs between the sides."""
    return [subject for subject in subjects if requirement_names(subject) & sides.candidate.keys()]


def requirement_names(subject: Subject) -> set[str]:
    """Return the canonical names of all packages that a subject may require."""
    return set(map(canonicalize_name, distributions_of(subject)))


def divided(subjects: Iterable[Subject], sides: Sides, locked: Locked) -> tuple[list[Subject], list[str]]:
    """Return the subjects that both sides can run, and sentences about the others."""
    kept = []
    left_out: dict[str, list[str]] = {}
    for subject in subjects:
        reason = unmet(subject.requires, sides, locked)
        if names := without_version(subject.requires, sides, locked):
            reason = f"{names[0]} is not {locked.source}, so its version is unknown: add --both {names[0]}==VERSION"
        if reason is None:
            kept.append(subject)
        elif subject.counted:
            left_out.setdefault(reason, []).append(subject.name)
    return kept, [f"left out: {', '.join(names)}: {reason}" for reason, names in left_out.items()]


def refuse_absent(python: str, sides: Sides, names: Sequence[str] = ("base", "candidate", "--both")) -> None:
    """
    Check that the package index has every version, before gigabytes are installed.

    names: the names of the sides, for the message.

    Raises:
        UsageError: a version does not exist; the message lists the newest and the nearest versions.
    """
    problems = []
    for side, pins in zip(names, (sides.base, sides.candidate, sides.both), strict=True):
        try:
            sentences = [absent(python, name, version) for name, version in pins.items()]
        except ProvisionError as error:
            raise UsageError(f"{side}: {error}") from error
        problems += [f"{side}: {sentence}" for sentence in sentences if sentence]
    if problems:
        raise UsageError("\n  ".join(problems))


def patterns_of(subjects: Iterable[Subject]) -> list[str]:
    """Return the values of `-a` that choose exactly these subjects, also if their adapters are not packaged."""
    packaged = places.adapters().absolute()
    return [
        subject.name
        if subject.adapter.path.parent == packaged
        else f"{subject.adapter.path}{subject.name.removeprefix(subject.adapter.name)}"
        for subject in subjects
    ]


class PipProgress:
    """Shows the progress of pip on stderr: its last line on a terminal, otherwise a line every few seconds."""

    def __init__(self) -> None:
        self._console = plain_console(sys.stderr)
        self._status = Status("", console=self._console)
        self._printed = time.monotonic()

    def __call__(self, line: str) -> None:
        """Show one line; the lines of pip are indented."""
        if self._console.is_terminal:
            self._status.update(escape(line.strip()[:100]))
            if line.startswith("  "):
                return
        elif line.startswith("  ") and time.monotonic() - self._printed < EVERY:
            return
        self._printed = time.monotonic()
        self._console.print(line)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._status.stop()
