"""
Creates environments for workers: virtual environments that pip fills and that are kept until somebody deletes them.

An environment can be based on another one: it starts as a copy by hard links, into which pip installs what differs. So
the two sides of an upgrade share their base, differ only in the requested versions, and take seconds to create. The
releases of a distribution can be listed, and bisected for the first one that differs.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from conformance.bridge.strict_json import strict_json

# Called with each line of progress.
ReportLine = Callable[[str], None]

# Written last: a folder without it is incomplete.
_DONE = "environment.json"

# Wheels only: building an old release from source can take an hour, and it runs code of the package.
_PIP = ("install", "--no-input", "--progress-bar", "off", "--only-binary", ":all:")

# Maximum number of lines of pip's output in an error.
_MAX_LINES = 6


class ProvisionError(Exception):
    """An environment cannot be created; the text says what was requested and what pip reported."""


@dataclass(frozen=True)
class Recipe:
    """
    The description of an environment to create.

    python: the interpreter that creates it. requirements: the arguments of pip install. constraints: lines of a
    constraint file. over: the environment that is copied before pip runs; None for an empty one.
    """

    python: str
    requirements: tuple[str, ...]
    constraints: tuple[str, ...] = ()
    over: "Recipe | None" = None

    @property
    def digest(self) -> str:
        """A hexadecimal digest that identifies the recipe."""
        base = self.over.digest if self.over else ""
        about = [self.python, sorted(self.requirements), sorted(self.constraints), base]
        return hashlib.sha256(json.dumps(about).encode()).hexdigest()[:20]

    def __str__(self) -> str:
        return " ".join(self.requirements)


@dataclass(frozen=True)
class Provisioned:
    """A created environment. warnings: lines of pip about incompatible requirements and yanked releases."""

    python: str
    warnings: tuple[str, ...]

    @property
    def yanked(self) -> bool:
        """Whether a requested release was yanked by its maintainers."""
        return any("yanked version" in line for line in self.warnings)


def provision(recipe: Recipe, cache: Path, report: ReportLine) -> Provisioned:
    """
    Create the environment in a folder of `cache`, or reuse it if it is there.

    report: called with each line of progress.

    Raises:
        ProvisionError: pip or venv failed.
        OSError: the cache cannot be written to.
    """
    folder = cache / recipe.digest
    cache.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        if (made := _found(folder)) is not None:
            return made
        shutil.rmtree(folder, ignore_errors=True)
        base = recipe.over or Recipe(recipe.python, ())
        if base != recipe:
            provision(base, cache, report)
            report(f"installing {recipe}")
            shutil.copytree(cache / base.digest, folder, symlinks=True, copy_function=_link)
            (folder / _DONE).unlink()
        else:
            report(f"creating an environment for {recipe.python}")
            _run([recipe.python, "-m", "venv", str(folder)], report, f"{recipe.python} cannot create an environment")
        warnings = _install(recipe, folder, report) if recipe.requirements else ()
        about = {"requirements": recipe.requirements, "constraints": recipe.constraints, "warnings": warnings}
        (folder / _DONE).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
        return Provisioned(str(_python(folder)), warnings)


def is_made(recipe: Recipe, cache: Path) -> bool:
    """Whether the environment is already in `cache`."""
    return _found(cache / recipe.digest) is not None


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let only one process at a time create an environment; others wait."""
    with folder.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _found(folder: Path) -> Provisioned | None:
    """An environment that was created before, or None, also if the interpreter that created it is gone."""
    try:
        about = strict_json((folder / _DONE).read_text(encoding="utf-8"))
        warnings = tuple(map(str, about["warnings"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Provisioned(str(_python(folder)), warnings) if _python(folder).exists() else None


def _python(folder: Path) -> Path:
    return folder / "bin" / "python"


def _link(source: str, target: str) -> None:
    """Hard-link a file, or copy it if that fails; sharing is safe since pip replaces files and never modifies them."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _install(recipe: Recipe, folder: Path, report: ReportLine) -> tuple[str, ...]:
    constraints = folder / "constraints.txt"
    constraints.unlink(missing_ok=True)
    constraints.write_text("".join(f"{line}\n" for line in recipe.constraints), encoding="utf-8")
    command = [str(_python(folder)), "-m", "pip", *_PIP, "--constraint", str(constraints), *recipe.requirements]
    output = _run(command, report, f"{recipe} cannot be installed")
    return tuple(line for line in output if "yanked version" in line or ", but you have " in line)


def _run(command: list[str], report: ReportLine, failure: str) -> list[str]:
    """
    Run a command and return the lines of its output.

    Raises:
        ProvisionError: the command failed.
    """
    env = pip_environment()
    lines = []
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env
    ) as process:
        try:
            for line in process.stdout or ():
                lines.append(line.rstrip())
                report(f"  {line.rstrip()}")
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        errors = [line for line in lines if line.startswith("ERROR:")] or lines
        raise ProvisionError("\n  ".join([f"{failure}:", *errors[-_MAX_LINES:]]))
    return lines


def pip_environment() -> dict[str, str]:
    """Environment variables for pip: those of the user, without settings of the current Python."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return env | {"PYTHONNOUSERSITE": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def interpreter_of(python: str) -> str:
    """The base interpreter of a virtual environment's Python, so that recipes of several environments are equal."""
    code = "import sys; print(getattr(sys, '_base_executable', sys.executable))"
    done = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() or sys.executable


# A release behaves like the first one, like the last one, or cannot be judged.
State = Literal["before", "after", "skip"]


@dataclass(frozen=True)
class FirstDifference:
    """
    The two releases between which the behaviour changed.

    last: the last release with the old behaviour. first: the first one that is known to have the new behaviour.
    skipped: releases between the two that could not be judged; any of them may be the first.
    """

    last: str
    first: str
    skipped: tuple[str, ...]


def bisect(releases: Sequence[str], state: Callable[[str], State]) -> FirstDifference:
    """
    Bisect releases, of which the first has the old behaviour and the last the new one.

    `state` is called at most once per release between them: about log2 of their number, more if some are skipped.
    """
    low, high = 0, len(releases) - 1
    skipped: set[int] = set()
    while candidates := [index for index in range(low + 1, high) if index not in skipped]:
        middle = min(candidates, key=lambda index: abs(2 * index - low - high))
        found = state(releases[middle])
        if found == "skip":
            skipped.add(middle)
        elif found == "before":
            low = middle
        else:
            high = middle
    return FirstDifference(releases[low], releases[high], tuple(releases[index] for index in range(low + 1, high)))


# Maximum number of newest and of nearest releases in a message about one that does not exist.
MAX_NAMED = 3


def released(python: str, package: str) -> list[str]:
    """
    The releases that this interpreter can install, oldest first, without pre-releases.

    Raises:
        ProvisionError: pip finds no release.
    """
    return [text for text in _listed(python, package) if _final(text)]


def absent(python: str, package: str, version: str) -> str | None:
    """
    A sentence that pip finds no such release, with the newest and nearest ones; None if pip finds the release.

    Raises:
        ProvisionError: pip finds no release of the package.
    """
    every = _listed(python, package, "--pre")
    if any(SpecifierSet(f"=={version}").contains(text, prereleases=True) for text in every):
        return None
    final = [text for text in every if _final(text)] or every
    newest = final[: -MAX_NAMED - 1 : -1]
    near = [text for text in _nearest(final, version) if text not in newest]
    also = f"; the nearest are {', '.join(near)}" if near else ""
    return (
        f"pip finds no {package} {version} that it can install here; the newest releases are {', '.join(newest)}{also}"
    )


def _listed(python: str, package: str, *more: str) -> list[str]:
    """
    The releases that pip lists, oldest first.

    Raises:
        ProvisionError: pip finds no release.
    """
    command = [python, "-m", "pip", "index", "versions", package, "--only-binary", ":all:", *more]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=pip_environment(), stdin=subprocess.DEVNULL
    )
    listed = re.search(r"^Available versions: (.+)$", done.stdout, re.MULTILINE)
    if done.returncode or listed is None:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR:")]
        raise ProvisionError(
            "\n  ".join([f"pip finds no release of {package}:", *(lines or done.stderr.splitlines())[-3:]])
        )
    return sorted((text for text in listed[1].split(", ") if _readable(text)), key=Version)


def _readable(text: str) -> bool:
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


def _final(text: str) -> bool:
    return not Version(text).is_prerelease


def between(releases: Sequence[str], one: str, other: str) -> list[str]:
    """
    The releases from the older of two to the newer one, both included.

    Raises:
        ProvisionError: one of them is not a release; the text names the nearest ones.
    """
    for version in (one, other):
        if Version(version) not in map(Version, releases):
            near = ", ".join(_nearest(releases, version))
            raise ProvisionError(f"pip finds no release {version} that it can install here; the nearest are {near}")
    low, high = sorted(map(Version, (one, other)))
    return [text for text in releases if low <= Version(text) <= high]


def _nearest(releases: Sequence[str], version: str) -> list[str]:
    return sorted(releases, key=lambda text: _distance(releases, text, version))[:MAX_NAMED]


def _distance(releases: Sequence[str], text: str, version: str) -> int:
    older = sum(Version(release) < Version(version) for release in releases)
    return abs(2 * list(releases).index(text) + 1 - 2 * older)
