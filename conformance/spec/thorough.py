"""
Which cases only a thorough run asks: `thorough.txt` in the case folder has their ids, one on a line.

A line that begins with # is a comment. Every case that is not listed is asked by default, so that a new case always is.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from conformance.spec.case import Case
from conformance.spec.mistakes import Mistake, Mistakes, nearest
from conformance.spec.texts import NoText, read_text, shown

NAME = "thorough.txt"
"""The file's name in the case folder."""

MAX_BYTES = 2**20


def marked(cases: Sequence[Case], root: Path, mistakes: list[Mistake]) -> list[Case]:
    """
    Give the listed cases `thorough=True`; a listed id that no case of a loaded suite has is a mistake.

    root: the case folder. A folder without the file has no thorough cases.
    """
    path = root / NAME
    if not path.is_file():
        return list(cases)
    try:
        lines = read_text(path, MAX_BYTES).splitlines()
    except NoText as error:
        mistakes.append(Mistake(_shown(path), error.line, error.column, error.message))
        return list(cases)
    listed = {line.strip(): number for number, line in enumerate(lines, 1) if line.strip() and not _is_comment(line)}
    ids: dict[str, dict[str, None]] = {}
    for case in cases:
        ids.setdefault(case.suite, {})[case.id] = None
    found = Mistakes(_shown(path))
    for name, number in listed.items():
        if (suite := name.partition("[")[0].rpartition("/")[0]) in ids and not found.full:
            _see(name, ids[suite], number, found)
    mistakes += found.told(len(lines), f"the rest of {len(listed)} ids was not looked at" if found.full else "")
    return [replace(case, thorough=True) if case.id in listed else case for case in cases]


def _is_comment(line: str) -> bool:
    return line.lstrip().startswith("#")


def _see(name: str, ids: Collection[str], number: int, found: Mistakes) -> None:
    """Note an id in line `number` that no case has; ids: those of its suite, which was loaded."""
    if name not in ids:
        found.note(number, 1, f"no case has the id {shown(name)}{nearest(name, ids)}; remove the line, or correct it")


def _shown(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"
