"""Choosing subjects by name, by glob, or by the path of an adapter file."""

import re
from collections.abc import Sequence
from pathlib import Path

from conformance.engine.adapters import Subject
from conformance.spec.glob import matches, near_glob


class SelectionError(Exception):
    """A pattern that selects nothing; the text has the nearest name."""


_FILE = re.compile(r"(?P<file>.+\.py)(?P<rest>[\[@].*)?", re.DOTALL)


def adapter_file(pattern: str) -> tuple[Path, str] | None:
    """
    Split a pattern that names an adapter file: `mine.py`, or `mine.py[variant]@device` for one subject of it.

    None for names and globs of subjects.
    """
    match = _FILE.fullmatch(pattern)
    return (Path(match["file"]), match["rest"] or "") if match else None


def select(subjects: Sequence[Subject], patterns: Sequence[str]) -> list[Subject]:
    """
    The subjects that patterns ask for, in the order of the patterns; all of them where there is no pattern.

    A name of a subject selects that one alone, also where it is a glob or the beginning of others; an adapter's name
    selects all its variants, unless it is a subject itself.

    Raises:
        SelectionError: a pattern selects nothing.
    """
    if not patterns:
        return list(subjects)
    chosen = {subject.name: subject for pattern in patterns for subject in _chosen(subjects, pattern)}
    return list(chosen.values())


def _chosen(subjects: Sequence[Subject], pattern: str) -> list[Subject]:
    if (named := adapter_file(pattern)) is not None:
        file, rest = named
        own = [subject for subject in subjects if subject.adapter.path == file.absolute()]
        if not own:
            raise SelectionError(f"no subject is of the adapter file {file}")
        return _named(own, f"{own[0].adapter.name}{rest}") if rest else own
    return _named(subjects, pattern)


def _named(subjects: Sequence[Subject], pattern: str) -> list[Subject]:
    *own, _adapter = range(len(subjects[0].names)) if subjects else [0]
    for place in own:
        if exact := [subject for subject in subjects if subject.names[place] == pattern]:
            return exact
    if found := [subject for subject in subjects if any(matches(pattern, name) for name in subject.names)]:
        return found
    near = near_glob(pattern, {name for subject in subjects for name in subject.names})
    hint = f"the nearest name is {near!r}" if near else "conformance list adapters has their names"
    raise SelectionError(f"no subject matches {pattern!r}; {hint}")
