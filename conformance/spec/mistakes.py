"""What is wrong in case files: every mistake with its file, line and column."""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches


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


@dataclass(frozen=True)
class Fault:
    """
    A mistake before it has a position: the path of a field in an expanded case, and what is wrong there.

    at_key: the field's name is wrong rather than its value.
    """

    path: tuple[str | int, ...]
    message: str
    at_key: bool = False


def nearest(name: object, valid: Iterable[str]) -> str:
    """Give the hint `; did you mean 'x'?`, or the valid names where none is near."""
    names = list(valid)
    close = get_close_matches(str(name), names, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; expected one of {', '.join(names)}"
