"""`conformance check`: judge a function of the user without a hand-written adapter."""

import argparse
import sys
from pathlib import Path

from conformance.checking.declarations import parse_pairs
from conformance.checking.examples import write_example
from conformance.checking.function_check import Checked, CheckRequest
from conformance.checking.function_check import check as judge
from conformance.checking.target import CheckError, parse_target
from conformance.cli.argument_parser import QUIET
from conformance.cli.baseline_option import BaselineOption
from conformance.cli.command_check import calling_of
from conformance.cli.errors import UsageError, see_writable_files
from conformance.cli.output_folder import new_folder, point_latest
from conformance.cli.progress import Progress, open_page, print_slowest
from conformance.disk import write_asked
from conformance.engine.job import RunListener
from conformance.gate.decision import CONFORMS, INCOMPLETE, REJECTED
from conformance.report import print_summary
from conformance.report.annotations import run_annotations
from conformance.report.junit import junit_xml


def check(arguments: argparse.Namespace) -> int:
    """Judge the function, or write an example function, and return the exit code."""
    try:
        if arguments.example is not None:
            return _example(arguments)
        see_writable_files(arguments.junit)
        baseline = BaselineOption(arguments)
        checked = _judged(arguments, baseline)
    except CheckError as error:
        raise UsageError(str(error)) from error
    for line in checked.lines():
        print(line)
    print()
    print_slowest(map(checked.run.cells.record, checked.run.judged), arguments.durations)
    print_summary(checked.run, sys.stdout, with_findings=False, brief=arguments.level == QUIET)
    if arguments.open:
        open_page(checked.run.folder)
    if arguments.junit is not None:
        write_asked(arguments.junit, junit_xml(checked.run))
    if arguments.annotations:
        for line in run_annotations(checked.run, Path.cwd()):
            print(line)
    code = checked.decision.exit_code
    baseline.finish(complete=code != INCOMPLETE and not (arguments.stop and code == REJECTED))
    return CONFORMS if code == REJECTED and arguments.exit_zero else code


def _example(arguments: argparse.Namespace) -> int:
    if arguments.target is not None:
        raise CheckError("--example writes its own function: leave FILE:FUNCTION out")
    path, command = write_example(arguments.example, Path.cwd())
    print(f"Written: {path.name}, attention in NumPy with one mistake in it. Find it with:")
    print(command)
    return CONFORMS


def _judged(arguments: argparse.Namespace, baseline: BaselineOption) -> Checked:
    if arguments.target is None:
        raise CheckError("no function given: expected FILE:FUNCTION, such as mine.py:attention, or --example")
    request = CheckRequest(
        target=parse_target(arguments.target),
        like=arguments.like,
        calling=calling_of(arguments),
        profile=arguments.profile,
        declare=parse_pairs(arguments.declare),
        globs=tuple(arguments.case),
        dtypes=tuple(arguments.dtype),
        timeout=arguments.timeout,
        min_judged=arguments.min_judged,
        stop=arguments.stop,
        jobs=arguments.jobs,
        signature=arguments.signature,
    )
    folder = _folder(arguments.out)
    try:
        with Progress(sys.stderr, name_red=False, level=arguments.level) as progress:
            watch = RunListener(cell=progress.cell, worker=progress.worker, total=progress.plan)
            return judge(request, folder, watch, lambda whole: baseline.problems(folder, whole=whole))
    finally:
        _tidy(folder, arguments.out)


def _folder(out: Path | None) -> Path:
    """Create the run folder."""
    folder = out or new_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(str(error)) from error
    return folder


def _tidy(folder: Path, out: Path | None) -> None:
    """Remove the folder if the check wrote nothing; otherwise point reports/latest to it."""
    if out is not None:
        return
    if any(folder.iterdir()):
        point_latest(folder)
    else:
        folder.rmdir()
