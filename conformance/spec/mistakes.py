"""What is wrong in case files: every mistake with its file, line and column."""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

MOST_MISTAKES = 100
"""So many of one file are told; of the others, how many there are."""


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
        return len(self._first) >= MOST_MISTAKES

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
        message = f"only {len(self._first)} mistakes are told, of {len(self._first) + self._more}{rest}"
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
