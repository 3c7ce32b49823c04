"""
What `conformance check` does first: one plain call.

It imports nothing that only judging needs, so that a function that cannot be called is told of at once.
"""

import argparse
import importlib
from collections.abc import Callable

from conformance.checking.preflight import Calling, parse_mapping, preflight
from conformance.checking.target import CheckError, parse_target
from conformance.cli.errors import UsageError


def preflight_check(arguments: argparse.Namespace) -> int:
    """Call the function once, then judge it, and return the exit code."""
    arguments.signature = None
    try:
        if arguments.target is not None and arguments.example is None and arguments.like is None:
            target = parse_target(arguments.target)
            arguments.signature = preflight(target, calling_of(arguments), arguments.timeout)
    except CheckError as error:
        raise UsageError(str(error)) from error
    judge: Callable[[argparse.Namespace], int] = importlib.import_module("conformance.cli.function_judging").check
    return judge(arguments)


def calling_of(arguments: argparse.Namespace) -> Calling:
    """
    What the user says about how the function is called.

    Raises:
        CheckError: it is none of the words that there are.
    """
    return Calling(arguments.operator, arguments.framework, arguments.layout, parse_mapping(arguments.mapping))
