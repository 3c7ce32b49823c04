"""Mistakes in case files, with file, line and column; and globs for case ids, with suggestions for misspelt ones."""

import difflib
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache

from conformance.spec.old_names import former

# Maximum number of mistakes of one file that are listed; the rest are only counted.
MAX_MISTAKES = 100


@dataclass(frozen=True, order=True)
class Mistake:
    """One mistake; lines and columns count from 1."""

    file: str
    line: int
    column: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.message}"


class CaseFileErrors(Exception):  # noqa: N818 - many errors, one exception
    """All mistakes of all requested files; no cases were loaded."""

    def __init__(self, mistakes: Iterable[Mistake]) -> None:
        self.mistakes = tuple(sorted(set(mistakes)))
        super().__init__("\n".join(map(str, self.mistakes)))


class Mistakes:
    """Collects the mistakes of one file: keeps the first MAX_MISTAKES and counts the rest."""

    def __init__(self, file: str, found: Iterable[Mistake] = ()) -> None:
        self.file = file
        self._first = list(found)
        self._more = 0

    @property
    def found(self) -> bool:
        """Whether there are mistakes."""
        return bool(self._first)

    @property
    def full(self) -> bool:
        """Whether further mistakes are only counted."""
        return len(self._first) >= MAX_MISTAKES

    def note(self, line: int, column: int, message: str, count: int = 1) -> None:
        """Add a mistake; with an empty message, add `count` mistakes that are only counted."""
        if not message or self.full:
            self._more += count
        else:
            self._first.append(Mistake(self.file, line, column, message))

    def listed(self, line: int, unread: str = "") -> tuple[Mistake, ...]:
        """Return the mistakes, plus a summary of the rest at `line`; unread: says what was not checked."""
        if not (self._more or unread):
            return tuple(self._first)
        rest = f"; {unread}" if unread else ""
        message = f"only {len(self._first)} of {len(self._first) + self._more} mistakes are listed{rest}"
        return (*self._first, Mistake(self.file, line, 1, message))


@dataclass(frozen=True)
class Fault:
    """
    A mistake before it has a position: the path of a field in an expanded case, and what is wrong there.

    at_key: whether the field's name is wrong rather than its value. count: number of faults that this one
    stands for, if the message is empty.
    """

    path: tuple[str | int, ...]
    message: str
    at_key: bool = False
    count: int = 1


def nearest(name: object, valid: Iterable[str]) -> str:
    """Return the hint `; did you mean 'x'?`, or the valid names if none is similar."""
    names = list(valid)
    close = get_close_matches(str(name), names, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; expected one of {', '.join(names)}"


_PARTS = re.compile(r"[^/.\[\],]+|[/.\[\],]")
# Minimum similarity of a part of a name to be suggested.
_MIN_SIMILARITY = 0.6


def matches(pattern: str, name: str) -> bool:
    """Whether `pattern` equals `name` or its old name, or is a glob that matches all of one of them."""
    return _is(pattern, name) or ((old := former(name)) != name and _is(pattern, old))


def _is(pattern: str, name: str) -> bool:
    return pattern == name or _compiled(pattern).fullmatch(name) is not None


def old_name_note(pattern: str, names: Iterable[str]) -> str:
    """Return a note if `pattern` matches one of the names only by its old name; else ""."""
    name = min((name for name in names if matches(pattern, name) and not _is(pattern, name)), default=None)
    if name is None:
        return ""
    old = former(name)
    return f"{'' if pattern == old else f'{pattern}: '}{old} is now called {name}"


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """
    Compile a glob to a regular expression; cached, because every cell is matched against the same patterns.

    The text between two stars is matched at its first occurrence only (an atomic group): an earlier match leaves more
    text for the rest, so backtracking is never needed.
    """
    first, *rest = ("".join("." if c == "?" else re.escape(c) for c in part) for part in re.split(r"\*+", pattern))
    if not rest:
        return re.compile(first, re.DOTALL)
    *middle, last = rest
    return re.compile(first + "".join(f"(?>.*?{part})" for part in middle) + ".*" + last, re.DOTALL)


def covered(names: Collection[str], patterns: Collection[str]) -> set[str]:
    """Return the names that at least one of the patterns matches."""
    exact = {pattern for pattern in patterns if pattern in names}
    globs = set(patterns) - exact
    if not globs:
        return exact
    return exact | {name for name in names if any(matches(pattern, name) for pattern in globs)}


def near_glob(pattern: str, names: Collection[str]) -> str | None:
    """
    Suggest a pattern that matches some of the names in place of one that matches none; None if nothing is similar.

    Suggestions: `masks/*` for `mask/*`, for `masks` and for `masks/nonsense`; `*padding*` for `padding`.
    """
    wild = re.search(r"[*?]", pattern)
    head, tail = (pattern[: wild.start()], pattern[wild.start() :]) if wild else (pattern, "")
    spelled = _spelled(head, names, open_end=bool(tail))
    tries = [spelled + tail, f"{spelled}]", f"{spelled}/*", f"{spelled}.*", f"{spelled}*"] if spelled else []
    tries += difflib.get_close_matches(pattern, sorted(names), 1, _MIN_SIMILARITY)
    parts = {part for name in names for part in _PARTS.findall(name)}
    words = [pattern.strip("*"), *difflib.get_close_matches(pattern.strip("*"), sorted(parts), 1, _MIN_SIMILARITY)]
    return next((each for each in (*tries, *(f"*{word}*" for word in words if word)) if covered(names, [each])), None)


def _spelled(head: str, names: Iterable[str], *, open_end: bool) -> str:
    """
    Correct the spelling of the beginning of a pattern, up to the first part that is similar to no name.

    open_end: whether the last part may be only the beginning of a name's part.
    """
    spelled = ""
    wanted: list[str] = _PARTS.findall(head)
    left: list[list[str]] = [_PARTS.findall(name) for name in names]
    for index, part in enumerate(wanted):
        parts = {name[index] for name in left if len(name) > index}
        if open_end and index == len(wanted) - 1 and any(each.startswith(part) for each in parts):
            return spelled + part
        close = [part] if part in parts else difflib.get_close_matches(part.lower(), sorted(parts), 1, _MIN_SIMILARITY)
        if not close:
            return spelled
        spelled += close[0]
        left = [name for name in left if len(name) > index and name[index] == close[0]]
    return spelled
