"""What a project sets for this tool: the table [tool.conformance] of the nearest pyproject.toml."""

import tomllib
from pathlib import Path

from conformance.engine.environments import is_name


def declared_environments(folder: Path) -> dict[str, str]:
    """
    The environments of a project, name -> interpreter or folder of a virtual environment.

    They are those of [tool.conformance.environments] in the pyproject.toml that is nearest to `folder`, in it or above;
    a relative path begins at that file.

    Raises:
        ValueError: the file is no TOML, or the table holds something else.
    """
    files = (above / "pyproject.toml" for above in (folder, *folder.parents))
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        return {}
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8")).get("tool", {}).get("conformance", {})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{file}: {error}") from None
    if not isinstance(table, dict) or not isinstance(entries := table.get("environments", {}), dict):
        raise ValueError(f'{file}: [tool.conformance.environments] is a table of NAME = "PYTHON"')  # noqa: TRY004 - what is written there is wrong, no type of ours
    for name, python in entries.items():
        if not (is_name(name) and isinstance(python, str) and python):
            raise ValueError(
                f'{file}: [tool.conformance.environments] {name} = {python!r}: expected NAME = "PYTHON", the name of '
                "letters, digits, _ . and -"
            )
    return {name: str(file.parent / Path(python).expanduser()) for name, python in entries.items()}
