"""
What two sides of an upgrade consist of: versions that differ, versions that are the same, and what they stand on.

What nobody pins is as it is locked, or else as pip resolves it, once for both sides.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from conformance.engine.environments import OLDEST_NUMPY
from conformance.engine.provision import Recipe

# Canonical name of a distribution -> version.
Pins = Mapping[str, str]

# What is not installed without a version.
NEVER_NEWEST = {"torch": "its newest build brings gigabytes of CUDA"}


class PinError(ValueError):
    """Pins that make no two sides; the text says what to write."""


@dataclass(frozen=True)
class Sides:
    """base, candidate: what differs, with one version each. both: what is pinned to the same version."""

    base: Pins
    candidate: Pins
    both: Pins

    def __str__(self) -> str:
        return ", ".join(f"{name} {self.base[name]} -> {version}" for name, version in self.candidate.items())


@dataclass(frozen=True)
class Locked:
    """
    What is not pinned.

    versions: of what is installed or locked. constraints: lines that pip is given. source: where they stand.
    """

    versions: Pins
    constraints: tuple[str, ...] = ()
    source: str = "installed here"


def read_pins(given: Sequence[str], both: Sequence[str], locked: Locked) -> Sides:
    """
    The sides of `NAME==VERSION` arguments: of a name the first is base, the second candidate.

    A name that is given once is the candidate, against what is locked. both: pins of both sides.

    Raises:
        PinError: one is no pin, one is given too often, or there is nothing to compare it with.
    """
    same = dict(parse_pin(text) for text in both)
    versions: dict[str, list[str]] = {}
    for name, version in map(parse_pin, given):
        versions.setdefault(name, []).append(version)
    base, candidate = {}, {}
    for name, found in versions.items():
        if name in same:
            raise PinError(f"{name} is given twice, as an upgrade and with --both: leave one out")
        base[name], candidate[name] = _two(name, found, locked)
    return Sides(base, candidate, same)


def _two(name: str, found: Sequence[str], locked: Locked) -> tuple[str, str]:
    """Base and candidate of one name."""
    if len(found) == 1:
        if name not in locked.versions:
            raise PinError(f"{name}=={found[0]} alone: it is not {locked.source}; name both: {name}==OLD {name}==NEW")
        found = [Version(locked.versions[name]).public, *found]
    if len(found) > 2:  # noqa: PLR2004 - two sides
        raise PinError(f"{name} is given {len(found)} times: the first is base, the second candidate")
    if Version(found[0]) == Version(found[1]):
        raise PinError(f"{name} is {found[0]} on both sides: nothing changes")
    return found[0], found[1]


def parse_pin(text: str) -> tuple[str, str]:
    """
    Name and version of `NAME==VERSION`.

    Raises:
        PinError: it is something else.
    """
    name, equals, version = text.partition("==")
    try:
        Requirement(text)
        Version(version)
    except (InvalidRequirement, InvalidVersion):
        equals = ""
    if not equals or not re.fullmatch(r"[A-Za-z0-9._-]+", name):
        raise PinError(f"{text!r}: expected NAME==VERSION, such as keras==3.15.0")
    return canonicalize_name(name), version


def read_constraints(file: Path) -> Locked:
    """
    What a constraint file, or a file of pinned requirements, locks; hashes and options of pip in it are left out.

    Raises:
        PinError: it cannot be read, or a line is no requirement.
    """
    try:
        text = file.read_text(encoding="utf-8").replace("\\\n", " ")
    except (OSError, UnicodeDecodeError) as error:
        raise PinError(f"{file} cannot be read: {error}") from None
    versions: dict[str, str] = {}
    lines = []
    for number, raw in enumerate(text.splitlines(), 1):
        line = re.sub(r"(^|\s)#.*|\s--hash=\S+", "", raw).strip()
        if not line or line.startswith("-"):
            continue
        try:
            requirement = Requirement(line)
        except InvalidRequirement as error:
            raise PinError(f"{file}:{number}: {line!r} is no requirement: {error}") from None
        if requirement.marker is None or requirement.marker.evaluate():
            lines.append(line)
            versions |= {
                canonicalize_name(requirement.name): s.version for s in requirement.specifier if s.operator == "=="
            }
    return Locked(versions, tuple(lines), f"locked in {file}")


def chosen(requires: Iterable[tuple[str, ...]], sides: Sides, locked: Locked) -> list[str]:
    """Of each choice the requirement that is pinned, or locked, or the first."""
    found = []
    for choice in requires:
        for versions in (sides.candidate, sides.both, locked.versions):
            known = [text for text in choice if canonicalize_name(Requirement(text).name) in versions]
            if known:
                found.append(known[0])
                break
        else:
            found.append(choice[0])
    return found


def without_version(requires: Iterable[tuple[str, ...]], sides: Sides, locked: Locked) -> list[str]:
    """What of the requirements nobody gives a version, and cannot do without one."""
    names = [canonicalize_name(Requirement(text).name) for text in chosen(requires, sides, locked)]
    given = {*sides.candidate, *sides.both, *locked.versions}
    return [name for name in names if name in NEVER_NEWEST and name not in given]


def recipes(python: str, requires: Iterable[tuple[str, ...]], sides: Sides, locked: Locked) -> tuple[Recipe, Recipe]:
    """
    The environments of base and candidate, over one that they share; `python` makes them.

    What is locked holds for the shared one alone: a pin may change what it needs (jax its jaxlib), and nothing else.
    """
    shared: dict[str, str] = {"numpy": f"numpy>={OLDEST_NUMPY}"} | {n: f"{n}=={v}" for n, v in sides.both.items()}
    for text in ["numpy", *chosen(requires, sides, locked)]:
        name = canonicalize_name(Requirement(text).name)
        if name in sides.candidate or name in sides.both:
            continue
        version = locked.versions.get(name)
        shared[name] = f"{name}=={Version(version).public}" if version else shared.get(name, text)
    if "numpy" in sides.candidate:
        del shared["numpy"]
    free = tuple(line for line in locked.constraints if not _pinned(line, {**sides.candidate, **sides.both}))
    under = Recipe(python, tuple(sorted(shared.values())), free)
    same = tuple(f"{name}=={version}" for name, version in sides.both.items())
    base, candidate = (
        Recipe(python, (*(f"{name}=={version}" for name, version in side.items()), *same), _kept(sides, locked), under)
        for side in (sides.base, sides.candidate)
    )
    return base, candidate


def _pinned(line: str, pins: Pins) -> bool:
    return canonicalize_name(Requirement(line).name) in pins


def _kept(sides: Sides, locked: Locked) -> tuple[str, ...]:
    """What pip may not move either, whatever a pin needs."""
    names = [name for name in NEVER_NEWEST if name in locked.versions and name not in {**sides.candidate, **sides.both}]
    return tuple(f"{name}=={Version(locked.versions[name]).public}" for name in names)
