"""
Making environments to judge in: a virtual environment, filled by pip, kept until it is deleted.

One may lie *over* another: a copy of it by hard links, into which pip installs what differs. So the two sides of an
upgrade share what they stand on, differ in what is asked for alone, and cost seconds.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from conformance.bridge.strict_json import strict_json

# Told what happens, a line at a time.
ReportLine = Callable[[str], None]

# Written last: a folder without it was cut.
_DONE = "environment.json"

# Wheels alone: building an old release from source takes an hour, and runs what it brings.
_PIP = ("install", "--no-input", "--progress-bar", "off", "--only-binary", ":all:")

_MAX_LINES = 6


class ProvisionError(Exception):
    """An environment that cannot be made; the text says what was wanted and what pip answered."""


@dataclass(frozen=True)
class Recipe:
    """
    An environment to be made.

    python: the interpreter that it is made with. requirements: what pip is asked for. constraints: lines of a
    constraint file. over: the environment that this one is a copy of, before pip runs; without, an empty one.
    """

    python: str
    requirements: tuple[str, ...]
    constraints: tuple[str, ...] = ()
    over: "Recipe | None" = None

    @property
    def digest(self) -> str:
        """What tells it from others."""
        under = self.over.digest if self.over else ""
        about = [self.python, sorted(self.requirements), sorted(self.constraints), under]
        return hashlib.sha256(json.dumps(about).encode()).hexdigest()[:20]

    def __str__(self) -> str:
        return " ".join(self.requirements)


@dataclass(frozen=True)
class Provisioned:
    """An environment that was made. warnings: what pip said about requirements that do not fit together, or yanked."""

    python: str
    warnings: tuple[str, ...]

    @property
    def yanked(self) -> bool:
        """Whether its maintainers have withdrawn a release that was asked for."""
        return any("yanked version" in line for line in self.warnings)


def provision(recipe: Recipe, cache: Path, tell: ReportLine) -> Provisioned:
    """
    Make the environment in a folder of `cache`, or find it there.

    Raises:
        ProvisionError: pip or venv failed. OSError: the cache cannot be written to.
    """
    folder = cache / recipe.digest
    cache.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        if (made := _found(folder)) is not None:
            return made
        shutil.rmtree(folder, ignore_errors=True)
        under = recipe.over or Recipe(recipe.python, ())
        if under != recipe:
            provision(under, cache, tell)
            tell(f"installing {recipe}")
            shutil.copytree(cache / under.digest, folder, symlinks=True, copy_function=_link)
            (folder / _DONE).unlink()
        else:
            tell(f"making an environment for {recipe.python}")
            _run([recipe.python, "-m", "venv", str(folder)], tell, f"no environment can be made with {recipe.python}")
        warnings = _install(recipe, folder, tell) if recipe.requirements else ()
        about = {"requirements": recipe.requirements, "constraints": recipe.constraints, "warnings": warnings}
        (folder / _DONE).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
        return Provisioned(str(_python(folder)), warnings)


def is_made(recipe: Recipe, cache: Path) -> bool:
    """Whether the environment is in `cache` already."""
    return _found(cache / recipe.digest) is not None


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let one process at a time make an environment; another one that wants it waits."""
    with folder.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _found(folder: Path) -> Provisioned | None:
    """An environment that was made before, unless the interpreter that it was made with is gone."""
    try:
        about = strict_json((folder / _DONE).read_text(encoding="utf-8"))
        warnings = tuple(map(str, about["warnings"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Provisioned(str(_python(folder)), warnings) if _python(folder).exists() else None


def _python(folder: Path) -> Path:
    return folder / "bin" / "python"


def _link(source: str, target: str) -> None:
    """Share a file: pip replaces files, and never writes into one."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _install(recipe: Recipe, folder: Path, tell: ReportLine) -> tuple[str, ...]:
    constraints = folder / "constraints.txt"
    constraints.unlink(missing_ok=True)
    constraints.write_text("".join(f"{line}\n" for line in recipe.constraints), encoding="utf-8")
    command = [str(_python(folder)), "-m", "pip", *_PIP, "--constraint", str(constraints), *recipe.requirements]
    said = _run(command, tell, f"{recipe} cannot be installed")
    return tuple(line for line in said if "yanked version" in line or ", but you have " in line)


def _run(command: list[str], tell: ReportLine, failure: str) -> list[str]:
    """
    What a command said.

    Raises:
        ProvisionError: it failed.
    """
    env = pip_environment()
    said = []
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env
    ) as process:
        try:
            for line in process.stdout or ():
                said.append(line.rstrip())
                tell(f"  {line.rstrip()}")
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        errors = [line for line in said if line.startswith("ERROR:")] or said
        raise ProvisionError("\n  ".join([f"{failure}:", *errors[-_MAX_LINES:]]))
    return said


def pip_environment() -> dict[str, str]:
    """Variables for pip: the user's, without the settings of our own Python."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return env | {"PYTHONNOUSERSITE": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def interpreter_of(python: str) -> str:
    """The interpreter behind one of a virtual environment: a recipe of two such is one."""
    code = "import sys; print(getattr(sys, '_base_executable', sys.executable))"
    done = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() or sys.executable
