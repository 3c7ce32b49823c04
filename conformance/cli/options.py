"""Options that several commands have, and the numbers that they take."""

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from conformance.cli.argument_parser import PLAIN, QUIET, VERBOSE, Parser

START = 180.0
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


def add_baseline(parser: Parser) -> None:
    """What an earlier run or check showed."""
    parser.add_argument("--baseline", type=Path, metavar="FILE", help="reject what changed against this file")
    parser.add_argument("--update-baseline", action="store_true", help="write what this run shows into the baseline")
    add_skip_budget(parser)


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
    add_jobs(parser, _usable_cores() + 1, "workers alive at once (default: cores + 1)")
    add_timeout(parser, 60)
    told = f"seconds from the start of a worker to its readiness (default: {START:g})"
    parser.add_argument("--start-timeout", type=seconds, default=START, metavar="S", help=told)


def add_jobs(parser: Parser, default: int, told: str) -> None:
    """How many workers."""
    parser.add_argument("-j", "--jobs", type=at_least_one, default=default, help=told)


def _usable_cores() -> int:
    """Those that this process may use: in a container or under taskset fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def add_timeout(parser: Parser, default: int) -> None:
    """How long one call may take."""
    told = f"seconds that one call may take (default: {default})"
    parser.add_argument("--timeout", type=seconds, default=float(default), metavar="S", help=told)


def add_showing(parser: Parser) -> None:
    """How much is told while it goes on, and after it."""
    levels = parser.add_mutually_exclusive_group()
    levels.add_argument(
        "-q",
        "--quiet",
        dest="level",
        action="store_const",
        const=QUIET,
        help="no progress, no line for each subject",
    )
    levels.add_argument(
        "-v", "--verbose", dest="level", action="store_const", const=VERBOSE, help="name every cell as it is judged"
    )
    parser.add_argument(
        "--durations", type=at_least_none, metavar="N", help="also print the N calls that took longest (0: all)"
    )
    parser.add_argument("--open", action="store_true", help="open the page in the browser")
    parser.set_defaults(level=PLAIN, last_failed=False, collect_only=False)


def add_choosing(parser: Parser, last_failed: str) -> None:
    """What is asked, by what was rejected; and only telling it."""
    parser.add_argument("--last-failed", action="store_true", help=last_failed)
    parser.add_argument(
        "--collect-only", action="store_true", help="print what would be asked of whom; start no framework"
    )


def add_thorough(parser: Parser) -> None:
    """How much is asked."""
    told = "ask every case and the dense forms: without it, and without -k, a run leaves out what adds little"
    parser.add_argument("--thorough", action="store_true", help=told)


def add_no_cache(parser: Parser) -> None:
    """Whether replies of earlier runs count."""
    told = "make every call anew: replies of earlier runs in the same environment are neither used nor kept"
    parser.add_argument("--no-cache", action="store_true", help=told)


def add_probing(parser: Parser) -> None:
    """Options of the commands that ask subjects for their dialect."""
    parser.set_defaults(paths=[], case=[], resume=False, thorough=False)
    add_showing(parser)
    add_repeated(parser, "--env", metavar="NAME=PYTHON", told="in another interpreter too")
    add_workers(parser)
    add_no_cache(parser)
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
    return _whole(text, 0)


def at_least_one(text: str) -> int:
    """A number from 1."""
    return _whole(text, 1)


def _whole(text: str, least: int) -> int:
    """
    A whole number.

    Raises:
        argparse.ArgumentTypeError: it is none, or too small.
    """
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number: give one from {least}, such as 2") from None
    if number < least:
        raise argparse.ArgumentTypeError(f"{number} is less than {('none', 'one')[least]}")
    return number


def seconds(text: str) -> float:
    """
    A positive, finite number.

    Raises:
        argparse.ArgumentTypeError: it is something else.
    """
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no positive number of seconds")
    return number


def percentage(text: str) -> float:
    """A share from 0 to 1, written as a percentage."""
    number = float(text.strip().removesuffix("%"))
    if not 0 <= number <= 100:  # noqa: PLR2004 - per cent
        raise argparse.ArgumentTypeError(f"{text} is no percentage from 0 to 100")
    return number / 100
