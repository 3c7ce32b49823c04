"""What the command line cannot do, and why."""

import difflib
from pathlib import Path


class UsageError(Exception):
    """Something that the user asked for cannot be; the text says what to do."""


def see_run(folder: Path) -> None:
    """
    See that there is something where a run folder should be.

    Raises:
        UsageError: there is nothing; with the nearest name.
    """
    if not folder.exists():
        raise absent("run folder", folder)


def absent(kind: str, path: Path) -> UsageError:
    """The error for a path at which nothing is, with the nearest name beside it; kind: what it should be."""
    names = sorted(each.name for each in path.parent.glob("*"))
    near = difflib.get_close_matches(path.name, names, 1)
    hint = f"; did you mean {path.parent / near[0]}?" if near else ""
    return UsageError(f"there is no {kind} {path}{hint}")
