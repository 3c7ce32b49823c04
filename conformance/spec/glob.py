"""Selecting ids: an exact id wins, and only `*` and `?` are special (ids contain brackets)."""

import difflib
import re
from collections.abc import Collection, Iterable
from functools import cache

_PARTS = re.compile(r"[^/.\[\],]+|[/.\[\],]")
_NEAR = 0.6
"""How similar a part of a name must be to be meant."""


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
    tries += difflib.get_close_matches(pattern, sorted(names), 1, _NEAR)
    parts = {part for name in names for part in _PARTS.findall(name)}
    words = [pattern.strip("*"), *difflib.get_close_matches(pattern.strip("*"), sorted(parts), 1, _NEAR)]
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
        close = [part] if part in parts else difflib.get_close_matches(part.lower(), sorted(parts), 1, _NEAR)
        if not close:
            return spelled
        spelled += close[0]
        left = [name for name in left if len(name) > place and name[place] == close[0]]
    return spelled
