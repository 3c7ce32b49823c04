"""Which cases were asked for: by path, by id, by tag, how thoroughly, or those that the newest run rejected."""

import argparse
import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from conformance import places
from conformance.cli.errors import UsageError, absent
from conformance.cli.offer import Offer
from conformance.engine.run_folder import load_run
from conformance.engine.runlog import RunLogError
from conformance.spec.case import Case
from conformance.spec.loader import load
from conformance.spec.mistakes import covered, near_glob
from conformance.spec.suites import NAME as THOROUGH
from conformance.spec.texts import counted

LATEST = Path("reports") / "latest"

# Cells: (case id, subject name).
Rejected = frozenset[tuple[str, str]]


def last_rejected() -> Rejected:
    """
    The cells that the newest run rejected.

    Raises:
        UsageError: there is no such run, or it rejected nothing.
    """
    try:
        found = load_run(LATEST, whole=False).rejected
    except (RunLogError, OSError) as error:
        raise UsageError(f"--last-failed asks again what {LATEST} rejected: {error}") from error
    if not found:
        raise UsageError(f"--last-failed: {LATEST} rejected nothing: leave the option out")
    return found


def of_subjects(offer: Offer, rejected: Rejected) -> Offer:
    """
    The subjects with a rejected cell.

    Raises:
        UsageError: none of them is among those that were asked for.
    """
    names = {subject for _, subject in rejected}
    kept = tuple(subject for subject in offer.subjects if subject.name in names)
    if not kept:
        raise UsageError(f"--last-failed: {LATEST} rejected {', '.join(sorted(names))}, which -a does not choose here")
    return replace(offer, subjects=kept)


def of_cases(cases: Sequence[Case], rejected: Rejected) -> tuple[Case, ...]:
    """
    The cases of rejected cells.

    Raises:
        UsageError: none of them is among those that were asked for.
    """
    ids = {case for case, _ in rejected}
    kept = tuple(case for case in cases if case.id in ids)
    if not kept:
        what = f"{counted(len(ids), 'case')}, first {min(ids)}"
        raise UsageError(f"--last-failed: {LATEST} rejected {what}, and none is chosen here")
    return kept


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
    files = tuple(paths) or (root,)
    cases = _loaded(files, root, _stamp(files, root))
    if tag is not None:
        cases = tuple(case for case in cases if tag in case.tags)
    if not cases:
        raise UsageError("the paths given hold no case; see conformance list cases")
    meant = _suggestion({case.id for case in cases}, globs)
    return tuple(case for case in cases if case.id in meant) if globs else cases


@lru_cache(maxsize=4)
def _loaded(paths: tuple[Path, ...], root: Path, _: object) -> tuple[Case, ...]:
    """What the suites hold; a command asks for all of them several times."""
    return load(list(paths), root)


def _stamp(paths: Sequence[Path], root: Path) -> tuple[tuple[str, int], ...]:
    """Every file that is read and its time, so that a changed one is read again."""
    suites = (file for path in paths for file in (sorted(path.rglob("*.yaml")) if path.is_dir() else [path]))
    return tuple((str(file), file.stat().st_mtime_ns) for file in (*suites, root / THOROUGH) if file.is_file())


def _suggestion(ids: Collection[str], globs: Sequence[str]) -> set[str]:
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
