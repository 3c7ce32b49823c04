"""The commands that judge nothing: list, validate, schema, report, explain, and `conformance` without a command."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from conformance import places
from conformance.cli.argument_parser import UsageError, see_run
from conformance.cli.case_choice import load_cases, one_case
from conformance.cli.offer import make_offer
from conformance.cli.provisioning import named_subjects
from conformance.diagnosis.detectability import distinguishes_any
from conformance.engine.adapters import read_adapters
from conformance.engine.environments import install_command
from conformance.engine.run_folder import graver_cells, log_of
from conformance.engine.runlog import Log, RunLog, read_log
from conformance.gate.decision import CONFORMS, USAGE, Decision, decide
from conformance.gate.formats import schema_text
from conformance.gate.run_ending import write_verdict
from conformance.report import RunLogError, print_summary, write_reports
from conformance.report.adapter_table import table
from conformance.report.case_explanation import explanation, lines
from conformance.spec.case import Case, ordinary
from conformance.spec.document import text
from conformance.spec.materialise import alone, distinct, duplicates, materialise

FIRST = """\
conformance decides whether attention implementations mean the same thing.

  conformance list adapters              list what can be judged here, and what other adapters need
  conformance smoke                      judge a few cases of everything, in about a minute
  conformance check mine.py:attention    judge a function of your own
  conformance run -a 'torch.*'           judge subjects, and write a report
  conformance port torch.mha 'keras.mha[jax]'   show what to change when you replace a framework

conformance --help lists every command, conformance COMMAND --help its options."""


def greet(_: argparse.Namespace) -> int:
    """Print the commands that most people need first."""
    print(FIRST)
    return CONFORMS


def explain(arguments: argparse.Namespace) -> int:
    """Print what one case asks, as text or as JSON; no framework is called."""
    case = one_case(arguments.cases, arguments.case)
    subjects = named_subjects(arguments.subject, "cpu")
    record = explanation(case, [subject for subject in subjects if arguments.subject or subject.counted])
    if arguments.json:
        json.dump(record, sys.stdout, indent=2, allow_nan=False)
        print()
    else:
        print("\n".join(lines(record)))
    return CONFORMS


def list_cases(arguments: argparse.Namespace) -> int:
    """Print the ids of cases, one per line."""
    for case in load_cases(arguments.paths, arguments.case, None):
        print(case.id)
    return CONFORMS


def list_adapters(arguments: argparse.Namespace) -> int:
    """Print the available subjects and what the others need; with --table, the table of all packaged adapters."""
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
    """Check case files; with --strict, also reject equal problems, cases that detect nothing and missing twins."""
    cases = load_cases(arguments.paths, (), None)
    equal = duplicates(cases)
    print(f"{len(cases)} cases, {distinct(cases)} distinct calls")
    for ids in equal:
        print(f"equal calls: {', '.join(ids)}: {EQUAL}", file=sys.stderr if arguments.strict else sys.stdout)
    for case in alone(cases) if arguments.strict else ():
        print(f"{case.source}: {case.id} {TWINLESS}", file=sys.stderr)
    idle = _idle(cases) if arguments.strict else ()
    for case in idle:
        print(f"{case.source}: {case.id} {IDLE}", file=sys.stderr)
    return USAGE if arguments.strict and (equal or idle or alone(cases)) else CONFORMS


EQUAL = "their tensors and arguments are the same, whatever outputs are requested; change inputs.seed of one of them"
TWINLESS = "must be refused, but no case makes the same call without the mistake: add this valid twin"
IDLE = "detects no deviation and has no feature of its own; see conformance audit"


def _idle(cases: Sequence[Case]) -> tuple[Case, ...]:
    """Return the cases that detect no deviation and have no feature of their own."""
    return tuple(case for case in ordinary(cases) if not distinguishes_any(materialise(case)))


def schema(arguments: argparse.Namespace) -> int:
    """Print the JSON Schema of a format."""
    print(text() if arguments.format == "cases" else schema_text(arguments.format), end="")
    return CONFORMS


def _write_verdict(folder: Path, log: Log) -> None:
    """Write verdict.json from the footer of the log; a run without a footer was interrupted."""
    cells, _ = graver_cells(log.records)
    decided = Decision.recorded(log.records[-1]) if log.complete else None
    write_verdict(folder, decided or decide(cells.values(), (), (), {}, interrupted=True), cells.values())


def report(arguments: argparse.Namespace) -> int:
    """Write all reports of a run folder again from its log."""
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
