"""`conformance repro`: write one call of a run as a script that runs without conformance."""

import argparse
import json
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from conformance.bounds.outputs import UnderivedBound
from conformance.bridge.loading import sources
from conformance.bridge.messages import Request, request_message
from conformance.bridge.profile import Profile
from conformance.bridge.reproducing import CALL, EXPECTED, TOLERANCE, VARIANCE
from conformance.bridge.strict_json import plain_data
from conformance.checking.adapter_text import ADAPTER
from conformance.cli.argument_parser import UsageError, see_run
from conformance.cli.case_choice import load_cases
from conformance.cli.parser import build_parser
from conformance.cli.provisioning import named_subjects, patterns_of
from conformance.engine.adapters import Subject, adapter_file
from conformance.engine.cells import Cell, make_cell
from conformance.engine.judging import Judge
from conformance.engine.logged_cell import LoggedCell
from conformance.engine.process import copy_bridge
from conformance.engine.records import Header, Worker
from conformance.engine.run_folder import Run, load_run
from conformance.engine.runlog import RunLogError
from conformance.engine.worker_plan import harmless
from conformance.gate.decision import CONFORMS
from conformance.spec.materialise import materialise, problem_digest
from conformance.spec.mistakes import matches, near_glob
from conformance.spec.problem import Array
from conformance.spec.texts import printable, quoted
from conformance.verdicts.compare import counted_variance, has_rms_gate, rms_limit
from conformance.verdicts.expectation import Expectation

SCRIPT = '''\
"""
CASE
on SUBJECT

The call is stored in call.npz and facts.json; ADAPTER makes it. Run this script with the interpreter of the subject: it
needs NumPy, the framework and the files of this folder.
"""

import json
import os
import sys
from pathlib import Path

folder = Path(__file__).resolve().parent
facts = json.loads((folder / "facts.json").read_text(encoding="utf-8"))
os.environ.update(facts["environment"])  # threads, backend and so on as in the run, before NumPy is loaded

from conformance.bridge.reproducing import reproduce

lines, code = reproduce(folder, facts)
for line in lines:
    print(line)
sys.exit(code)
'''


def write_reproduction(
    folder: Path, cell: Cell, declared: tuple[Expectation, Profile] | None, about: Mapping[str, Any]
) -> None:
    """
    Write the folder of a cell.

    declared: the expected reply and the arithmetic profile; None if nothing was declared. about: versions, environment,
    recorded and rerun, which the script uses and prints.

    Raises:
        FileExistsError: the folder exists.
    """
    folder.mkdir(parents=True)
    copy_bridge(folder)
    (folder / "adapter").mkdir()
    for file in sources(cell.subject.adapter.path):
        shutil.copy(file, folder / "adapter")
    adapter = f"adapter/{cell.subject.adapter.path.name}"
    message = request_message(Request(1, cell.call, cell.case.requirements(), cell.reply_limit))
    arrays = {f"{CALL}.{name}": np.array(tensor.bits, order="C") for name, tensor in message.tensors.items()}
    facts = {
        "case": cell.case.id,
        "subject": cell.subject.name,
        "adapter": adapter,
        "call": message.fields,
        "tensors": {name: tensor.dtype for name, tensor in message.tensors.items()},
        "outputs": {},
        "mistake": cell.case.mistake,
        **about,
    }
    if declared is not None:
        expectation, profile = declared
        arrays |= _expected(expectation)
        facts["outputs"] = {
            name: {"dtype": each.dtype, "rms_limit": _rms_limit(name, each.values, profile)}
            for name, each in expectation.reply.items()
        }
    np.savez_compressed(folder / "call.npz", **arrays)  # type: ignore[arg-type]  # names of arrays, none is allow_pickle
    (folder / "facts.json").write_text(
        json.dumps(plain_data(facts), indent=2, allow_nan=False) + "\n", encoding="utf-8"
    )
    names = {"CASE": cell.case.id, "SUBJECT": cell.subject.name, "ADAPTER": adapter}
    script = re.sub("|".join(names), lambda word: _in_docstring(names[word[0]]), SCRIPT)
    (folder / "repro.py").write_text(script, encoding="utf-8")


def _in_docstring(text: str) -> str:
    """A name that is safe in a docstring: it neither ends the docstring nor begins an escape."""
    return re.sub(r'[\\"]', "_", printable(text))


def _expected(expectation: Expectation) -> dict[str, Array]:
    found = {}
    for name, each in expectation.reply.items():
        bound = expectation.bounds[name]
        found[f"{EXPECTED}.{name}"] = each.values
        found[f"{TOLERANCE}.{name}"] = bound.tolerance
        found[f"{VARIANCE}.{name}"] = counted_variance(bound)
    return found


def _rms_limit(name: str, expected: Array, profile: Profile) -> float | None:
    """The limit of the root mean square; None if the second gate does not apply (docs/tolerance.md section 1)."""
    return rms_limit(name, expected) if has_rms_gate(profile) else None


def repro(arguments: argparse.Namespace) -> int:
    """Write the folder of the script, and print how to run it."""
    see_run(arguments.run)
    try:
        run = load_run(arguments.run, whole=False)
    except (RunLogError, OSError) as error:
        raise UsageError(str(error)) from error
    found = _chosen_cell(run, arguments)
    paths, files = _case_paths_and_adapters(run.header)
    paths = arguments.cases or paths
    generated = run.folder / ADAPTER  # `conformance check` writes an adapter of the function into the run folder
    files += [str(generated)] if generated.is_file() else []
    subject = _subject(run.header, found, files)
    cell = _cell(paths, run.header, found, subject)
    name = re.sub(r"[^\w.,=-]+", "-", f"repro-{found.case}-{found.subject}").strip("-")
    folder = arguments.out or Path(name[:LONGEST_NAME])
    worker = _worker(run, found)
    about = {
        "versions": dict(worker.versions) if worker else {},
        "environment": _environment(worker, subject),
        "recorded": printable(": ".join(filter(None, (found.verdict, found.reason)))),
        "rerun": _again(found) or _rerun(paths, subject, found),
    }
    try:
        write_reproduction(folder, cell, _declared(cell, found), about)
    except FileExistsError as error:
        raise UsageError(f"{folder} exists already: choose another --out") from error
    python = run.header.environments[subject.environment].python
    print(f"Run it: {shlex.join([printable(python), str(folder / 'repro.py')])}")
    print(f"In the run: {about['recorded']}")
    print(f"Again with conformance: {about['rerun']}")
    return CONFORMS


# Maximum length of a folder name that is made from the names of a case and a subject.
LONGEST_NAME = 200


def _chosen_cell(run: Run, arguments: argparse.Namespace) -> LoggedCell:
    """
    Return the one cell that the arguments name.

    Raises:
        UsageError: no cell or several cells match, or the framework was not called in this cell.
    """
    cells = list(run.cells.values())
    for key, wanted in (("case", arguments.case), ("subject", arguments.subject)):
        names = {str(getattr(each, key)) for each in cells}
        exact = [each for each in cells if getattr(each, key) == wanted]
        cells = exact or [each for each in cells if matches(wanted, getattr(each, key))]
        if not cells:
            near = near_glob(wanted, names)
            hint = f"; did you mean {shlex.quote(printable(near))}?" if near else ""
            raise UsageError(f"{arguments.run} has no cell with the {key} {wanted}{hint}")
    if len(cells) > 1:
        first = shlex.join([printable(cells[0].case), printable(cells[0].subject)])
        raise UsageError(f"{len(cells)} cells match: name one, such as {first}")
    if cells[0].verdict == "unsupported":
        raise UsageError(f"the framework was not called in this cell: {printable(cells[0].reason) or 'unsupported'}")
    return cells[0]


def _case_paths_and_adapters(header: Header) -> tuple[list[Path], list[str]]:
    """
    Return the case paths and the adapter files of a run, from the command in its log.

    Raises:
        UsageError: the command cannot be parsed.
    """
    words = list(header.command[1:])
    if words[:1] not in (["run"], ["smoke"], ["probe"], ["port"], ["check"]):
        return [], []
    try:
        with redirect_stderr(StringIO()), redirect_stdout(StringIO()):
            given = build_parser().parse_args(words)
    except SystemExit:
        command = printable(shlex.join(header.command))
        raise UsageError(f"the run log has an invalid command: {command}; name the cases with --cases") from None
    if words[0] == "check":
        return list(given.cases), []
    return given.paths, [pattern for pattern in getattr(given, "subject", ()) if adapter_file(pattern)]


def _subject(header: Header, found: LoggedCell, files: Sequence[str]) -> Subject:
    """
    Return the subject of a cell, with the adapter that was judged.

    Raises:
        UsageError: the adapter is missing, or has changed since the run.
    """
    about = header.subjects[found.subject]
    if about.environment not in header.environments:
        raise UsageError(f"the run log does not say what the environment {quoted(about.environment)} is")
    given = named_subjects(files, header.device) if files else []
    for subject in (*given, *named_subjects([], header.device)):
        same = subject.adapter.name == about.adapter and subject.variant == about.variant
        if same and subject.counted == about.counted:
            if subject.adapter.digest != about.digest:
                raise UsageError(f"{subject.adapter.path.name} has changed since this run: judge it again")
            return replace(subject, environment=about.environment)
    adapter = quoted(about.adapter)
    raise UsageError(f"the adapter {adapter} of this run is neither packaged nor a file that its command names")


def _cell(paths: Sequence[Path], header: Header, found: LoggedCell, subject: Subject) -> Cell:
    """
    Return the call of a cell.

    Raises:
        UsageError: the case has changed since the run.
    """
    case, *others = load_cases(paths, [found.case], None)
    problem = materialise(case)
    made = make_cell(case, problem, subject)
    same = not others and case.id == found.case and problem_digest(problem) == header.cases[case.id].digest
    if not same or not isinstance(made, Cell):
        raise UsageError(f"{case.id} in {case.source} has changed since this run: judge it again")
    return made


def _declared(cell: Cell, found: LoggedCell) -> tuple[Expectation, Profile] | None:
    """
    Return the expectation under the logged declaration; None if there is no declaration or no bound under it.

    Raises:
        UsageError: the log has an invalid declaration.
    """
    if found.declared is None or cell.case.mistake is not None:
        return None
    try:
        declaration = found.declared.declaration()
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"the run log has an invalid declaration of this cell: {printable(str(error))}") from None
    try:
        return Judge().declared(cell, declaration), declaration.profile
    except (UnderivedBound, KeyError):
        return None


def _worker(run: Run, found: LoggedCell) -> Worker | None:
    """Return the last worker that was ready to serve the subject, or None."""
    ready = (each for each in reversed(run.workers) if each.status == "ready" and found.subject in each.subjects)
    return next(ready, None)


def _environment(worker: Worker | None, subject: Subject) -> dict[str, str]:
    """Return the variables of the worker on which the numbers depend, without logged ones that could load code."""
    hidden = {"CUDA_VISIBLE_DEVICES": "-1"} if subject.device == "cpu" else {}
    return {**harmless(worker.settings if worker else {}), **hidden, **subject.env}


def _again(found: LoggedCell) -> str:
    """Return the logged command that judges this cell alone; "" if there is none or it is not a conformance command."""
    try:
        words = shlex.split(found.rerun)
    except ValueError:
        return ""
    return found.rerun if words[:2] == ["conformance", "run"] and shlex.join(words) == found.rerun else ""


def _rerun(paths: Sequence[Path], subject: Subject, found: LoggedCell) -> str:
    """Make the command that judges this cell alone; the log has none for a pass."""
    return shlex.join(["conformance", "run", *map(str, paths), "-a", *patterns_of([subject]), "-k", found.case])
