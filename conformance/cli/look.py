"""The commands that look and judge nothing: list, validate, schema, report."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from conformance import places
from conformance.cli.choice import load_cases
from conformance.cli.errors import UsageError, see_run
from conformance.cli.offer import make_offer
from conformance.engine.adapters import read_adapters
from conformance.engine.environments import install_command
from conformance.engine.run import graver_cells, log_of
from conformance.engine.runlog import Log, RunLog, read_log
from conformance.gate.decide import CONFORMS, USAGE, Decision, decide
from conformance.gate.formats import schema_text
from conformance.gate.verdict_file import write_verdict
from conformance.judge.power import has_power
from conformance.report import RunLogError, print_summary, write_reports
from conformance.report.adapter_table import table
from conformance.spec.case import Case
from conformance.spec.digest import alone, distinct, duplicates
from conformance.spec.features import ordinary
from conformance.spec.materialise import materialise
from conformance.spec.schema import text


def list_cases(arguments: argparse.Namespace) -> int:
    """Print the ids of cases, one on a line."""
    for case in load_cases(arguments.paths, arguments.case, None):
        print(case.id)
    return CONFORMS


def list_adapters(arguments: argparse.Namespace) -> int:
    """Print what can be judged here, and what is missing for the rest; or the table of all that ship."""
    if arguments.table:
        print(*table(read_adapters([places.adapters()])), sep="\n")
        return CONFORMS
    offer = make_offer((), (), "cpu")
    for subject in offer.subjects:
        if subject.counted:
            about = f"{', '.join(subject.operators)}  {', '.join(subject.dtypes)}  {subject.summary}"
            print(f"{subject.name}  {about}".rstrip())
    for other in offer.not_offered:
        remedy = f": {install_command('python', other['missing'])}" if other["extra"] else ""
        print(f"{other['adapter']}  not offered: needs {', '.join(other['missing'])}{remedy}")
    return CONFORMS


def validate(arguments: argparse.Namespace) -> int:
    """Check case files; with --strict, also that no two problems are equal, and that every case is of use."""
    cases = load_cases(arguments.paths, (), None)
    equal = duplicates(cases)
    print(f"{len(cases)} cases, {distinct(cases)} distinct problems")
    for ids in equal:
        print(f"equal problems: {', '.join(ids)}", file=sys.stderr if arguments.strict else sys.stdout)
    for case in alone(cases) if arguments.strict else ():
        print(f"{case.source}: {case.id} {TWINLESS}", file=sys.stderr)
    useless = _useless(cases) if arguments.strict else ()
    for case in useless:
        print(f"{case.source}: {case.id} {USELESS}", file=sys.stderr)
    return USAGE if arguments.strict and (equal or useless or alone(cases)) else CONFORMS


TWINLESS = "must be refused, and no case asks for the same without the mistake: a valid twin is needed"
USELESS = "tells no deviation apart and has no feature that no other case has; see conformance audit"


def _useless(cases: Sequence[Case]) -> tuple[Case, ...]:
    """Cases with neither power nor a feature of their own."""
    return tuple(case for case in ordinary(cases) if not has_power(materialise(case)))


def schema(arguments: argparse.Namespace) -> int:
    """Print the JSON Schema of a format."""
    print(text() if arguments.format == "cases" else schema_text(arguments.format), end="")
    return CONFORMS


def _write_verdict(folder: Path, log: Log) -> None:
    """What the footer says that was decided; a run without one was cut."""
    cells, _ = graver_cells(log.records)
    decided = Decision.recorded(log.records[-1]) if log.complete else None
    write_verdict(folder, decided or decide(cells.values(), (), (), {}, interrupted=True), cells.values())


def report(arguments: argparse.Namespace) -> int:
    """Write every file of a run folder again from its log."""
    folder: Path = arguments.folder
    see_run(folder)
    try:
        with RunLog.hold(log_of(folder)) as log:
            judged = write_reports(folder)
            _write_verdict(folder, read_log(log.path))
    except RunLogError as error:
        raise UsageError(str(error)) from error
    print_summary(judged, sys.stdout)
    return CONFORMS
