"""Releases of a framework: the installed one, and arguments that only later ones have."""

import importlib.metadata
import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

from conformance.bridge import Unsupported


@cache
def version(package: str) -> str:
    """Return the installed version of a package; reading it takes a millisecond, and every call reports it."""
    return importlib.metadata.version(package)


def known(function: Callable[..., Any], **arguments: Any) -> dict[str, Any]:
    """
    Return the arguments that are not None, if the function has all of them in the installed release.

    Raises:
        Unsupported: the installed release lacks at least one of them.
    """
    given = {name: value for name, value in arguments.items() if value is not None}
    missing = given.keys() - inspect.signature(function).parameters.keys()
    if missing:
        package = function.__module__.partition(".")[0]
        release = f"{package} {version(package)}"
        later_arguments = " and ".join(sorted(missing))
        raise Unsupported(f"{release} has no {later_arguments}: a later release has")
    return given
