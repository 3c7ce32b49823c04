"""What is wrong in case files, with file, line and column; and which ids a glob selects, or may have meant."""

import difflib
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache

# So many of one file are told; of the others, how many there are.
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
    """All mistakes of all files that were asked for; nothing of them was loaded."""

    def __init__(self, mistakes: Iterable[Mistake]) -> None:
        self.mistakes = tuple(sorted(set(mistakes)))
        super().__init__("\n".join(map(str, self.mistakes)))


class Mistakes:
    """The mistakes of one file as they are found: the first MOST_MISTAKES, and how many more there are."""

    def __init__(self, file: str, found: Iterable[Mistake] = ()) -> None:
        self.file = file
        self._first = list(found)
        self._more = 0

    @property
    def found(self) -> bool:
        """Whether there is any."""
        return bool(self._first)

    @property
    def full(self) -> bool:
        """Whether nothing that is found from now on is told."""
        return len(self._first) >= MAX_MISTAKES

    def note(self, line: int, column: int, message: str, count: int = 1) -> None:
        """Add a mistake; without a message: so many, of which only their number is told."""
        if not message or self.full:
            self._more += count
        else:
            self._first.append(Mistake(self.file, line, column, message))

    def told(self, line: int, unread: str = "") -> tuple[Mistake, ...]:
        """All that is told; line: where the sum of the rest is told. unread: what was not looked at, in words."""
        if not (self._more or unread):
            return tuple(self._first)
        rest = f"; {unread}" if unread else ""
        message = f"only {len(self._first)} of {len(self._first) + self._more} mistakes are listed{rest}"
        return (*self._first, Mistake(self.file, line, 1, message))


@dataclass(frozen=True)
class Fault:
    """
    A mistake before it has a position: the path of a field in an expanded case, and what is wrong there.

    at_key: the field's name is wrong rather than its value. count: so many faults, without a message, of which no more
    is told.
    """

    path: tuple[str | int, ...]
    message: str
    at_key: bool = False
    count: int = 1


def nearest(name: object, valid: Iterable[str]) -> str:
    """Give the hint `; did you mean 'x'?`, or the valid names where none is near."""
    names = list(valid)
    close = get_close_matches(str(name), names, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; expected one of {', '.join(names)}"


_PARTS = re.compile(r"[^/.\[\],]+|[/.\[\],]")
# How similar a part of a name must be to be meant.
_MIN_SIMILARITY = 0.6


def matches(pattern: str, name: str) -> bool:
    """Whether `pattern` is `name` itself, or a glob that covers all of it."""
    if pattern == name:
        return True
    return _compiled(pattern).fullmatch(name) is not None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """
    Every cell is held against the same patterns: those of all known deviations.

    What stands between two stars is taken where it first fits, and never elsewhere (an atomic group): an earlier place
    leaves more for the rest, so no other choice has to be tried.
    """
    first, *rest = ("".join("." if c == "?" else re.escape(c) for c in part) for part in re.split(r"\*+", pattern))
    if not rest:
        return re.compile(first, re.DOTALL)
    *middle, last = rest
    return re.compile(first + "".join(f"(?>.*?{part})" for part in middle) + ".*" + last, re.DOTALL)


def covered(names: Collection[str], patterns: Collection[str]) -> set[str]:
    """The names that one of the patterns asks for."""
    exact = {pattern for pattern in patterns if pattern in names}
    return exact | {name for name in names if any(matches(pattern, name) for pattern in set(patterns) - exact)}


def near_glob(pattern: str, names: Collection[str]) -> str | None:
    """
    A pattern that means some of the names, near to one that means none; None where nothing is near.

    `mask/*` is near to `masks/*`, `masks` to `masks/*`, `masks/nonsense` to `masks/*`, and `padding` to `*padding*`.
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
    The beginning of a pattern as the nearest name has it, up to the first part to which nothing is near.

    open_end: its last part may go on.
    """
    spelled = ""
    wanted: list[str] = _PARTS.findall(head)
    left: list[list[str]] = [_PARTS.findall(name) for name in names]
    for place, part in enumerate(wanted):
        parts = {name[place] for name in left if len(name) > place}
        if open_end and place == len(wanted) - 1 and any(each.startswith(part) for each in parts):
            return spelled + part
        close = [part] if part in parts else difflib.get_close_matches(part.lower(), sorted(parts), 1, _MIN_SIMILARITY)
        if not close:
            return spelled
        spelled += close[0]
        left = [name for name in left if len(name) > place and name[place] == close[0]]
    return spelled
