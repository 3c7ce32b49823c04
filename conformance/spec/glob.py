"""Selecting ids: an exact id wins, and only `*` and `?` are special (ids contain brackets)."""

import re


def matches(pattern: str, name: str) -> bool:
    """Whether `pattern` is `name` itself, or a glob that covers all of it."""
    if pattern == name:
        return True
    parts = {"*": ".*", "?": "."}
    return re.fullmatch("".join(parts.get(c, re.escape(c)) for c in pattern), name, re.DOTALL) is not None
