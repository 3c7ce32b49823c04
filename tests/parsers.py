"""The parsers of the command line."""

import argparse
from collections.abc import Iterator

from conformance.cli.parser import build_parser


def commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield a parser, and the parsers of all its commands."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from commands(each)


COMMANDS = list(commands(build_parser()))
