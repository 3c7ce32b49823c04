"""
The first step of `conformance check`: start to inspect the function.

What only judging needs is imported while the function is loaded and called in its worker.
"""

import argparse
import importlib
from collections.abc import Callable
from contextlib import ExitStack

from conformance.checking.preflight import Calling, inspecting, parse_mapping
from conformance.checking.signature import Sizes
from conformance.checking.target import CheckError, parse_target
from conformance.cli.argument_parser import UsageError


def inspect_and_judge(arguments: argparse.Namespace) -> int:
    """Inspect the function, then judge it, and return the exit code."""
    arguments.inspection = None
    with ExitStack() as stack:
        try:
            if arguments.target is not None and arguments.example is None and arguments.like is None:
                begun = inspecting(parse_target(arguments.target), calling_of(arguments), arguments.timeout)
                arguments.inspection = stack.enter_context(begun)
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
        arguments.operator,
        arguments.framework,
        arguments.layout,
        arguments.device,
        parse_mapping(arguments.mapping),
        tuple(name.strip() for name in (arguments.exclusive or "").split(",") if name.strip()),
        Sizes(tuple(arguments.head_dims), arguments.seq_len_multiple),
        tuple(arguments.declines),
    )
