"""
The settings of a project: the table [tool.conformance] of the nearest pyproject.toml.

The table names interpreters that will be started, so only files inside the current repository are trusted: anybody may
have written a file further up.
"""

import stat
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance.engine.environments import is_name
from conformance.spec.texts import NoText, quoted, read_text

# Maximum size of a pyproject.toml in bytes.
MAX_BYTES = 2**20

_TABLE = "[tool.conformance.environments]"


@dataclass(frozen=True)
class DeclaredEnvironments:
    """The environments of a project: name -> interpreter or virtual environment; file: the file that declares them."""

    file: Path | None = None
    environments: Mapping[str, str] = field(default_factory=dict)


def declared_environments(folder: Path) -> DeclaredEnvironments:
    """
    Read the environments that the nearest pyproject.toml declares, from `folder` up to the root of its repository.

    Without a repository, only `folder` itself is searched. A relative path is relative to the file.

    Raises:
        ValueError: the file is not valid TOML, or the table has a wrong entry.
    """
    file = next((each for above in _folders(folder) if (each := above / "pyproject.toml").is_file()), None)
    if file is None:
        return DeclaredEnvironments()
    entries = _entries(file)
    for name, python in entries.items():
        if not (is_name(name) and isinstance(python, str) and python and "\0" not in python):
            raise ValueError(
                f'{file}: {_TABLE} {quoted(name)[1:-1]} = {quoted(python)}: expected NAME = "PYTHON", where NAME '
                "has letters, digits, _ . and - only"
            )
    return DeclaredEnvironments(file, {name: _path(file, name, python) for name, python in entries.items()})


def _folders(folder: Path) -> Iterator[Path]:
    """Yield the folder and its parents up to the root of the repository; stop at a folder that everybody may write."""
    above = [folder, *folder.parents]
    root = next((number for number, each in enumerate(above) if (each / ".git").exists()), 0)
    yield folder
    for each in above[1 : root + 1]:
        if each.stat().st_mode & stat.S_IWOTH:
            return
        yield each


def _entries(file: Path) -> dict[str, Any]:
    """
    Read the table of environments.

    Raises:
        ValueError: as above; the message begins with file, line and column if they are known.
    """
    try:
        table = tomllib.loads(read_text(file, MAX_BYTES))
    except NoText as error:
        raise ValueError(f"{file}:{error.line}:{error.column}: {error.message}") from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{file}: {error}") from None
    except RecursionError:
        raise ValueError(f"{file}: nested too deeply") from None
    for key in ("tool", "conformance", "environments"):
        table = table.get(key, {})
        if not isinstance(table, dict):
            raise ValueError(f'{file}: {key} is not a table; {_TABLE} is a table of NAME = "PYTHON"')  # noqa: TRY004 - the user's file is wrong, not a type in our code
    return table


def _path(file: Path, name: str, python: str) -> str:
    try:
        return str(file.parent / Path(python).expanduser())
    except RuntimeError as error:
        raise ValueError(f"{file}: {_TABLE} {name} = {quoted(python)}: {error}") from None
