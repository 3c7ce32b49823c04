"""Paths of adapters and cases (inside the installed package, or next to it in a checkout) and of the cache."""

import os
import sys
from collections.abc import Sequence
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


def case_root(paths: Sequence[Path]) -> Path:
    """
    Return the case folder of these paths; a suite is named by its path in that folder.

    It is the folder of the packaged cases, else the nearest parent folder named `cases`, else the parent folder.
    """
    first, packaged = paths[0].absolute(), cases().absolute()
    if first == packaged or packaged in first.parents:
        return packaged
    for folder in (first, *first.parents):
        if folder.name == "cases" and folder.is_dir():
            return folder
    return first if first.is_dir() else first.parent


def cache() -> Path:
    """The user's cache folder, which may be deleted at any time; CONFORMANCE_CACHE sets another one."""
    if chosen := os.environ.get("CONFORMANCE_CACHE"):
        return Path(chosen)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "attention-conformance"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "attention-conformance"
