"""`conformance run` and `conformance smoke`: judge, decide, report."""

import argparse
import contextlib
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from conformance import places
from conformance.cli.baseline import Memory
from conformance.cli.choice import Choice, case_root, choose_cases, leaves_nothing_out, load_cases
from conformance.cli.closing import open_page, print_slowest
from conformance.cli.collecting import collect
from conformance.cli.folder import open_folder
from conformance.cli.known import load_known
from conformance.cli.offer import Offer, by_default, cost, make_offer
from conformance.cli.progress import Progress
from conformance.cli.rejected import last_rejected, of_subjects
from conformance.cli.words import QUIET, VERBOSE
from conformance.engine.job import Limits
from conformance.engine.judging import Judge
from conformance.engine.plan import plan_workers
from conformance.engine.pool import Pool
from conformance.engine.records import Key
from conformance.engine.reply_cache import ReplyCache
from conformance.engine.result_cache import ResultCache
from conformance.engine.selection import adapter_file
from conformance.engine.session import Session
from conformance.engine.watch import StopRun, Watch
from conformance.engine.worker_results import WorkerResults
from conformance.gate.decide import CONFORMS, INCOMPLETE, REJECTED, Decision, decide
from conformance.gate.footer import Clock, finish
from conformance.gate.known import Known
from conformance.gate.verdict_file import write_verdict
from conformance.judge.verdict import is_green
from conformance.report import print_summary, write_reports
from conformance.report.annotations import run_annotations
from conformance.report.junit import write_junit
from conformance.spec.case import Case


def run(arguments: argparse.Namespace) -> int:
    """Judge what was asked for, and return the exit code."""
    if arguments.collect_only:
        return collect(choose_cases(arguments).cases, chosen_offer(arguments), every=arguments.level == VERBOSE)
    clock = Clock()
    memory = Memory(arguments)
    judge = Judge()
    known = load_known(arguments.known, judge.expectation)
    with Progress(sys.stderr, level=arguments.level) as progress, open_replies(arguments) as replies:
        offer = chosen_offer(arguments)
        plans = sorted(plan_workers(offer.subjects, offer.environments), key=cost)
        limits = Limits(start=arguments.start_timeout, first=arguments.timeout, call=arguments.timeout)
        with Pool(plans, arguments.jobs, limits, waits=replies.knows) as pool:  # workers start while cases are read
            choice = choose_cases(arguments)
            session = _begin(arguments, offer, known, choice, judge, replies)
            try:
                stopped = _judge(session, pool, progress, arguments)
            except KeyboardInterrupt:
                return _interrupted(session, offer)
    return _decided(arguments, session, offer, known, memory, clock, choice, stopped=stopped)


def _begin(
    arguments: argparse.Namespace, offer: Offer, known: Known, choice: Choice, judge: Judge, replies: ReplyCache
) -> Session:
    """Open the run folder; what was judged before in a run that is resumed counts."""
    cases = choice.cases
    opened = open_folder(arguments, offer, cases, left_out=len(choice.left_out))
    for record in opened.done.values():
        known.restore(record)
    return Session(
        cases=cases,
        subjects=offer.subjects,
        log=opened.log,
        folder=opened.folder,
        review=known.review,
        judge=judge,
        replies=replies,
        results=_results(arguments, opened.header, known, replies),
        restore=known.restore,
        accepts=known.accepts,
        rerun=lambda key: rerun_command(key, offer, arguments),
        suite=lambda: _suite(arguments),
        plain=lambda: load_cases((), (), None),
        done=opened.done,
    )


def _results(
    arguments: argparse.Namespace, header: Mapping[str, Any], known: Known, replies: ReplyCache
) -> WorkerResults:
    """What earlier runs know of whole workers; with -x every cell is looked at, since one of them may end the run."""
    if replies.cache is None or arguments.stop:
        return WorkerResults()
    every = [(case.id, case.yaml) for case in _suite(arguments)]
    return WorkerResults(replies.cache, replies, [header["cases"], header["device"], every, known.about()])


def _suite(arguments: argparse.Namespace) -> tuple[Case, ...]:
    """Every case that there is, also those that were not chosen."""
    return load_cases(arguments.paths and [case_root(arguments.paths)], (), None)


def _decided(
    arguments: argparse.Namespace,
    session: Session,
    offer: Offer,
    known: Known,
    memory: Memory,
    clock: Clock,
    choice: Choice,
    *,
    stopped: bool,
) -> int:
    """Decide, write the reports, tell the run, and return the exit code."""
    whole = not (stopped or arguments.last_failed or narrowed(arguments))
    against = memory.problems(session.folder, whole=whole, left_out=choice.left_out)
    every = whole and not choice.left_out  # an entry may match only in cases that were left out
    decision = decide(
        session.records,
        [*offer.incomplete, *session.missing],
        [*known.problems(whole=every), *against, *session.contradicted],
        known.record(whole=every),
        not_working=session.not_working,
        stopped=stopped,
    )
    finish(session, decision, clock)
    code = _told(decision, session, arguments)
    memory.finish(complete=decision.exit_code != INCOMPLETE and not stopped)
    return code


@contextlib.contextmanager
def open_replies(arguments: argparse.Namespace) -> Iterator[ReplyCache]:
    """What earlier runs know; nothing with --no-cache."""
    if arguments.no_cache:
        yield ReplyCache()
        return
    with ResultCache(places.cache()) as cache:
        yield ReplyCache(cache, places.adapters())
    if cache.fault:
        print(f"conformance: {cache.fault}", file=sys.stderr)


def narrowed(arguments: argparse.Namespace) -> bool:
    """Whether less was asked for than everything."""
    return bool(arguments.case or arguments.tag or arguments.paths or arguments.subject)


def chosen_offer(arguments: argparse.Namespace) -> Offer:
    """Who was asked for and can be judged here; with --last-failed, only those that the newest run rejected."""
    offer = make_offer(arguments.subject, arguments.env, arguments.device)
    if arguments.last_failed:
        return of_subjects(offer, last_rejected())
    return offer if leaves_nothing_out(arguments) else by_default(offer, arguments.subject)


def _interrupted(session: Session, offer: Offer) -> int:
    """Say so, also in verdict.json; without a footer the log can be resumed."""
    decision = decide(session.records, offer.incomplete, (), {}, interrupted=True)
    write_verdict(session.folder, decision, session.records)
    print(f"conformance: interrupted; go on with --out {shlex.quote(str(session.folder))} --resume", file=sys.stderr)
    return decision.exit_code


def _judge(session: Session, pool: Pool, progress: Progress, arguments: argparse.Namespace) -> bool:
    """Run the session under a progress display; tell whether -x ended it."""
    progress.plan(session.total, len(session.done))
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


def _told(decision: Decision, session: Session, arguments: argparse.Namespace) -> int:
    """Write the reports and tell the run on stdout; the exit code."""
    folder = session.folder
    judged = write_reports(folder)
    if arguments.junit is not None:
        arguments.junit.parent.mkdir(parents=True, exist_ok=True)
        write_junit(judged, arguments.junit)
    print_slowest(session.records, arguments.durations)
    print_summary(judged, sys.stdout, brief=arguments.level == QUIET)
    if arguments.open:
        open_page(folder)
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


Again = Callable[[Key, Offer], str]
"""Makes the command that reruns one cell of what is offered."""


def rerun_command(key: Key, offer: Offer, arguments: argparse.Namespace) -> str:
    """
    The command that reruns just one cell, quoted for a shell.

    arguments: `again` among them is an Again, where this run is a part of another command.
    """
    again: Again | None = vars(arguments).get("again")
    if again is not None:
        return again(key, offer)
    words = ["conformance", "run", *(str(path) for path in arguments.paths)]
    for environment in arguments.env:
        words += ["--env", environment]
    if arguments.device != "cpu":
        words += ["--device", arguments.device]
    return shlex.join([*words, *one_cell(key, offer, arguments.subject)])


def one_cell(key: Key, offer: Offer, patterns: Sequence[str]) -> list[str]:
    """The options that choose one cell; patterns: of -a, since an adapter file is named as it was given."""
    case, name = key
    adapter = next(subject.adapter for subject in offer.subjects if subject.name == name)
    given = {found[0].absolute(): found[0] for found in map(adapter_file, patterns) if found}
    subject = f"{given[adapter.path]}{name.removeprefix(adapter.name)}" if adapter.path in given else name
    return ["-a", subject, "-k", case]
