"""`conformance run` and `conformance smoke`: judge, decide, report."""

import argparse
import shlex
import sys
from pathlib import Path

from conformance import places
from conformance.cli.baseline import Memory
from conformance.cli.choice import case_root, load_cases
from conformance.cli.folder import open_folder
from conformance.cli.known import load_known
from conformance.cli.offer import Offer, cost, make_offer
from conformance.cli.progress import Progress
from conformance.engine.job import Limits
from conformance.engine.plan import plan_workers
from conformance.engine.pool import Pool
from conformance.engine.selection import adapter_file
from conformance.engine.session import Session
from conformance.engine.watch import StopRun, Watch
from conformance.gate.decide import CONFORMS, INCOMPLETE, REJECTED, Decision, decide
from conformance.gate.footer import Clock, finish
from conformance.gate.verdict_file import write_verdict
from conformance.judge.verdict import is_green
from conformance.report import print_summary, write_reports
from conformance.report.annotations import run_annotations
from conformance.report.junit import write_junit


def run(arguments: argparse.Namespace) -> int:
    """Judge what was asked for, and return the exit code."""
    clock = Clock()
    memory = Memory(arguments)
    known = load_known(arguments.known)
    offer = make_offer(arguments.subject, arguments.env, arguments.device)
    plans = sorted(plan_workers(offer.subjects, offer.environments), key=cost)
    limits = Limits(first=arguments.timeout, call=arguments.timeout)
    with Pool(plans, arguments.jobs, limits) as pool:  # workers import their frameworks while cases are read
        cases = load_cases(arguments.paths, arguments.case, arguments.tag)
        folder, log, done = open_folder(arguments, offer, cases)
        for record in done.values():
            known.restore(record)
        session = Session(
            cases=cases,
            subjects=offer.subjects,
            log=log,
            folder=folder,
            review=known.review,
            accepts=known.accepts,
            rerun=lambda key: rerun_command(key, offer, arguments),
            suite=lambda: load_cases(arguments.paths and [case_root(arguments.paths)], (), None),
            plain=lambda: load_cases((), (), None),
            done=done,
        )
        try:
            stopped = _judge(session, pool, arguments)
        except KeyboardInterrupt:
            return _interrupted(folder, session, offer)
    whole = not (stopped or arguments.case or arguments.tag or arguments.paths or arguments.subject)
    compared = memory.compare(folder, whole=whole)
    decision = decide(
        session.records,
        [*offer.incomplete, *session.missing],
        [*known.problems(whole=whole), *memory.problems(compared), *session.contradicted],
        known.record(whole=whole),
        not_working=session.not_working,
        stopped=stopped,
    )
    finish(session, decision, clock)
    code = _told(folder, decision, arguments)
    memory.finish(compared, folder, complete=decision.exit_code != INCOMPLETE and not stopped)
    return code


def _interrupted(folder: Path, session: Session, offer: Offer) -> int:
    """Say so, also in verdict.json; without a footer the log can be resumed."""
    decision = decide(session.records, offer.incomplete, (), {}, interrupted=True)
    write_verdict(folder, decision, session.records)
    print(f"conformance: interrupted; go on with --out {shlex.quote(str(folder))} --resume", file=sys.stderr)
    return decision.exit_code


def _judge(session: Session, pool: Pool, arguments: argparse.Namespace) -> bool:
    """Run the session under a progress display; tell whether -x ended it."""
    with Progress(sys.stderr) as progress:
        session.watch = Watch(
            cell=progress.cell,
            worker=progress.worker,
            stop=lambda record: arguments.stop and not is_green(record),
        )
        try:
            session.run(pool)
        except StopRun:
            return True
    return False


def _told(folder: Path, decision: Decision, arguments: argparse.Namespace) -> int:
    """Write the reports and tell the run on stdout; the exit code."""
    judged = write_reports(folder)
    if arguments.junit is not None:
        arguments.junit.parent.mkdir(parents=True, exist_ok=True)
        write_junit(judged, arguments.junit)
    print_summary(judged, sys.stdout)
    if any(decision.known.get(kind) for kind in ("dead", "too_wide")):
        lists = "".join(f" {shlex.quote(str(path))}" for path in arguments.known)
        print(f"Edits of the list: conformance known update --from {shlex.quote(str(folder))}{lists}")
    if arguments.annotations:
        root = case_root(arguments.paths) if arguments.paths else places.cases()
        for line in run_annotations(judged, root.parent):
            print(line)
    if decision.exit_code == REJECTED and arguments.exit_zero:
        return CONFORMS
    return decision.exit_code


def rerun_command(key: tuple[str, str], offer: Offer, arguments: argparse.Namespace) -> str:
    """The command that reruns just one cell, quoted for a shell."""
    case, name = key
    words = ["conformance", "run", *(str(path) for path in arguments.paths)]
    for environment in arguments.env:
        words += ["--env", environment]
    if arguments.device != "cpu":
        words += ["--device", arguments.device]
    adapter = next(subject.adapter for subject in offer.subjects if subject.name == name)
    given = {found[0].absolute(): found[0] for found in map(adapter_file, arguments.subject) if found}
    subject = f"{given[adapter.path]}{name.removeprefix(adapter.name)}" if adapter.path in given else name
    return shlex.join([*words, "-a", subject, "-k", case])
