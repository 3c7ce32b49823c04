"""The choice of cases: by path, id, tag and thoroughness, or those that the newest run rejected."""

import argparse
import shlex
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from conformance import places
from conformance.cli.argument_parser import UsageError, absent
from conformance.cli.offer import Offer
from conformance.engine import kept_cases
from conformance.engine.run_folder import load_run
from conformance.engine.runlog import RunLogError
from conformance.spec.case import Case
from conformance.spec.loader import NAME as THOROUGH
from conformance.spec.mistakes import covered, near_glob, old_name_note
from conformance.spec.texts import counted

LATEST = Path("reports") / "latest"

# Cells: (case id, subject name).
Rejected = frozenset[tuple[str, str]]


def last_rejected() -> Rejected:
    """
    Return the cells that the newest run rejected.

    Raises:
        UsageError: there is no such run, or it rejected nothing.
    """
    try:
        rejected = load_run(LATEST, whole=False).rejected
    except (RunLogError, OSError) as error:
        raise UsageError(f"--last-failed needs the run in {LATEST}: {error}") from error
    if not rejected:
        raise UsageError(f"--last-failed: {LATEST} rejected nothing: leave the option out")
    return rejected


def of_subjects(offer: Offer, rejected: Rejected) -> Offer:
    """
    Keep the subjects with a rejected cell.

    Raises:
        UsageError: none of them is in the offer.
    """
    names = {subject for _, subject in rejected}
    kept = tuple(subject for subject in offer.subjects if subject.name in names)
    if not kept:
        raise UsageError(f"--last-failed: {LATEST} rejected {', '.join(sorted(names))}, but -a chooses none of these")
    return replace(offer, subjects=kept)


def of_cases(cases: Sequence[Case], rejected: Rejected) -> tuple[Case, ...]:
    """
    Keep the cases with a rejected cell.

    Raises:
        UsageError: none of them is among `cases`.
    """
    ids = {case for case, _ in rejected}
    kept = tuple(case for case in cases if case.id in ids)
    if not kept:
        what = f"{counted(len(ids), 'case')} (the first is {min(ids)})"
        raise UsageError(f"--last-failed: {LATEST} rejected {what}, but none of them is chosen here")
    return kept


@dataclass(frozen=True)
class Choice:
    """The chosen cases, and in `left_out` the ids of cases that only a thorough run asks."""

    cases: tuple[Case, ...]
    left_out: frozenset[str] = frozenset()


def choose_cases(arguments: argparse.Namespace) -> Choice:
    """
    Load the cases that the arguments choose; with --last-failed, only those that the newest run rejected.

    Raises:
        UsageError: no case is left.
    """
    cases = load_cases(arguments.paths, arguments.case, arguments.tag)
    if arguments.last_failed:
        return Choice(of_cases(cases, last_rejected()))
    if leaves_nothing_out(arguments):
        return Choice(cases)
    kept = tuple(case for case in cases if not case.thorough)
    if not kept:
        raise UsageError(f"all {len(cases)} chosen cases need --thorough: add it")
    return Choice(kept, frozenset(case.id for case in cases if case.thorough))


def leaves_nothing_out(arguments: argparse.Namespace) -> bool:
    """Return whether thorough cases and dense forms are asked: with --thorough, or if -k names the cases."""
    return bool(arguments.thorough or arguments.case)


def load_cases(paths: Sequence[Path], globs: Sequence[str], tag: str | None) -> tuple[Case, ...]:
    """
    Load the cases in these files or folders (default: the packaged cases) that match the globs and the tag.

    Raises:
        CaseFileErrors: it lists every mistake of every file. UsageError: nothing matches.
    """
    if paths:
        for path in paths:
            if not path.exists():
                raise absent("case file or folder", path)
        root = places.case_root(paths)
    else:
        root = places.cases()
    files = tuple(paths) or (root,)
    cases = _loaded(files, root, _stamp(files, root))
    if tag is not None:
        cases = tuple(case for case in cases if tag in case.tags)
    if not cases:
        tagged = "" if tag is None else f" with the tag {tag}"
        raise UsageError(f"there is no case{tagged} in the given paths; see conformance list cases")
    matching = _matching({case.id for case in cases}, globs)
    return tuple(case for case in cases if case.id in matching) if globs else cases


@lru_cache(maxsize=4)
def _loaded(paths: tuple[Path, ...], root: Path, _: object) -> tuple[Case, ...]:
    """Load the suites once: a command needs all of them several times."""
    return kept_cases.load_cases(paths, root)


def _stamp(paths: Sequence[Path], root: Path) -> tuple[tuple[str, int], ...]:
    """Return every file that is read with its modification time, so that a changed file is read again."""
    suites = (file for path in paths for file in (sorted(path.rglob("*.yaml")) if path.is_dir() else [path]))
    return tuple((str(file), file.stat().st_mtime_ns) for file in (*suites, root / THOROUGH) if file.is_file())


def _matching(ids: Collection[str], globs: Sequence[str]) -> set[str]:
    """
    Return the ids that match a glob. A glob that has an old name is told the new one.

    Raises:
        UsageError: one glob matches nothing; the message suggests the nearest id.
    """
    for glob in globs:
        if not covered(ids, [glob]):
            near = near_glob(glob, ids)
            hint = f"did you mean {shlex.quote(near)}? " if near else ""
            raise UsageError(f"no case matches {glob}; {hint}conformance list cases prints all ids")
        if glob not in ids and (note := old_name_note(glob, ids)):
            print(f"conformance: {note}", file=sys.stderr)
    return covered(ids, globs)


def one_case(paths: Sequence[Path], wanted: str) -> Case:
    """
    Return the case with this id, or the only case that a glob matches.

    Raises:
        CaseFileErrors: as `load_cases`. UsageError: no case or several cases match.
    """
    case, *more = load_cases(paths, [wanted], None)
    if more:
        raise UsageError(f"{wanted} matches {1 + len(more)} cases: give one id, such as {shlex.quote(case.id)}")
    return case
