"""`conformance repro`: one cell of a run as a folder that runs without the harness."""

import argparse
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from conformance.bridge.messages import read_declaration
from conformance.bridge.profile import Profile
from conformance.cli.choice import load_cases
from conformance.cli.errors import UsageError, see_run
from conformance.cli.parser import build_parser
from conformance.cli.provisioning import named_subjects, patterns_of
from conformance.engine.adapters import Subject
from conformance.engine.cells import Cell, make_cell
from conformance.engine.judging import Judge
from conformance.engine.reproduction import write_reproduction
from conformance.engine.runlog import LOG, RunLogError, read_log
from conformance.engine.selection import adapter_file
from conformance.gate.decide import CONFORMS
from conformance.judge.expectation import Expectation
from conformance.spec.digest import problem_digest
from conformance.spec.glob import matches, near_glob
from conformance.spec.materialise import materialise

Record = Mapping[str, Any]


def repro(arguments: argparse.Namespace) -> int:
    """Write the folder and say how to run it."""
    see_run(arguments.run)
    try:
        header, *records = read_log(arguments.run / LOG).records
    except (RunLogError, OSError) as error:
        raise UsageError(str(error)) from error
    record = _record(records, arguments)
    paths, files = _asked(header)
    paths = arguments.cases or paths
    subject = _subject(header, record, files)
    cell = _cell(paths, header, record, subject)
    name = re.sub(r"[^\w.,=-]+", "-", f"repro-{record['case']}-{record['subject']}").strip("-")
    folder = arguments.out or Path(name)
    about = {
        "versions": _worker(records, record).get("versions", {}),
        "environment": _environment(_worker(records, record), subject),
        "recorded": ": ".join(filter(None, (record["verdict"], record.get("reason", "")))),
        "rerun": record.get("rerun") or _rerun(paths, subject, record),
    }
    try:
        write_reproduction(folder, cell, _declared(cell, record), about)
    except FileExistsError as error:
        raise UsageError(f"{folder} is there already: choose another --out") from error
    python = header["environments"][subject.environment]["python"]
    print(f"Run it: {shlex.join([python, str(folder / 'repro.py')])}")
    print(f"In the run: {about['recorded']}")
    print(f"Again with the harness: {about['rerun']}")
    return CONFORMS


def _record(records: Sequence[Record], arguments: argparse.Namespace) -> Record:
    """
    The one cell that is meant.

    Raises:
        UsageError: none or several are, or the framework was not called in it.
    """
    cells = [each for each in records if each["type"] == "cell"]
    for key, wanted in (("case", arguments.case), ("subject", arguments.subject)):
        names = {each[key] for each in cells}
        exact = [each for each in cells if each[key] == wanted]
        cells = exact or [each for each in cells if matches(wanted, each[key])]
        if not cells:
            near = near_glob(wanted, names)
            hint = f"; did you mean {shlex.quote(near)}?" if near else ""
            raise UsageError(f"{arguments.run} has no cell with the {key} {wanted}{hint}")
    if len(cells) > 1:
        first = shlex.join([cells[0]["case"], cells[0]["subject"]])
        raise UsageError(f"{len(cells)} cells are meant: name one, such as {first}")
    if cells[0]["verdict"] == "unsupported":
        raise UsageError(f"nothing was called in this cell: {cells[0].get('reason', 'unsupported')}")
    return cells[0]


def _asked(header: Record) -> tuple[list[Path], list[str]]:
    """Case paths and adapter files of a run, from the command that its log holds."""
    words = header["command"][1:]
    if words[:1] not in (["run"], ["smoke"], ["probe"], ["port"]):
        return [], []
    given = build_parser().parse_args(words)
    return given.paths, [pattern for pattern in getattr(given, "subject", ()) if adapter_file(pattern)]


def _subject(header: Record, record: Record, files: Sequence[str]) -> Subject:
    """
    The subject of a cell, from the adapter that was judged.

    Raises:
        UsageError: the adapter is not there, or is another by now.
    """
    about = header["subjects"][record["subject"]]
    given = named_subjects(files, header["device"]) if files else []
    for subject in (*given, *named_subjects([], header["device"])):
        same = subject.adapter.name == about["adapter"] and subject.variant == about["variant"]
        if same and subject.counted == about["counted"]:
            if subject.adapter.digest != about["digest"]:
                raise UsageError(f"{subject.adapter.path.name} has changed since this run: judge it again")
            return replace(subject, environment=about["environment"])
    raise UsageError(f"the adapter {about['adapter']} of this run is not one of ours, nor a file in its command")


def _cell(paths: Sequence[Path], header: Record, record: Record, subject: Subject) -> Cell:
    """
    The call that was made.

    Raises:
        UsageError: the case is another by now.
    """
    (case,) = load_cases(paths, [record["case"]], None)
    problem = materialise(case)
    made = make_cell(case, problem, subject)
    if problem_digest(problem) != header["cases"][case.id]["digest"] or not isinstance(made, Cell):
        raise UsageError(f"{case.id} in {case.source} has changed since this run: judge it again")
    return made


def _declared(cell: Cell, record: Record) -> tuple[Expectation, Profile] | None:
    """What is expected under what was declared; None where the subject did not come so far."""
    if "declared" not in record or cell.case.mistake is not None:
        return None
    declaration = read_declaration(record["declared"])
    return Judge().declared(cell, declaration), declaration.profile


def _worker(records: Sequence[Record], record: Record) -> Record:
    """The last worker that was ready to serve the subject; nothing where there was none."""
    ready = [each for each in records if each["type"] == "worker" and each["status"] == "ready"]
    return next((each for each in reversed(ready) if record["subject"] in each["subjects"]), {})


def _environment(worker: Record, subject: Subject) -> dict[str, str]:
    """The variables on which the numbers depend, as the worker had them."""
    hidden = {"CUDA_VISIBLE_DEVICES": "-1"} if subject.device == "cpu" else {}
    return {**worker.get("settings", {}), **hidden, **subject.env}


def _rerun(paths: Sequence[Path], subject: Subject, record: Record) -> str:
    """The command that judges this cell alone; of a pass, the log has none."""
    return shlex.join(["conformance", "run", *map(str, paths), "-a", *patterns_of([subject]), "-k", record["case"]])
