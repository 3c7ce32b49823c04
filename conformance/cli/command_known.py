"""Lists of known deviations: read them for a run, and print suggested edits (`conformance known update`)."""

import argparse
import datetime as dt
import difflib
import sys
from collections.abc import Sequence
from pathlib import Path

from conformance.cli.argument_parser import UsageError, see_run
from conformance.cli.offer import existing
from conformance.engine.run_folder import load_run
from conformance.engine.runlog import LOG, Log, RunLogError, read_log
from conformance.gate.decision import CONFORMS
from conformance.gate.known import Known, Oracle
from conformance.gate.known_file import PACKAGED, read_known, shown_entry
from conformance.gate.known_update import additions, appended, propose
from conformance.spec.texts import printable


def load_known(paths: Sequence[Path], oracle: Oracle | None = None) -> Known:
    """
    Read the packaged list of known deviations and the given lists, with today's date for expiry.

    oracle: the `Judge` of the run.

    Raises:
        UsageError: a file does not exist. CaseFileErrors: it lists every mistake of every file.
    """
    return Known(read_known([PACKAGED, *existing(paths)]), dt.datetime.now(tz=dt.UTC).date(), oracle)


def update(arguments: argparse.Namespace) -> int:
    """Print a unified diff for each list; no file is written."""
    log = _read(arguments.run)
    files = existing(arguments.files) or [PACKAGED]
    printed = remarked = False
    for file in files:
        lines = [int(origin.rpartition(":")[2]) for _, origin in read_known([file])]
        text = file.read_text(encoding="utf-8")
        try:
            proposal = propose(text, shown_entry(file), lines, log.records)
        except ValueError as error:
            raise UsageError(printable(str(error))) from error
        new = appended(proposal.text, additions(log.records) if file == files[-1] else "")
        remarked = remarked or bool(proposal.remarks)
        for remark in proposal.remarks:
            print(printable(remark), file=sys.stderr)
        diff = list(_diff(text, new, file))
        printed = printed or bool(diff)
        sys.stdout.writelines(diff)
    if not printed and remarked:
        print("no diff: change the entries that are named above by hand")
    elif not printed:
        print("nothing to edit: every entry that this run tested is valid, and no rejected verdict can be listed")
    return CONFORMS


def _diff(before: str, after: str, file: Path) -> list[str]:
    name = str(file)
    return list(difflib.unified_diff(before.splitlines(keepends=True), after.splitlines(keepends=True), name, name))


def _read(folder: Path) -> Log:
    """
    Read the log of a finished run.

    Raises:
        UsageError: the run is not finished, or the folder has no run.
    """
    see_run(folder)
    try:
        load_run(folder, whole=False)  # checks the types of all fields
        log = read_log(folder / LOG)
    except (RunLogError, OSError) as error:
        raise UsageError(str(error)) from error
    if not log.complete:
        raise UsageError(f"{folder / LOG}: the run is not finished: resume it with --out {folder} --resume")
    return log
