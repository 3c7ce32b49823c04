"""The machine, its settings, and the interpreters that workers run in: what a reply depends on besides the call."""

import functools
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from conformance.bridge import fingerprint
from conformance.bridge.strict_json import strict_json
from conformance.spec.texts import cut, printable, reason

# Instruction sets that affect how dot products are rounded, or which library computes them.
FEATURES = (
    "sse4_2",
    "avx",
    "avx2",
    "fma",
    "avx_vnni",
    "avx512f",
    "avx512_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "amx_bf16",
    "asimd",
    "bf16",
    "sve",
)


@dataclass(frozen=True)
class Machine:
    """
    The machine that computed a reply.

    cpu: those of FEATURES that it has; empty if the system does not say. libraries: framework -> its math library, from
    the adapter's evidence. environment: environment variables of the worker, from the same evidence.
    """

    cpu: tuple[str, ...] = ()
    libraries: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str | None] = field(default_factory=dict)

    @classmethod
    def of(cls, evidence: Mapping[str, Any]) -> "Machine":
        """This machine, with libraries and environment from the evidence of a worker."""
        return cls(cpu_features(), dict(evidence.get("libraries", {})), dict(evidence.get("environment", {})))


@cache
def cpu_features() -> tuple[str, ...]:
    """Those of FEATURES that this machine has; empty if the system does not say."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ()
    lines = (line for line in text.splitlines() if line.startswith(("flags", "Features")))
    flags = set(next(lines, "").partition(":")[2].split())
    return tuple(feature for feature in FEATURES if feature in flags)


# Minimum versions in worker environments.
OLDEST_PYTHON = (3, 10)
OLDEST_NUMPY = Version("1.26")

# Precedes the installed version in texts such as `keras>=3 (2.1 is installed)`.
INSTALLED = " ("

_NAME = re.compile(r"[A-Za-z0-9_.-]+")
# Maximum length of a path that a message contains in full.
MAX_PATH = 1000

# Time limit in seconds for an interpreter to list its distributions.
_PATIENCE = 60.0

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
    """A requested environment that cannot be used, so that the run is incomplete; the reason ends with what to do."""

    name: str
    python: str
    reason: str


class Requiring(Protocol):
    """Something with REQUIRES: an adapter or a subject."""

    @property
    def requires(self) -> tuple[tuple[str, ...], ...]: ...  # noqa: D102 - described above


@functools.cache
def our_own() -> Environment:
    """The environment `default`: the interpreter of this process."""
    found = {name: version for name, version, _ in fingerprint.installed()}
    return Environment("default", sys.executable, sys.version.split()[0], _canonical(found))


@functools.cache
def fingerprint_of(python: str, names: tuple[str, ...]) -> str:
    """
    The digest of what is installed in an interpreter (bridge/fingerprint.py); "" if there is none.

    names: the distributions in which files that were edited after installation are looked for, with those that these
    require; in another interpreter, all are looked at.
    """
    if python == sys.executable:
        return fingerprint.fingerprint(names)[0]
    command = [python, "-I", str(fingerprint.__file__)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_PATIENCE, check=True, stdin=subprocess.DEVNULL)
        return str(strict_json(done.stdout)["fingerprint"])
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError):
        return ""


def parse_environments(given: Iterable[str]) -> list[tuple[str, str]]:
    """
    The names and interpreters of `NAME=PYTHON` arguments.

    Raises:
        ValueError: an argument has another form, or a name is used twice.
    """
    pairs: dict[str, str] = {}
    for text in given:
        name, equals, python = text.partition("=")
        if not (equals and python and is_name(name)):
            raise ValueError(f"--env {text!r}: expected NAME=PYTHON, where NAME has only letters, digits, _ . and -")
        if name in pairs:
            raise ValueError(f"--env {text!r}: the name {name!r} is used twice")
        pairs[name] = python
    return list(pairs.items())


def is_name(text: str) -> bool:
    """Whether an environment can have this name."""
    return _NAME.fullmatch(text) is not None


@functools.cache
def examine(name: str, python: str, *, judges: bool = True) -> Environment | Unusable:
    """
    Ask an interpreter, or that of a virtual environment's folder, for its version and distributions; cached.

    judges: whether workers run in it, so that it needs NumPy; False if it only creates environments.
    """
    remedy = "specify an interpreter, such as .venv/bin/python, or the folder of a virtual environment"
    try:
        path = interpreter(python)
        command = [str(path), "-I", "-c", _LISTING]
        done = subprocess.run(command, capture_output=True, timeout=_PATIENCE, check=False, stdin=subprocess.DEVNULL)
    except (OSError, ValueError) as error:
        where = cut(printable(python)) if len(python) > MAX_PATH else printable(str(interpreter_path(python)))
        return Unusable(name, where, f"{where} cannot be run: {reason(error)}; {remedy}")
    except subprocess.TimeoutExpired:
        return Unusable(name, str(path), f"{path} did not answer within {_PATIENCE:g} s")
    try:
        answer = strict_json(done.stdout.strip().splitlines()[-1])
        version, distributions = tuple(answer["python"]), _canonical(answer["distributions"])
        return _usable(name, str(path), version, distributions, judges=judges)
    except (ValueError, IndexError, KeyError, TypeError):
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        stderr = f"; its stderr ends with: {last[0]}" if last else ""
        return Unusable(
            name, str(path), f"{path} did not answer like a Python interpreter (exit code {done.returncode}){stderr}"
        )


def interpreter(python: str) -> Path:
    """
    The path of the interpreter: the given path, or bin/python in the folder of a virtual environment.

    Raises:
        OSError, ValueError: the path is invalid.
    """
    path = interpreter_path(python)
    return path / "bin" / "python" if path.is_dir() else path


def interpreter_path(python: str) -> Path:
    """The absolute path, with `~` expanded; `~name` of an unknown user stays as it is."""
    return Path(os.path.expanduser(python)).absolute()  # noqa: PTH111 - Path.expanduser raises for such a user


def _usable(
    name: str, python: str, version: tuple[Any, ...], distributions: Mapping[str, str], *, judges: bool
) -> Environment | Unusable:
    text = ".".join(map(str, version))
    if version < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        reason = f"{python} is Python {text}, which is too old: create the environment with {oldest} or later"
        return Unusable(name, python, reason)
    numpy = _version(distributions.get("numpy", ""))
    if judges and (numpy is None or numpy < OLDEST_NUMPY):
        found = f"NumPy {numpy}" if numpy else "no NumPy"
        remedy = install_command(python, [f"numpy>={OLDEST_NUMPY}"])
        return Unusable(name, python, f"it has {found}, but workers need NumPy {OLDEST_NUMPY} or later: {remedy}")
    return Environment(name, python, text, distributions)


def install_command(python: str, requirements: Iterable[str]) -> str:
    """The command that installs missing requirements in an environment; of alternatives, the first one."""
    wanted = (text.partition(" or ")[0].partition(INSTALLED)[0] for text in requirements)
    return shlex.join([python, "-m", "pip", "install", *wanted])


def _canonical(distributions: Mapping[str, str]) -> dict[str, str]:
    return {canonicalize_name(name): version for name, version in distributions.items() if name}


def _version(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None


def missing(subject: Requiring, environment: Environment) -> tuple[str, ...]:
    """
    The requirements of an adapter or subject that the environment does not satisfy.

    Alternatives are written `keras or keras-nightly`; if another version is installed, it is named.
    """
    return tuple(
        " or ".join(text + _instead(environment, Requirement(text)) for text in choice)
        for choice in subject.requires
        if not any(_has(environment, Requirement(text)) for text in choice)
    )


def _instead(environment: Environment, requirement: Requirement) -> str:
    version = environment.distributions.get(canonicalize_name(requirement.name))
    return f"{INSTALLED}{version} is installed)" if version else ""


def _has(environment: Environment, requirement: Requirement) -> bool:
    version = _version(environment.distributions.get(canonicalize_name(requirement.name), ""))
    return version is not None and requirement.specifier.contains(version, prereleases=True)


def distributions_of(subject: Requiring) -> tuple[str, ...]:
    """The names of all distributions that a subject may require."""
    return tuple(dict.fromkeys(Requirement(text).name for choice in subject.requires for text in choice))
