"""
The two sides of an upgrade: versions that differ, versions that are the same, and the base that both share.

A package without a pin has its locked version, or else the version that pip resolves, once for both sides.
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

# Packages that are never installed without a version, and why.
NEVER_NEWEST = {"torch": "its newest build brings gigabytes of CUDA"}


class PinError(ValueError):
    """Pins do not define two sides; the text says what to write."""


@dataclass(frozen=True)
class Sides:
    """base, candidate: versions of packages that differ. both: versions of packages that are the same on both sides."""

    base: Pins
    candidate: Pins
    both: Pins

    def __str__(self) -> str:
        return ", ".join(f"{name} {self.base[name]} -> {version}" for name, version in self.candidate.items())


@dataclass(frozen=True)
class Locked:
    """
    Versions of packages without a pin.

    versions: those that are installed or locked. constraints: lines of a constraint file for pip. source: where the
    versions come from, in words.
    """

    versions: Pins
    constraints: tuple[str, ...] = ()
    source: str = "installed here"


def read_pins(given: Sequence[str], both: Sequence[str], locked: Locked) -> Sides:
    """
    The two sides of `NAME==VERSION` arguments: the first one of a name is the base, the second one the candidate.

    A name that is given once is the candidate; the base is then the locked version. both: pins for both sides.

    Raises:
        PinError: an argument is not a pin, a name is given too often, or there is no base version.
    """
    common = dict(parse_pin(text) for text in both)
    versions: dict[str, list[str]] = {}
    for name, version in map(parse_pin, given):
        versions.setdefault(name, []).append(version)
    base, candidate = {}, {}
    for name, found in versions.items():
        if name in common:
            raise PinError(f"{name} is given twice, as an upgrade and with --both: remove one of them")
        base[name], candidate[name] = _two(name, found, locked)
    return Sides(base, candidate, common)


def _two(name: str, found: Sequence[str], locked: Locked) -> tuple[str, str]:
    """The base and candidate versions of one name."""
    if len(found) == 1:
        if name not in locked.versions:
            remedy = f"give both: {name}==OLD {name}==NEW"
            raise PinError(f"{name}=={found[0]} has no base version: {name} is not {locked.source}; {remedy}")
        found = [Version(locked.versions[name]).public, *found]
    if len(found) > 2:  # noqa: PLR2004 - two sides
        raise PinError(f"{name} is given {len(found)} times: give it at most twice, base first and candidate second")
    if Version(found[0]) == Version(found[1]):
        raise PinError(f"{name} is {found[0]} on both sides: there is nothing to compare")
    return found[0], found[1]


def parse_pin(text: str) -> tuple[str, str]:
    """
    The canonical name and the version of `NAME==VERSION`.

    Raises:
        PinError: the text has another form.
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
    The versions in a constraint file or a file of pinned requirements; hashes and pip options are ignored.

    Raises:
        PinError: the file cannot be read, or a line is not a requirement.
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
            raise PinError(f"{file}:{number}: {line!r} is not a requirement: {error}") from None
        if requirement.marker is None or requirement.marker.evaluate():
            lines.append(line)
            versions |= {
                canonicalize_name(requirement.name): s.version for s in requirement.specifier if s.operator == "=="
            }
    return Locked(versions, tuple(lines), f"locked in {file}")


def chosen(requires: Iterable[tuple[str, ...]], sides: Sides, locked: Locked) -> list[str]:
    """One requirement of each set of alternatives: the pinned one, else the locked one, else the first."""
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
    """The requirements that need a version (NEVER_NEWEST) and have neither a pin nor a lock."""
    names = [canonicalize_name(Requirement(text).name) for text in chosen(requires, sides, locked)]
    given = {*sides.candidate, *sides.both, *locked.versions}
    return [name for name in names if name in NEVER_NEWEST and name not in given]


def unmet(requires: Iterable[tuple[str, ...]], sides: Sides, locked: Locked) -> str | None:
    """
    The first requirement that a pinned version does not meet, in words; None if the pins of both sides meet all.

    A subject that only one side can run has nothing to be compared with.
    """
    for requirement in map(Requirement, chosen(requires, sides, locked)):
        name = canonicalize_name(requirement.name)
        for side, pins in (("base", sides.base), ("candidate", sides.candidate), ("--both", sides.both)):
            if name in pins and not requirement.specifier.contains(pins[name], prereleases=True):
                return f"it needs {requirement}, and {side} has {pins[name]}"
    return None


def recipes(python: str, requires: Iterable[tuple[str, ...]], sides: Sides, locked: Locked) -> tuple[Recipe, Recipe]:
    """
    The recipes of base and candidate, both based on one shared environment; `python` creates them.

    Locks apply only to the shared environment. So a pin can change its own dependencies (jax its jaxlib) and nothing
    else.
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
    unpinned = tuple(line for line in locked.constraints if not _pinned(line, {**sides.candidate, **sides.both}))
    shared_recipe = Recipe(python, tuple(sorted(shared.values())), unpinned)
    same = tuple(f"{name}=={version}" for name, version in sides.both.items())
    base, candidate = (
        Recipe(
            python,
            (*(f"{name}=={version}" for name, version in side.items()), *same),
            _kept(sides, locked),
            shared_recipe,
        )
        for side in (sides.base, sides.candidate)
    )
    return base, candidate


def _pinned(line: str, pins: Pins) -> bool:
    return canonicalize_name(Requirement(line).name) in pins


def _kept(sides: Sides, locked: Locked) -> tuple[str, ...]:
    """Constraints for packages whose version pip must not change, whatever a pin needs."""
    names = [name for name in NEVER_NEWEST if name in locked.versions and name not in {**sides.candidate, **sides.both}]
    return tuple(f"{name}=={Version(locked.versions[name]).public}" for name in names)
