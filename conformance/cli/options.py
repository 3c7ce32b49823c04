"""Options that several commands have, and the numbers that they take."""

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from conformance.cli.words import Parser

RUN_FOLDER = "the run folder (default: reports/<UTC>-<id>)"


def add_repeated(parser: Parser, *flags: str, metavar: str, told: str, kind: Callable[[str], Any] = str) -> None:
    """An option that may be given several times."""
    parser.add_argument(*flags, action="append", default=[], type=kind, metavar=metavar, help=told)


def add_paths(parser: Parser, told: str = "suite files or folders") -> None:
    """Case files, by position."""
    parser.add_argument("paths", nargs="*", type=Path, metavar="CASE_PATH", help=told)


def add_case_files(parser: Parser, told: str = "suite files or folders") -> None:
    """Case files, by option."""
    add_repeated(parser, "--cases", kind=Path, metavar="CASE_PATH", told=told)


def add_subjects(
    parser: Parser, told: str = "a subject, a glob (* and ?), or the path of an adapter file; may be repeated"
) -> None:
    """Which subjects."""
    add_repeated(parser, "-a", "--subject", metavar="SUBJECT", told=told)


def add_cases(parser: Parser, told: str = "only cases with such ids; may be repeated") -> None:
    """Which cases."""
    add_repeated(parser, "-k", "--case", metavar="GLOB", told=told)


def add_known_lists(parser: Parser, told: str = "more known deviations") -> None:
    """Lists of known deviations."""
    add_repeated(parser, "--known", kind=Path, metavar="FILE", told=told)


def add_out(parser: Parser, told: str = RUN_FOLDER) -> None:
    """The folder that is written."""
    parser.add_argument("--out", type=Path, metavar="DIR", help=told)


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


def add_exit_zero(parser: Parser) -> None:
    """No red exit code."""
    parser.add_argument("--exit-zero", action="store_true", help="exit with 0 instead of 1: report only")


def add_workers(parser: Parser) -> None:
    """Where workers compute, how many, how long."""
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where to compute (default: cpu)")
    parser.add_argument(
        "-j",
        "--jobs",
        type=at_least_one,
        default=_usable_cores() + 1,
        help="workers alive at once (default: cores + 1)",
    )
    add_timeout(parser, 60)


def _usable_cores() -> int:
    """Those that this process may use: in a container or under taskset fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def add_timeout(parser: Parser, default: int) -> None:
    """How long one call may take."""
    told = f"seconds that one call may take (default: {default})"
    parser.add_argument("--timeout", type=seconds, default=float(default), metavar="S", help=told)


def add_probing(parser: Parser) -> None:
    """Options of the commands that ask subjects for their dialect."""
    parser.set_defaults(paths=[], case=[], resume=False)
    add_repeated(parser, "--env", metavar="NAME=PYTHON", told="in another interpreter too")
    add_workers(parser)
    add_known_lists(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write what was found here, as JSON")
    add_out(parser)


def add_provisioning(parser: Parser) -> None:
    """Options of the commands that make environments and judge in them."""
    parser.add_argument(
        "--constraint", type=Path, metavar="FILE", help="versions of all else (default: those that are installed)"
    )
    parser.add_argument(
        "--python", metavar="PYTHON", help="makes the environments, and has what counts as installed (default: ours)"
    )
    add_workers(parser)


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
