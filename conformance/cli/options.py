"""Options that several commands share, and the parsers of their values."""

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from conformance.cli.argument_parser import PLAIN, QUIET, VERBOSE, Parser
from conformance.spec.texts import NOT_A_TIME_LIMIT, is_time_limit

START = 180.0
RUN_FOLDER = "the run folder (default: reports/<UTC>-<id>)"


def add_repeated(parser: Parser, *flags: str, metavar: str, help_text: str, kind: Callable[[str], Any] = str) -> None:
    """Add an option that may be given several times."""
    parser.add_argument(*flags, action="append", default=[], type=kind, metavar=metavar, help=help_text)


def add_paths(parser: Parser, help_text: str = "case files or folders") -> None:
    """Add the positional arguments for case files."""
    parser.add_argument("paths", nargs="*", type=Path, metavar="CASE_PATH", help=help_text)


def add_case_files(parser: Parser, help_text: str = "case files or folders; may be repeated") -> None:
    """Add --cases."""
    add_repeated(parser, "--cases", kind=Path, metavar="CASE_PATH", help_text=help_text)


def add_subjects(
    parser: Parser,
    help_text: str = "a subject, a glob, or the path of an adapter file; may be repeated (default: all installed)",
) -> None:
    """Add -a, --subject."""
    add_repeated(parser, "-a", "--subject", metavar="SUBJECT", help_text=help_text)


def add_cases(parser: Parser, help_text: str = "only cases whose id matches; may be repeated") -> None:
    """Add -k, --case."""
    add_repeated(parser, "-k", "--case", metavar="GLOB", help_text=help_text)


def add_known_lists(
    parser: Parser, help_text: str = "another list of known deviations, besides the packaged one; may be repeated"
) -> None:
    """Add --known."""
    add_repeated(parser, "--known", kind=Path, metavar="FILE", help_text=help_text)


def add_out(parser: Parser, help_text: str = RUN_FOLDER) -> None:
    """Add --out."""
    parser.add_argument("--out", type=Path, metavar="DIR", help=help_text)


def add_skip_budget(parser: Parser) -> None:
    """Add --skip-budget."""
    help_text = "how many cells (one case on one subject) that were judged before may be unsupported now (default: 0)"
    parser.add_argument("--skip-budget", type=at_least_zero, default=0, metavar="N", help=help_text)


def add_baseline(parser: Parser) -> None:
    """Add the options that compare a run with a baseline."""
    help_text = "compare with this baseline, and also reject what changed for the worse"
    parser.add_argument("--baseline", type=Path, metavar="FILE", help=help_text)
    parser.add_argument("--update-baseline", action="store_true", help="write the results of this run to the baseline")
    add_skip_budget(parser)


def add_junit(parser: Parser) -> None:
    """Add --junit."""
    parser.add_argument("--junit", type=Path, metavar="FILE", help="also write JUnit XML to this file")


def add_annotations(parser: Parser) -> None:
    """Add --annotations."""
    help_text = "also print the rejected verdicts, as workflow commands of GitHub"
    parser.add_argument("--annotations", choices=("github",), help=help_text)


def add_exit_zero(parser: Parser) -> None:
    """Add --exit-zero."""
    help_text = "report only: exit with 0 instead of 1 if something is rejected"
    parser.add_argument("--exit-zero", action="store_true", help=help_text)


def add_workers(parser: Parser) -> None:
    """Add the options of workers: device, number and time limits."""
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where to compute (default: cpu)")
    add_jobs(parser, _usable_cores() + 1, "number of workers that run at once (default: cores + 1)")
    add_timeout(parser, 60)
    help_text = f"seconds that a worker may take to start (default: {START:g})"
    parser.add_argument("--start-timeout", type=seconds, default=START, metavar="S", help=help_text)


def add_jobs(parser: Parser, default: int, help_text: str) -> None:
    """Add -j, --jobs."""
    parser.add_argument("-j", "--jobs", type=at_least_one, default=default, help=help_text)


def _usable_cores() -> int:
    """Return how many cores this process may use; a container or taskset may allow fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def add_timeout(parser: Parser, default: int) -> None:
    """Add --timeout; default: in seconds."""
    help_text = f"seconds that one call may take (default: {default})"
    parser.add_argument("--timeout", type=seconds, default=float(default), metavar="S", help=help_text)


def add_showing(parser: Parser) -> None:
    """Add the options that say how much is printed during a run and after it."""
    levels = parser.add_mutually_exclusive_group()
    levels.add_argument(
        "-q",
        "--quiet",
        dest="level",
        action="store_const",
        const=QUIET,
        help="print neither progress nor the line of each subject",
    )
    levels.add_argument(
        "-v",
        "--verbose",
        dest="level",
        action="store_const",
        const=VERBOSE,
        help="print every verdict as soon as it is known",
    )
    parser.add_argument("--durations", type=at_least_zero, metavar="N", help="also print the N slowest calls (0: all)")
    parser.add_argument("--open", action="store_true", help="open the report in the browser")
    parser.set_defaults(level=PLAIN, last_failed=False, collect_only=False)


def add_choosing(parser: Parser, last_failed: str) -> None:
    """Add --last-failed with this help text, and --collect-only."""
    parser.add_argument("--last-failed", action="store_true", help=last_failed)
    parser.add_argument(
        "--collect-only", action="store_true", help="print which calls would be made, without starting a framework"
    )


def add_thorough(parser: Parser) -> None:
    """Add --thorough."""
    help_text = (
        "judge everything: also the cases listed in thorough.txt, some variants, and the dense forms (all masks merged "
        "into one argument); with -k, a run leaves out no case"
    )
    parser.add_argument("--thorough", action="store_true", help=help_text)


def add_no_cache(parser: Parser) -> None:
    """Add --no-cache."""
    help_text = "make every call: do not use replies of earlier runs, and do not store new ones"
    parser.add_argument("--no-cache", action="store_true", help=help_text)


def add_probing(parser: Parser) -> None:
    """Add the options of the commands that probe subjects."""
    parser.set_defaults(paths=[], case=[], resume=None, thorough=False)
    add_showing(parser)
    add_repeated(parser, "--env", metavar="NAME=PYTHON", help_text="also probe in another environment; may be repeated")
    add_workers(parser)
    add_no_cache(parser)
    add_known_lists(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the result to this file, as JSON")
    add_out(parser)


def add_provisioning(parser: Parser) -> None:
    """Add the options of the commands that create environments and judge in them."""
    parser.add_argument(
        "--constraint",
        type=Path,
        metavar="FILE",
        help="a file with the versions of all other packages (default: the installed versions)",
    )
    parser.add_argument(
        "--python",
        metavar="PYTHON",
        help="the interpreter that creates the environments; versions that you do not give are those installed in it "
        "(default: this one)",
    )
    add_workers(parser)


def at_least_zero(text: str) -> int:
    """Parse a whole number of at least 0."""
    return _whole(text, 0)


def at_least_one(text: str) -> int:
    """Parse a whole number of at least 1."""
    return _whole(text, 1)


def _whole(text: str, least: int) -> int:
    """
    Parse a whole number.

    Raises:
        argparse.ArgumentTypeError: the text is not a whole number, or the number is too small.
    """
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a whole number: give a number of at least {least}, such as 2"
        ) from None
    if number < least:
        raise argparse.ArgumentTypeError(f"{number} is less than {least}")
    return number


def seconds(text: str) -> float:
    """
    Parse a positive, finite number of seconds.

    Raises:
        argparse.ArgumentTypeError: the text is something else.
    """
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not is_time_limit(number):
        raise argparse.ArgumentTypeError(NOT_A_TIME_LIMIT.format(text))
    return number


def percentage(text: str) -> float:
    """
    Parse a percentage from 0 to 100 into a share from 0 to 1.

    Raises:
        argparse.ArgumentTypeError: the number is out of range. ValueError: the text is not a number.
    """
    number = float(text.strip().removesuffix("%"))
    if not 0 <= number <= 100:  # noqa: PLR2004 - per cent
        raise argparse.ArgumentTypeError(f"{text} is not a percentage from 0 to 100")
    if 0 < number < 1 and not text.strip().endswith("%"):
        meant = f"write {number * 100:g} for {number:.0%}, or {number:g}% if you mean less than one per cent"
        raise argparse.ArgumentTypeError(f"{text} is less than one per cent: {meant}")
    return number / 100
