"""
What a project sets for this tool: the table [tool.conformance] of the nearest pyproject.toml.

It names interpreters that are started, so it is only believed inside the repository from which the tool is run: a file
further up may be anybody's.
"""

import stat
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance.engine.environments import is_name
from conformance.spec.texts import NoText, quoted, read_text

# The largest pyproject.toml in bytes that is read.
MAX_BYTES = 2**20

_TABLE = "[tool.conformance.environments]"


@dataclass(frozen=True)
class Declared:
    """The environments of a project, name -> interpreter or folder of a virtual environment; file: where they stand."""

    file: Path | None = None
    environments: Mapping[str, str] = field(default_factory=dict)


def declared_environments(folder: Path) -> Declared:
    """
    The environments that the nearest pyproject.toml declares, in `folder` or above, up to the root of its repository.

    Without a repository only `folder` itself is looked at. A relative path begins at that file.

    Raises:
        ValueError: the file is no TOML, or the table holds something else.
    """
    file = next((each for above in _folders(folder) if (each := above / "pyproject.toml").is_file()), None)
    if file is None:
        return Declared()
    entries = _entries(file)
    for name, python in entries.items():
        if not (is_name(name) and isinstance(python, str) and python and "\0" not in python):
            raise ValueError(
                f'{file}: {_TABLE} {quoted(name)[1:-1]} = {quoted(python)}: expected NAME = "PYTHON", the name of '
                "letters, digits, _ . and -"
            )
    return Declared(file, {name: _path(file, name, python) for name, python in entries.items()})


def _folders(folder: Path) -> Iterator[Path]:
    """The folder and those above it in its repository; none that everybody may write to."""
    above = [folder, *folder.parents]
    root = next((number for number, each in enumerate(above) if (each / ".git").exists()), 0)
    yield folder
    for each in above[1 : root + 1]:
        if each.stat().st_mode & stat.S_IWOTH:
            return
        yield each


def _entries(file: Path) -> dict[str, Any]:
    """
    The table as it stands.

    Raises:
        ValueError: see above; the text begins with file, line and column where they are known.
    """
    try:
        table = tomllib.loads(read_text(file, MAX_BYTES))
    except NoText as error:
        raise ValueError(f"{file}:{error.line}:{error.column}: {error.message}") from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{file}: {error}") from None
    except RecursionError:
        raise ValueError(f"{file}: nested too deep") from None
    for key in ("tool", "conformance", "environments"):
        table = table.get(key, {})
        if not isinstance(table, dict):
            raise ValueError(f'{file}: {key} is no table; {_TABLE} is a table of NAME = "PYTHON"')  # noqa: TRY004 - what is written there is wrong, no type of ours
    return table


def _path(file: Path, name: str, python: str) -> str:
    try:
        return str(file.parent / Path(python).expanduser())
    except RuntimeError as error:
        raise ValueError(f"{file}: {_TABLE} {name} = {quoted(python)}: {error}") from None
