"""Which cases were asked for: by path, by id, by tag."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from conformance import places
from conformance.cli.errors import UsageError
from conformance.spec.case import Case
from conformance.spec.glob import covered
from conformance.spec.loader import load


def load_cases(paths: Sequence[Path], globs: Sequence[str], tag: str | None) -> tuple[Case, ...]:
    """
    Load the cases that were asked for.

    Raises:
        CaseFileErrors: with every mistake of every file. UsageError: nothing matches.
    """
    if paths:
        for path in paths:
            if not path.exists():
                raise UsageError(f"there is no case file or folder {path}")
        root = case_root(paths)
    else:
        root = places.cases()
    cases = load(list(paths) or [root], root)
    if tag is not None:
        cases = tuple(case for case in cases if tag in case.tags)
    if globs:
        meant = covered({case.id for case in cases}, globs)
        cases = tuple(case for case in cases if case.id in meant)
    if not cases:
        raise UsageError(f"no case matches {', '.join(globs) or 'the paths given'}; see conformance list cases")
    return cases


def one_case(paths: Sequence[Path], wanted: str) -> Case:
    """
    The case with such an id, or the only one that a glob means.

    Raises:
        CaseFileErrors: as `load_cases`. UsageError: none matches, or several do.
    """
    case, *more = load_cases(paths, [wanted], None)
    if more:
        raise UsageError(f"{wanted} names {1 + len(more)} cases: give the id of one, such as {shlex.quote(case.id)}")
    return case


def case_root(paths: Sequence[Path]) -> Path:
    """
    The case folder that holds all paths: ours, or the nearest folder above them named `cases`, or their parent.

    A suite is named by its path in that folder.
    """
    first = paths[0].absolute()
    ours = places.cases().absolute()
    if first == ours or ours in first.parents:
        return ours
    for folder in (first, *first.parents):
        if folder.name == "cases" and folder.is_dir():
            return folder
    return first if first.is_dir() else first.parent
