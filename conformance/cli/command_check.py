"""
The first step of `conformance check`: one plain call.

This module imports nothing that only judging needs, so a function that cannot be called is reported at once.
"""

import argparse
import importlib
from collections.abc import Callable

from conformance.checking.preflight import Calling, parse_mapping, preflight
from conformance.checking.target import CheckError, parse_target
from conformance.cli.argument_parser import UsageError


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
    Return what the user states about how the function is called.

    Raises:
        CheckError: a value is not among the known ones.
    """
    return Calling(
        arguments.operator, arguments.framework, arguments.layout, arguments.device, parse_mapping(arguments.mapping)
    )
