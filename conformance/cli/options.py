"""Options that several commands have, and the numbers that they take."""

import argparse
import os
from pathlib import Path

from conformance.cli.words import Parser


def add_skip_budget(parser: Parser) -> None:
    """How much support may be lost."""
    parser.add_argument(
        "--skip-budget", type=at_least_none, default=0, metavar="N", help="cells that may lose support (default: 0)"
    )


def add_junit(parser: Parser) -> None:
    """JUnit XML elsewhere."""
    parser.add_argument("--junit", type=Path, metavar="FILE", help="also write JUnit XML here")


def add_annotations(parser: Parser) -> None:
    """Annotations of CI systems."""
    parser.add_argument("--annotations", choices=("github",), help="also print what is rejected as workflow commands")


def add_probing(parser: Parser) -> None:
    """Options of the commands that ask subjects for their dialect."""
    parser.set_defaults(paths=[], case=[], resume=False)
    parser.add_argument("--env", action="append", default=[], metavar="NAME=PYTHON", help="in another interpreter too")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where to compute (default: cpu)")
    parser.add_argument(
        "-j",
        "--jobs",
        type=at_least_one,
        default=(os.cpu_count() or 1) + 1,
        help="workers alive at once (default: cores + 1)",
    )
    parser.add_argument(
        "--timeout", type=seconds, default=60.0, metavar="S", help="seconds that one call may take (default: 60)"
    )
    parser.add_argument("--known", type=Path, action="append", default=[], metavar="FILE", help="more known deviations")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write what was found here, as JSON")
    parser.add_argument("--out", type=Path, metavar="DIR", help="the run folder (default: reports/<UTC>-<id>)")


def add_provisioning(parser: Parser) -> None:
    """Options of the commands that make environments and judge in them."""
    parser.add_argument(
        "--constraint", type=Path, metavar="FILE", help="versions of all else (default: those that are installed)"
    )
    parser.add_argument(
        "--python", metavar="PYTHON", help="makes the environments, and has what counts as installed (default: ours)"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where to compute (default: cpu)")
    parser.add_argument(
        "-j",
        "--jobs",
        type=at_least_one,
        default=(os.cpu_count() or 1) + 1,
        help="workers alive at once (default: cores + 1)",
    )
    parser.add_argument(
        "--timeout", type=seconds, default=60.0, metavar="S", help="seconds that one call may take (default: 60)"
    )


def at_least_none(text: str) -> int:
    """A number from 0."""
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{number} is less than none")
    return number


def at_least_one(text: str) -> int:
    """A number from 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than one")
    return number


def seconds(text: str) -> float:
    """A positive, finite number."""
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no positive number of seconds")
    return number
