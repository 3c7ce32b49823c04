"""Which cases were asked for: by path, by id, by tag, and how thoroughly."""

import argparse
import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from conformance import places
from conformance.cli.errors import UsageError, absent
from conformance.cli.rejected import last_rejected, of_cases
from conformance.spec.case import Case
from conformance.spec.glob import covered, near_glob
from conformance.spec.loader import load
from conformance.spec.thorough import NAME as THOROUGH


@dataclass(frozen=True)
class Choice:
    """The cases that are asked, and the ids of those that only a thorough run asks."""

    cases: tuple[Case, ...]
    left_out: frozenset[str] = frozenset()


def choose_cases(arguments: argparse.Namespace) -> Choice:
    """
    The cases that were asked for; with --last-failed, only those that the newest run rejected.

    Raises:
        UsageError: none is left.
    """
    cases = load_cases(arguments.paths, arguments.case, arguments.tag)
    if arguments.last_failed:
        return Choice(of_cases(cases, last_rejected()))
    if leaves_nothing_out(arguments):
        return Choice(cases)
    kept = tuple(case for case in cases if not case.thorough)
    if not kept:
        raise UsageError(f"all {len(cases)} cases are asked only with --thorough: add it")
    return Choice(kept, frozenset(case.id for case in cases if case.thorough))


def leaves_nothing_out(arguments: argparse.Namespace) -> bool:
    """Whether thorough cases and dense forms are asked: with --thorough, and where -k names the cases."""
    return bool(arguments.thorough or arguments.case)


def load_cases(paths: Sequence[Path], globs: Sequence[str], tag: str | None) -> tuple[Case, ...]:
    """
    Load the cases that were asked for.

    Raises:
        CaseFileErrors: with every mistake of every file. UsageError: nothing matches.
    """
    if paths:
        for path in paths:
            if not path.exists():
                raise absent("case file or folder", path)
        root = case_root(paths)
    else:
        root = places.cases()
    meant = tuple(paths) or (root,)
    cases = _loaded(meant, root, _stamp(meant, root))
    if tag is not None:
        cases = tuple(case for case in cases if tag in case.tags)
    if not cases:
        raise UsageError("the paths given hold no case; see conformance list cases")
    meant = _meant({case.id for case in cases}, globs)
    return tuple(case for case in cases if case.id in meant) if globs else cases


@lru_cache(maxsize=4)
def _loaded(paths: tuple[Path, ...], root: Path, _: object) -> tuple[Case, ...]:
    """What the suites hold; a command asks for all of them several times."""
    return load(list(paths), root)


def _stamp(paths: Sequence[Path], root: Path) -> tuple[tuple[str, int], ...]:
    """Every file that is read and its time, so that a changed one is read again."""
    suites = (file for path in paths for file in (sorted(path.rglob("*.yaml")) if path.is_dir() else [path]))
    return tuple((str(file), file.stat().st_mtime_ns) for file in (*suites, root / THOROUGH) if file.is_file())


def _meant(ids: Collection[str], globs: Sequence[str]) -> set[str]:
    """
    The ids that globs mean.

    Raises:
        UsageError: one of them means none; with what may be meant.
    """
    for glob in globs:
        if not covered(ids, [glob]):
            near = near_glob(glob, ids)
            hint = f"did you mean {shlex.quote(near)}? " if near else ""
            raise UsageError(f"no case matches {glob}; {hint}conformance list cases has their ids")
    return covered(ids, globs)


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
