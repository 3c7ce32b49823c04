"""Paths of adapters and cases (inside the installed package, or next to it in a checkout) and of the cache."""

import os
import sys
from pathlib import Path

_PACKAGE = Path(__file__).parent


def _data(name: str) -> Path:
    packaged = _PACKAGE / "_data" / name
    return packaged if packaged.is_dir() else _PACKAGE.parent / name


def package() -> Path:
    """The folder that `conformance` is imported from."""
    return _PACKAGE.parent


def adapters() -> Path:
    """The folder of the adapters that ship with this package."""
    return _data("adapters")


def cases() -> Path:
    """The folder of the cases that ship with this package."""
    return _data("cases")


def cache() -> Path:
    """The user's cache folder, which may be deleted at any time; CONFORMANCE_CACHE sets another one."""
    if chosen := os.environ.get("CONFORMANCE_CACHE"):
        return Path(chosen)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "attention-conformance"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "attention-conformance"
