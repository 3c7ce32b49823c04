"""Arguments that a framework added to a function after the oldest release that an adapter supports."""

import inspect
from collections.abc import Callable
from typing import Any

from conformance.bridge import Unsupported

from ._versions import version


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
