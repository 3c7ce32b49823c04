"""Arguments that came to a framework's function with a later release than the oldest one that an adapter takes."""

import importlib.metadata
import inspect
from collections.abc import Callable
from typing import Any

from conformance.bridge import Unsupported


def known(function: Callable[..., Any], **arguments: Any) -> dict[str, Any]:
    """
    Those of the arguments that are given, which is not None, if the installed release has all of them.

    Raises:
        Unsupported: it has not.
    """
    given = {name: value for name, value in arguments.items() if value is not None}
    missing = given.keys() - inspect.signature(function).parameters.keys()
    if missing:
        package = function.__module__.partition(".")[0]
        release = f"{package} {importlib.metadata.version(package)}"
        later_arguments = " and ".join(sorted(missing))
        raise Unsupported(f"{release} has no {later_arguments}: a later release has")
    return given
