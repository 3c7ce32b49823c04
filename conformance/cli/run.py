"""`conformance run` and `conformance smoke`: judge, decide, report."""

import argparse
import datetime as dt
import secrets
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance import places
from conformance.cli.errors import UsageError
from conformance.cli.progress import Progress
from conformance.engine.adapters import AdapterError, Subject, read_adapters, subjects_of
from conformance.engine.environments import (
    Environment,
    Unusable,
    examine,
    missing,
    our_own,
    parse_environments,
)
from conformance.engine.header import case_record, header, not_offered_record, subject_record
from conformance.engine.job import Limits
from conformance.engine.plan import WorkerPlan, plan_workers
from conformance.engine.pool import Pool
from conformance.engine.runlog import RunLog, RunLogError
from conformance.engine.selection import SelectionError, adapter_file, select
from conformance.engine.session import Session, StopRun, Watch
from conformance.gate.decide import CONFORMS, REJECTED, Decision, decide, is_green
from conformance.gate.footer import footer
from conformance.gate.known import Known
from conformance.gate.known_file import PACKAGED, read_known
from conformance.gate.verdict_file import write_verdict
from conformance.report import load_run, print_summary, write_reports
from conformance.report.junit import write_junit
from conformance.report.run import LOG
from conformance.spec.case import Case
from conformance.spec.digest import problem_digest
from conformance.spec.glob import matches
from conformance.spec.loader import load
from conformance.spec.materialise import materialise

SLOWEST_FIRST = ("onnx", "jax", "keras", "tensorflow", "torch")
"""Frameworks in the order of what a run of theirs takes; a hint for scheduling and nothing else."""


@dataclass(frozen=True)
class Offer:
    """Subjects that can run here, and what is missing for the others."""

    subjects: tuple[Subject, ...]
    environments: Mapping[str, Environment]
    not_offered: tuple[dict[str, Any], ...]
    incomplete: tuple[str, ...]


def run(arguments: argparse.Namespace) -> int:
    """Judge what was asked for, and return the exit code."""
    started = time.monotonic()
    known = Known(read_known([PACKAGED, *_existing(arguments.known)]), dt.datetime.now(tz=dt.UTC).date())
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
            rerun=lambda key: rerun_command(key, offer, arguments),
            done=done,
        )
        try:
            stopped = _judge(session, pool, arguments)
        except KeyboardInterrupt:
            return _interrupted(folder, session, offer)
    whole = not (stopped or arguments.case or arguments.tag or arguments.paths or arguments.subject)
    decision = decide(
        session.records,
        [*offer.incomplete, *session.missing],
        known.problems(whole=whole),
        known.record(whole=whole),
        stopped=stopped,
    )
    log.append(footer(session, decision, time.monotonic() - started))
    log.close()
    return _finish(folder, decision, session.records, arguments)


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


def _finish(folder: Path, decision: Decision, records: Sequence[dict[str, Any]], arguments: argparse.Namespace) -> int:
    write_reports(folder)
    judged = load_run(folder)
    write_verdict(folder, decision, records)
    if arguments.junit is not None:
        arguments.junit.parent.mkdir(parents=True, exist_ok=True)
        write_junit(judged, arguments.junit)
    print_summary(judged, sys.stdout)
    if decision.exit_code == REJECTED and arguments.exit_zero:
        return CONFORMS
    return decision.exit_code


def make_offer(patterns: Sequence[str], environments: Sequence[str], device: str) -> Offer:
    """
    Choose the subjects that were asked for; without a choice, all whose packages are installed.

    Raises:
        UsageError: an adapter file, a pattern or an environment that cannot be used as it is written.
    """
    named = [adapter_file(pattern) for pattern in patterns]
    files = list(dict.fromkeys(found[0] for found in named if found))
    ours = [places.adapters()] if not patterns or None in named else []
    usable, incomplete = _environments(environments)
    try:
        adapters = read_adapters([*ours, *_existing(files)])
        chosen = select(subjects_of(adapters, device, list(usable)), patterns)
    except (AdapterError, SelectionError) as error:
        raise UsageError(str(error)) from error
    return _offered(chosen, usable, incomplete, asked=bool(patterns), device=device)


def _environments(given: Sequence[str]) -> tuple[dict[str, Environment], list[str]]:
    try:
        pairs = parse_environments(given)
    except ValueError as error:
        raise UsageError(str(error)) from error
    found = [examine(name, python) for name, python in pairs]
    usable = {each.name: each for each in found if isinstance(each, Environment)}
    unusable = [f"environment {each.name}: {each.reason}" for each in found if isinstance(each, Unusable)]
    return {"default": our_own(), **usable}, unusable


def _offered(
    chosen: Sequence[Subject],
    environments: Mapping[str, Environment],
    incomplete: Sequence[str],
    *,
    asked: bool,
    device: str,
) -> Offer:
    offered, refused, problems = [], {}, list(incomplete)
    for subject in chosen:
        lacking = missing(subject, environments[subject.environment])
        if device not in subject.devices:
            reason = f"{subject.name}: its adapter runs on {', '.join(subject.devices)}, not on {device}"
        elif lacking:
            reason = f"{subject.name}: needs {', '.join(lacking)}{_remedy(subject)}"
        else:
            offered.append(subject)
            continue
        if lacking and subject.counted and subject.environment == "default":
            refused[subject.short_name] = not_offered_record(subject.adapter, subject.variant, lacking)
        if asked and subject.counted:
            problems.append(reason)
    if device != "cpu" and not offered:
        problems.append(f"no subject can run on device {device!r} here")
    return Offer(tuple(offered), environments, tuple(refused.values()), tuple(problems))


def _remedy(subject: Subject) -> str:
    extra = subject.extra
    return f": python -m pip install 'attention-conformance[{extra}]'" if extra else ""


def _existing(paths: Sequence[Path]) -> list[Path]:
    for path in paths:
        if not path.is_file():
            raise UsageError(f"there is no file {path}")
    return list(paths)


def cost(plan: WorkerPlan) -> int:
    """Where a plan stands among the others: those that take longest first."""
    framework = plan.name.partition(".")[0]
    return SLOWEST_FIRST.index(framework) if framework in SLOWEST_FIRST else len(SLOWEST_FIRST)


def load_cases(paths: Sequence[Path], globs: Sequence[str], tag: str | None) -> tuple[Case, ...]:
    """
    Load the cases that were asked for.

    Raises:
        CaseFileErrors: with every mistake of every file. UsageError: nothing matches.
    """
    if paths:
        for path in paths:
            if not path.exists():
                raise UsageError(f"there is no case file or folder {path}")
        root = case_root(paths)
    else:
        root = places.cases()
    cases = load(list(paths) or [root], root)
    if tag is not None:
        cases = tuple(case for case in cases if tag in case.tags)
    if globs:
        exact = {glob for glob in globs if any(case.id == glob for case in cases)}
        cases = tuple(case for case in cases if any(case.id == g if g in exact else matches(g, case.id) for g in globs))
    if not cases:
        raise UsageError(f"no case matches {', '.join(globs) or 'the paths given'}; see conformance list cases")
    return cases


def case_root(paths: Sequence[Path]) -> Path:
    """
    The case folder that holds all paths: ours, or the nearest folder above them named `cases`, or their parent.

    A suite is named by its path in that folder.
    """
    first = paths[0].absolute()
    ours = places.cases().absolute()
    if first == ours or ours in first.parents:
        return ours
    for folder in (first, *first.parents):
        if folder.name == "cases" and folder.is_dir():
            return folder
    return first if first.is_dir() else first.parent


def open_folder(
    arguments: argparse.Namespace, offer: Offer, cases: Sequence[Case]
) -> tuple[Path, RunLog, dict[tuple[str, str], dict[str, Any]]]:
    """
    Make the run folder and its log with a header, or take up the one that was cut.

    Raises:
        UsageError: there is nothing to resume, what was asked has changed since, or a run stands there already.
    """
    now = dt.datetime.now(tz=dt.UTC)
    name = f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(2)}"
    folder = arguments.out or Path("reports") / name
    first = header(
        folder.name,
        f"{now:%Y-%m-%dT%H:%M:%SZ}",
        ["conformance", *sys.argv[1:]],
        arguments.device,
        {case.id: case_record(case, problem_digest(materialise(case))) for case in cases},
        {subject.name: subject_record(subject) for subject in offer.subjects},
        offer.not_offered,
    )
    try:
        if arguments.resume:
            log, records = RunLog.resume(folder / LOG)
            return folder, log, _done(first, records)
        folder.mkdir(parents=True, exist_ok=True)
        log = RunLog.create(folder / LOG)
    except FileExistsError as error:
        raise UsageError(f"{folder} holds a run already: choose another --out, or --resume it") from error
    except (RunLogError, OSError) as error:
        raise UsageError(str(error)) from error
    log.append(first)
    if arguments.out is None:
        point_latest(folder)
    return folder, log, {}


def _done(first: Mapping[str, Any], records: Sequence[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    """The cells of a cut run, if it asked what this one asks."""
    before = records[0] if records else {}
    for what in ("cases", "subjects", "judge", "device"):
        if before.get(what) != first[what]:
            raise UsageError(f"cannot resume: the {what} of that run were others; start a new run without --resume")
    return {(record["case"], record["subject"]): record for record in records if record["type"] == "cell"}


def point_latest(folder: Path) -> None:
    """Let reports/latest be the newest run; a link, so that nothing is copied."""
    latest = folder.parent / "latest"
    if latest.is_symlink() or not latest.exists():
        latest.unlink(missing_ok=True)
        latest.symlink_to(folder.name, target_is_directory=True)


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
