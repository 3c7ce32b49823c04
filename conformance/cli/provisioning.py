"""What commands that make environments share: what is locked, who is affected, and telling how far pip is."""

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
from conformance.cli.errors import UsageError
from conformance.cli.offer import adapters_of
from conformance.engine.adapters import AdapterError, SelectionError, Subject, select, subjects_of
from conformance.engine.environments import Environment, Unusable, distributions_of, examine, our_own
from conformance.engine.package_pins import Locked, PinError, Sides, read_constraints, without_version
from conformance.engine.provision import ProvisionError, interpreter_of
from conformance.engine.releases import absent
from conformance.report.terminal import plain_console

# Seconds between two lines where stderr is no terminal.
EVERY = 10.0


def cache() -> Path:
    """Where environments are kept."""
    return places.cache() / "environments"


def maker(arguments: argparse.Namespace) -> tuple[str, Locked]:
    """
    The interpreter that makes environments, and what is locked: by --constraint, or as it is installed there.

    Raises:
        UsageError: the interpreter cannot be used, or the file cannot be read.
    """
    found = _asked(arguments.python)
    if arguments.constraint is None:
        return interpreter_of(found.python), Locked(found.distributions)
    try:
        return interpreter_of(found.python), read_constraints(arguments.constraint)
    except PinError as error:
        raise UsageError(str(error)) from error


def _asked(python: str | None) -> Environment:
    if python is None:
        return our_own()
    found = examine("default", python, judges=False)
    if isinstance(found, Unusable):
        raise UsageError(f"--python: {found.reason}")
    return found


def named_subjects(patterns: Sequence[str], device: str) -> list[Subject]:
    """
    The subjects that patterns ask for, or all, whatever is installed.

    Raises:
        UsageError: an adapter file or a pattern that cannot be used.
    """
    try:
        subjects = subjects_of(adapters_of(patterns), device)
        return select([subject for subject in subjects if device in subject.devices], patterns)
    except (AdapterError, SelectionError) as error:
        raise UsageError(str(error)) from error


def affected(subjects: Iterable[Subject], sides: Sides) -> list[Subject]:
    """Those that require something that differs."""
    return [subject for subject in subjects if requirement_names(subject) & sides.candidate.keys()]


def requirement_names(subject: Subject) -> set[str]:
    """The canonical names of everything that a subject may require."""
    return set(map(canonicalize_name, distributions_of(subject)))


def divided(subjects: Iterable[Subject], sides: Sides, locked: Locked) -> tuple[list[Subject], list[str]]:
    """Those that can be installed, and in sentences those that cannot, since a version is missing."""
    kept = []
    without: dict[str, list[str]] = {}
    for subject in subjects:
        if names := without_version(subject.requires, sides, locked):
            if subject.counted:
                without.setdefault(names[0], []).append(subject.name)
        else:
            kept.append(subject)
    return kept, [
        f"left out: {', '.join(left)}: {name} is not {locked.source}, and is not installed without a version: add "
        f"--both {name}==VERSION"
        for name, left in without.items()
    ]


def refuse_absent(python: str, sides: Sides, names: Sequence[str] = ("base", "candidate", "--both")) -> None:
    """
    Ask pip's index for every version, before gigabytes are installed beside one that there is not.

    names: what the sides are called.

    Raises:
        UsageError: pip does not find one; with the newest and the nearest ones.
    """
    said = []
    for called, pins in zip(names, (sides.base, sides.candidate, sides.both), strict=True):
        try:
            found = [absent(python, name, version) for name, version in pins.items()]
        except ProvisionError as error:
            raise UsageError(f"{called}: {error}") from error
        said += [f"{called}: {sentence}" for sentence in found if sentence]
    if said:
        raise UsageError("\n  ".join(said))


def patterns_of(subjects: Iterable[Subject]) -> list[str]:
    """What `-a` has to say to choose exactly these, also where their adapters are not ours."""
    ours = places.adapters().absolute()
    return [
        subject.name
        if subject.adapter.path.parent == ours
        else f"{subject.adapter.path}{subject.name.removeprefix(subject.adapter.name)}"
        for subject in subjects
    ]


class PipProgress:
    """Tells on stderr what pip does: its last line on a terminal, a line now and then elsewhere."""

    def __init__(self) -> None:
        self._console = plain_console(sys.stderr)
        self._status = Status("", console=self._console)
        self._told = time.monotonic()

    def __call__(self, line: str) -> None:
        """Take one line; those of pip are indented."""
        if self._console.is_terminal:
            self._status.update(escape(line.strip()[:100]))
            if line.startswith("  "):
                return
        elif line.startswith("  ") and time.monotonic() - self._told < EVERY:
            return
        self._told = time.monotonic()
        self._console.print(line)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._status.stop()
