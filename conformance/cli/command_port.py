"""`conformance port`: how two subjects differ, and what to change at the call site."""

import argparse
import json

from conformance.cli.argument_parser import UsageError
from conformance.cli.command_probe import ProbedSubject, as_json, pictured, profiles, run_probe, write_results
from conformance.cli.offer import make_offer
from conformance.cli.progress import open_page, print_slowest
from conformance.disk import write_whole
from conformance.engine.adapters import Subject
from conformance.engine.run_folder import load_run
from conformance.gate.decision import CONFORMS, INCOMPLETE, REJECTED
from conformance.report.port_code import NoCodeError, before_and_after
from conformance.report.port_differences import PortedSubject
from conformance.report.port_differences import port as compare
from conformance.report.port_text import FILE, PAGE, lines, markdown, record
from conformance.report.probe_report import FILE as PROBE
from conformance.spec.old_names import current_record

OPERATORS = {"sdpa": "attention without projections (sdpa)", "mha": "multi-head attention with projections (mha)"}


def port(arguments: argparse.Namespace) -> int:
    """Probe both subjects, print the advice, and return the exit code; a contradicted declaration does not fail."""
    if arguments.run is not None:
        return _again(arguments)
    if arguments.target is None:
        raise UsageError("give FROM and TO, such as torch.mha 'keras.mha[jax]', or --run DIR")
    if arguments.code:
        return _code(arguments)
    source, target = (_first(pattern, arguments) for pattern in (arguments.source, arguments.target))
    chosen = [source.name, target.name]
    if source.name == target.name:
        raise UsageError(f"{arguments.source} and {arguments.target} are both {source.name}")
    if not set(source.operators) & set(target.operators):
        operators = " and ".join(f"{each.name} computes {OPERATORS[each.operators[0]]}" for each in (source, target))
        raise UsageError(f"{operators}: calls can move only between subjects of one operator")
    probe_run = run_probe(arguments, [arguments.source, arguments.target], only=chosen)
    sides = {probed.subject.name: _side(probed) for probed in probe_run.probed_subjects}
    for sentence in probe_run.decision.incomplete:
        print(sentence)
    versions = {name: text for worker in load_run(probe_run.folder).workers for name, text in worker.versions.items()}
    advice = record(compare(sides[chosen[0]], sides[chosen[1]]), versions)
    print("\n".join(lines(advice)))
    page = "\n".join(markdown(advice)) + "\n"
    files = {
        FILE: as_json(advice),
        PAGE: page,
        PROBE: profiles(pictured(probed) for probed in probe_run.probed_subjects),
    }
    write_results(probe_run, files, FILE, arguments.json)
    print_slowest([cell for probed in probe_run.probed_subjects for cell in probed.cells], arguments.durations)
    print(f"Report: {probe_run.folder / 'index.html'}")
    if arguments.open:
        open_page(probe_run.folder)
    if not advice["shared"]:
        return INCOMPLETE
    return CONFORMS if probe_run.decision.exit_code == REJECTED else probe_run.decision.exit_code


def _code(arguments: argparse.Namespace) -> int:
    """Print or write two programs that make the same call; no framework is called."""
    try:
        programs = before_and_after(arguments.source, arguments.target)
    except NoCodeError as error:
        raise UsageError(str(error)) from None
    for name, text in programs.items():
        if arguments.out is None:
            print(f"# ---- {name} ----\n{text}")
        else:
            arguments.out.mkdir(parents=True, exist_ok=True)
            write_whole(arguments.out / name, text)
            print(f"Written: {arguments.out / name}")
    return CONFORMS


def _again(arguments: argparse.Namespace) -> int:
    """Print the advice in the folder of an earlier run; no framework is called."""
    if arguments.source is not None:
        raise UsageError("--run prints the advice in that folder: leave FROM and TO out")
    path = arguments.run / FILE
    try:
        advice = current_record(json.loads(path.read_text(encoding="utf-8")))
    except OSError:
        raise UsageError(f"there is no {path}: conformance port FROM TO --out {arguments.run} writes it") from None
    except ValueError as error:
        raise UsageError(f"{path} is not valid JSON: {error}") from None
    print("\n".join(lines(advice)))
    return CONFORMS


def _first(pattern: str, arguments: argparse.Namespace) -> Subject:
    """Return the first available subject that the pattern matches."""
    offer = make_offer([pattern], arguments.env, arguments.device)
    if not offer.subjects:
        raise UsageError("; ".join(offer.incomplete) or f"{pattern} cannot run here")
    return next((subject for subject in offer.subjects if subject.counted), offer.subjects[0])


def _side(probed: ProbedSubject) -> PortedSubject:
    return PortedSubject(probed.subject, pictured(probed), probed.cells)
