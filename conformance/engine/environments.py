"""Interpreters that workers run in: our own, and those named with `--env NAME=PYTHON`."""

import functools
import importlib.metadata
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from conformance.bridge.values import strict_json

OLDEST_PYTHON = (3, 10)
OLDEST_NUMPY = Version("1.26")

_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_PATIENCE = 60.0
"""Seconds that an interpreter has to list its distributions."""

_LISTING = """
import json, sys
from importlib.metadata import distributions
found = {str(d.metadata["Name"]): str(d.version) for d in distributions() if d.metadata["Name"]}
print(json.dumps({"python": list(sys.version_info[:3]), "distributions": found}))
"""


@dataclass(frozen=True)
class Environment:
    """An interpreter that can serve as a worker, and what is installed in it (canonical name -> version)."""

    name: str
    python: str
    version: str
    distributions: Mapping[str, str]


@dataclass(frozen=True)
class Unusable:
    """An environment that was asked for and cannot serve: the run is incomplete."""

    name: str
    python: str
    reason: str


class Requiring(Protocol):
    """What has REQUIRES: an adapter or a subject."""

    @property
    def requires(self) -> tuple[tuple[str, ...], ...]: ...  # noqa: D102 - described above


@functools.cache
def our_own() -> Environment:
    """The interpreter that we run in, as the environment `default`."""
    found = {dist.metadata["Name"]: dist.version for dist in importlib.metadata.distributions()}
    return Environment("default", sys.executable, sys.version.split()[0], _canonical(found))


def parse_environments(given: Iterable[str]) -> list[tuple[str, str]]:
    """
    The names and interpreters of `NAME=PYTHON` arguments.

    Raises:
        ValueError: one has another form, or a name stands twice.
    """
    pairs: dict[str, str] = {}
    for text in given:
        name, equals, python = text.partition("=")
        if not (equals and python and _NAME.fullmatch(name)):
            raise ValueError(f"--env {text!r}: expected NAME=PYTHON, the name of letters, digits, _ . and -")
        if name in pairs or name == "default":
            raise ValueError(f"--env {text!r}: the name {name!r} is taken")
        pairs[name] = python
    return list(pairs.items())


def examine(name: str, python: str) -> Environment | Unusable:
    """Ask an interpreter (or the one of a virtual environment's folder) for its version and distributions, once."""
    path = _interpreter(python)
    command = [str(path), "-I", "-c", _LISTING]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_PATIENCE, check=False, stdin=subprocess.DEVNULL)
    except OSError as error:
        return Unusable(name, str(path), f"{path} cannot be run: {error.strerror or error}")
    except subprocess.TimeoutExpired:
        return Unusable(name, str(path), f"{path} did not answer within {_PATIENCE:g} s")
    try:
        answer = strict_json(done.stdout.strip().splitlines()[-1])
        return _usable(name, str(path), tuple(answer["python"]), _canonical(answer["distributions"]))
    except (ValueError, IndexError, KeyError, TypeError):
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        said = f", and its stderr ends with: {last[0]}" if last else ""
        return Unusable(
            name, str(path), f"{path} answered as no Python of ours would (exit code {done.returncode}){said}"
        )


def _interpreter(python: str) -> Path:
    path = Path(python).expanduser().absolute()
    return path / "bin" / "python" if path.is_dir() else path


def _usable(
    name: str, python: str, version: tuple[Any, ...], distributions: Mapping[str, str]
) -> Environment | Unusable:
    text = ".".join(map(str, version))
    if version < OLDEST_PYTHON:
        return Unusable(name, python, f"Python {text} is too old: workers need {'.'.join(map(str, OLDEST_PYTHON))}")
    numpy = _version(distributions.get("numpy", ""))
    if numpy is None or numpy < OLDEST_NUMPY:
        return Unusable(
            name, python, f"it has {f'NumPy {numpy}' if numpy else 'no NumPy'}: workers need {OLDEST_NUMPY}"
        )
    return Environment(name, python, text, distributions)


def _canonical(distributions: Mapping[str, str]) -> dict[str, str]:
    return {canonicalize_name(name): version for name, version in distributions.items() if name}


def _version(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None


def missing(subject: Requiring, environment: Environment) -> tuple[str, ...]:
    """What an adapter or a subject requires and the environment lacks; a choice is written `keras or keras-nightly`."""
    return tuple(
        " or ".join(choice)
        for choice in subject.requires
        if not any(_has(environment, Requirement(text)) for text in choice)
    )


def _has(environment: Environment, requirement: Requirement) -> bool:
    version = _version(environment.distributions.get(canonicalize_name(requirement.name), ""))
    return version is not None and requirement.specifier.contains(version, prereleases=True)


def distributions_of(subject: Requiring) -> tuple[str, ...]:
    """The names of all distributions that a subject may require."""
    return tuple(dict.fromkeys(Requirement(text).name for choice in subject.requires for text in choice))
