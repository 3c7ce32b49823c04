"""
The package `conformance` as a worker sees it: only the bridge, and names that a judged file may import.

A file that checks its own functions imports `conformance`. In a worker, it gets this module, which `copy_bridge` copies
as `__init__.py`.
"""

from typing import Any, NoReturn

__all__ = ["Result", "check"]


def check(*_: Any, **__: Any) -> NoReturn:
    """
    Refuse to judge a function from within a worker, which would start another worker, and so on.

    Raises:
        RuntimeError: always.
    """
    raise RuntimeError(
        "conformance.check was called while a worker loaded this file to judge it: call it in a test, or under "
        '`if __name__ == "__main__":`'
    )


class Result:
    """A name for annotations; nothing makes one here."""
