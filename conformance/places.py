"""Where adapters and cases lie: inside the installed package, or beside it in a checkout."""

from pathlib import Path

_PACKAGE = Path(__file__).parent


def _data(name: str) -> Path:
    packaged = _PACKAGE / "_data" / name
    return packaged if packaged.is_dir() else _PACKAGE.parent / name


def adapters() -> Path:
    """The folder of our adapters."""
    return _data("adapters")


def cases() -> Path:
    """The folder of our cases."""
    return _data("cases")
