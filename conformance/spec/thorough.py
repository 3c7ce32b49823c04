"""
Which cases only a thorough run asks: `thorough.txt` in the case folder has their ids, one on a line.

A line that begins with # is a comment. Every case that is not listed is asked by default, so that a new case always is.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from conformance.spec.case import Case
from conformance.spec.mistakes import Mistake, nearest

NAME = "thorough.txt"
"""The file's name in the case folder."""


def marked(cases: Sequence[Case], root: Path, mistakes: list[Mistake]) -> list[Case]:
    """
    Give the listed cases `thorough=True`; a listed id that no case of a loaded suite has is a mistake.

    root: the case folder. A folder without the file has no thorough cases.
    """
    path = root / NAME
    if not path.is_file():
        return list(cases)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        mistakes.append(Mistake(_shown(path), 1, 1, f"cannot be read: {error}"))
        return list(cases)
    listed = {line.strip(): number for number, line in enumerate(lines, 1) if line.strip() and not _is_comment(line)}
    mistakes += _unknown(listed.items(), {case.id for case in cases}, {case.suite for case in cases}, path)
    return [replace(case, thorough=True) if case.id in listed else case for case in cases]


def _is_comment(line: str) -> bool:
    return line.lstrip().startswith("#")


def _unknown(
    listed: Iterable[tuple[str, int]], ids: Collection[str], suites: Collection[str], path: Path
) -> Iterable[Mistake]:
    """Listed ids that no case has, where their suite was loaded."""
    for name, number in listed:
        suite = name.partition("[")[0].rpartition("/")[0]
        if suite in suites and name not in ids:
            same_suite = [each for each in ids if each.startswith(f"{suite}/")]
            message = f"no case has the id {name!r}{nearest(name, same_suite)}; remove the line, or correct it"
            yield Mistake(_shown(path), number, 1, message)


def _shown(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"
