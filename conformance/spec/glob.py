"""Selecting ids: an exact id wins, and only `*` and `?` are special (ids contain brackets)."""

import re
from collections.abc import Collection
from functools import cache


def matches(pattern: str, name: str) -> bool:
    """Whether `pattern` is `name` itself, or a glob that covers all of it."""
    if pattern == name:
        return True
    return _compiled(pattern).fullmatch(name) is not None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Every cell is held against the same patterns: those of all known deviations."""
    parts = {"*": ".*", "?": "."}
    return re.compile("".join(parts.get(c, re.escape(c)) for c in pattern), re.DOTALL)


def covered(names: Collection[str], patterns: Collection[str]) -> set[str]:
    """The names that one of the patterns asks for."""
    exact = {pattern for pattern in patterns if pattern in names}
    return exact | {name for name in names if any(matches(pattern, name) for pattern in set(patterns) - exact)}
