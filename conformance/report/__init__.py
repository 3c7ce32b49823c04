"""
Reports of what a run found, for people and for machines.

Everything here is a function of a run folder; nothing here decides a verdict.
"""

from pathlib import Path

from conformance.engine.run_folder import Run, load_run
from conformance.engine.runlog import RunLogError
from conformance.report.junit import write_junit
from conformance.report.run_page import write_page
from conformance.report.summary import write_summary
from conformance.report.terminal import print_summary

__all__ = ["Run", "RunLogError", "load_run", "print_summary", "write_reports"]


def write_reports(folder: Path) -> Run:
    """
    Write index.html, junit.xml and summary.md next to the log in `folder`; returns the run that was read.

    A link at one of these paths is replaced, not followed, so that nothing is written outside the folder.
    """
    run = load_run(folder)
    write_page(run)
    write_junit(run, folder / "junit.xml")
    write_summary(run, folder / "summary.md")
    return run
