"""The versions of installed packages."""

import importlib.metadata
from functools import cache


@cache
def version(package: str) -> str:
    """Return the installed version of a package; reading it takes a millisecond, and every call reports it."""
    return importlib.metadata.version(package)
