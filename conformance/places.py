"""Where adapters and cases lie: inside the installed package, or beside it in a checkout; and where the cache is."""

import os
import sys
from pathlib import Path

_PACKAGE = Path(__file__).parent


def _data(name: str) -> Path:
    packaged = _PACKAGE / "_data" / name
    return packaged if packaged.is_dir() else _PACKAGE.parent / name


def package() -> Path:
    """The folder from which `conformance` is imported."""
    return _PACKAGE.parent


def adapters() -> Path:
    """The folder of our adapters."""
    return _data("adapters")


def cases() -> Path:
    """The folder of our cases."""
    return _data("cases")


def cache() -> Path:
    """The user's folder for what is dear to make and may be deleted; CONFORMANCE_CACHE names another."""
    if chosen := os.environ.get("CONFORMANCE_CACHE"):
        return Path(chosen)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "attention-conformance"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "attention-conformance"
