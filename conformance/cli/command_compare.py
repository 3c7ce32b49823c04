"""`conformance compare`: what changed between two runs, or between a baseline and a run."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from conformance.cli.argument_parser import UsageError, absent, see_writable_files
from conformance.cli.output_folder import new_folder
from conformance.disk import write_asked
from conformance.engine.runlog import LOG, RunLogError
from conformance.gate.baseline import BaselineError, BaselineFile, read_baseline, side_of_baseline
from conformance.gate.comparison import Comparison
from conformance.gate.comparison import compare as compare_sides
from conformance.gate.decision import CONFORMS, REJECTED
from conformance.gate.observations import AmbiguousRunError, ComparedRun, read_side
from conformance.report.annotations import comparison_annotations
from conformance.report.comparison_report import (
    comparison_junit_xml,
    print_comparison,
    write_comparison,
    write_comparison_junit,
    write_comparison_page,
)


def compare(arguments: argparse.Namespace) -> int:
    """Compare the two sides, write the reports, and return the exit code."""
    see_writable_files(arguments.junit)
    out = arguments.out or new_folder("compare-")
    comparison = compare_folders(arguments.base, arguments.candidate, out, skip_budget=arguments.skip_budget)
    annotate_changes(comparison, arguments)
    if comparison.exit_code == REJECTED and arguments.exit_zero:
        return CONFORMS
    return comparison.exit_code


def compare_folders(
    base: Path, candidate: Path, out: Path, *, skip_budget: int = 0, about: Sequence[str] = ()
) -> Comparison:
    """
    Compare two run folders, or a baseline and a run folder; write the reports into `out` and print the comparison.

    about: lines to print after the first line, which is the conclusion.

    Raises:
        UsageError: a path is neither a run folder nor a baseline.
    """
    comparison = compare_sides(load_side(base), load_side(candidate), skip_budget=skip_budget)
    report_comparison(comparison, out, about)
    return comparison


def annotate_changes(comparison: Comparison, arguments: argparse.Namespace) -> None:
    """Write JUnit XML for --junit, and print workflow commands for --annotations."""
    if arguments.junit is not None:
        write_asked(arguments.junit, comparison_junit_xml(comparison.record(), comparison.still()))
    if arguments.annotations:
        for line in comparison_annotations(comparison.record(), Path.cwd()):
            print(line)


def report_comparison(comparison: Comparison, out: Path, about: Sequence[str] = ()) -> None:
    """Write the reports of a comparison into `out`, and print the comparison."""
    record = comparison.record()
    write_comparison(record, out)
    write_comparison_page(record, out)
    write_comparison_junit(record, comparison.still(), out / "junit.xml")
    print_comparison(record, sys.stdout, out, about)


def load_side(path: Path) -> ComparedRun:
    """
    Read a run folder or a baseline.

    Raises:
        UsageError: the path is neither; the message says what to do.
    """
    if not path.exists():
        raise absent("run folder or baseline", path)
    if path.is_file():
        return side_of_baseline(load_baseline(path), str(path)) if path.name != LOG else load_side(path.parent)
    try:
        if not (path / LOG).is_file():
            raise UsageError(f"{path} has no {LOG}: give a folder that conformance run --out has written")
        return read_side(path)
    except (RunLogError, AmbiguousRunError) as error:
        raise UsageError(str(error)) from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error


def load_baseline(path: Path, writer: str = "conformance run") -> BaselineFile:
    """
    Read a baseline. writer: the command that writes it again.

    Raises:
        UsageError: the file is not a baseline; the message says what to do.
    """
    try:
        return read_baseline(path, writer)
    except BaselineError as error:
        raise UsageError(str(error)) from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error
