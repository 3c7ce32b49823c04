"""`conformance run` and `conformance smoke`: judge cells, decide and report."""

import argparse
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from conformance import places
from conformance.cli.argument_parser import QUIET, VERBOSE, UsageError, is_fault, resumable, see_writable_files
from conformance.cli.baseline_option import BaselineOption
from conformance.cli.case_choice import (
    Choice,
    choose_cases,
    last_rejected,
    leaves_nothing_out,
    load_cases,
    of_subjects,
)
from conformance.cli.command_known import load_known
from conformance.cli.offer import Offer, by_default, collect, cost, make_offer
from conformance.cli.output_folder import Opened, has_ended, open_folder
from conformance.cli.progress import Progress, open_page, print_slowest
from conformance.disk import write_asked
from conformance.engine.adapters import adapter_file
from conformance.engine.cell_records import RunListener
from conformance.engine.job import Limits, StopRun
from conformance.engine.judging import Judge
from conformance.engine.logged_cell import LoggedCell
from conformance.engine.pool import Pool
from conformance.engine.records import Key
from conformance.engine.reply_cache import ReplyCache, WorkerResults
from conformance.engine.result_cache import ResultCache
from conformance.engine.runlog import Record
from conformance.engine.session import Session
from conformance.engine.worker_plan import WorkerPlan, plan_workers
from conformance.gate.decision import CONFORMS, INCOMPLETE, REJECTED, Decision, decide
from conformance.gate.known import Known
from conformance.gate.known_file import shown_entry
from conformance.gate.run_ending import Clock, ending, finish, write_verdict
from conformance.report import print_summary, write_reports
from conformance.report.annotations import run_annotations
from conformance.report.junit import junit_xml
from conformance.spec.case import Case
from conformance.spec.texts import harmless

# Entries of the user's lists that are named if they accept nothing; of more, the number is told.
SHOWN_ENTRIES = 5


def run(arguments: argparse.Namespace) -> int:
    """Judge the chosen subjects on the chosen cases, and return the exit code."""
    if arguments.collect_only:
        return collect(choose_cases(arguments).cases, chosen_offer(arguments), every=arguments.level == VERBOSE)
    clock = Clock()
    see_writable_files(arguments.junit)
    baseline = BaselineOption(arguments)
    judge = Judge(known_first=True)
    known = load_known(arguments.known, judge)
    with ExitStack() as resources:
        with Progress(sys.stderr, level=arguments.level) as progress, open_replies(arguments) as replies:
            offer = chosen_offer(arguments)
            plans = [] if has_ended(arguments) else plans_for(offer, arguments)
            limits = Limits(start=arguments.start_timeout, first=arguments.timeout, call=arguments.timeout)
            with Pool(plans, arguments.jobs, limits, waits=replies.knows) as pool:  # workers start while cases are read
                choice = choose_cases(arguments)
                opened = open_folder(arguments, offer, choice.cases, left_out=_left_out(arguments, choice, offer))
                resources.enter_context(opened.log)
                session = _begin(arguments, offer, known, choice, opened, judge, replies)
                resources.enter_context(_resumable(session, offer))
                if opened.footer is not None:
                    print("conformance: the run is finished already; its reports are written again", file=sys.stderr)
                    session.cells.extend(session.done.values())
                    stopped = bool(opened.footer.get("stopped"))
                else:
                    stopped = _judge(session, pool, progress, arguments)
        return _decided(arguments, session, offer, known, baseline, clock, choice, opened.footer, stopped=stopped)


def _left_out(arguments: argparse.Namespace, choice: Choice, offer: Offer) -> int:
    """Return how many of the cases that only a thorough run asks are of an operator that a subject computes."""
    operators = {operator for subject in offer.subjects for operator in subject.operators}
    cases = load_cases(arguments.paths, arguments.case, arguments.tag)
    return sum(case.id in choice.left_out and case.operator in operators for case in cases)


def _begin(
    arguments: argparse.Namespace,
    offer: Offer,
    known: Known,
    choice: Choice,
    opened: Opened,
    judge: Judge,
    replies: ReplyCache,
) -> Session:
    """
    Make the session; cells that a resumed run has judged already count.

    Raises:
        UsageError: a known deviation that the run used is not in the lists any more.
    """
    for cell in opened.done.values():
        try:
            known.restore(LoggedCell.model_validate(opened.log.read(cell.start)))
        except KeyError as error:
            raise UsageError(
                f"cannot resume: {error} is not in the lists of known deviations any more: give the lists that the run "
                "used, or start a new run without --resume"
            ) from None
    return Session(
        cases=choice.cases,
        subjects=offer.subjects,
        log=opened.log,
        folder=opened.folder,
        review=known.review,
        judge=judge,
        replies=replies,
        results=_results(arguments, opened, known, replies),
        restore=known.restore,
        accepts=known.accepts,
        rerun=lambda key: rerun_command(key, offer, arguments),
        suite=lambda: _suite(arguments),
        plain=lambda: load_cases((), (), None),
        done=opened.done,
    )


def _results(arguments: argparse.Namespace, opened: Opened, known: Known, replies: ReplyCache) -> WorkerResults:
    """Return the cached results of whole workers; with -x none, because each cell must be able to end the run."""
    if replies.cache is None or arguments.stop:
        return WorkerResults()
    every = [(case.id, case.definition, case.settings) for case in _suite(arguments)]
    return WorkerResults(replies.cache, replies, [opened.cases, arguments.device, every, known.about()])


def _suite(arguments: argparse.Namespace) -> tuple[Case, ...]:
    """Load every case of the suite, also those that were not chosen."""
    return load_cases(arguments.paths and [places.case_root(arguments.paths)], (), None)


@contextmanager
def _resumable(session: Session, offer: Offer) -> Iterator[None]:
    """
    Keep the run folder locked until everything is written; if the run is interrupted, say how to resume it.

    Raises:
        KeyboardInterrupt, EnvironmentFault: the run was interrupted; the message says how to resume it.
    """
    again = f"continue with --out {shlex.quote(str(session.folder))} --resume"
    try:
        with ending(session, offer.incomplete):
            yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"interrupted; {again}") from None
    except OSError as error:
        if not is_fault(error):
            raise
        raise resumable(error, session.folder) from error


def _decided(
    arguments: argparse.Namespace,
    session: Session,
    offer: Offer,
    known: Known,
    baseline: BaselineOption,
    clock: Clock,
    choice: Choice,
    footer: Record | None,
    *,
    stopped: bool,
) -> int:
    """Decide, or take the decision from the footer; write the reports, print the summary, and return the exit code."""
    whole = not (stopped or arguments.last_failed or narrowed(arguments))
    objections = baseline.problems(session.folder, whole=whole, left_out=choice.left_out)
    every = whole and not choice.left_out  # an entry may match only in cases that were left out
    if footer is None:
        decided = decide(
            session.cells,
            [*offer.incomplete, *session.missing],
            [*known.problems(whole=every), *objections.rejected, *session.contradicted],
            known.record(whole=every),
            uncompared=objections.uncompared,
            not_working=session.not_working,
            stopped=stopped,
        )
        decision = Decision.recorded(finish(session, decided, clock, stopped=stopped))
    else:
        decision = Decision.recorded(footer)
        _see_decided((*objections.rejected, *objections.uncompared), decision, session.folder)
        write_verdict(session.folder, decision, session.cells)
    code = _reported(decision, session, arguments)
    baseline.finish(complete=decision.exit_code != INCOMPLETE and not stopped, again=footer is not None)
    return code


def plans_for(offer: Offer, arguments: argparse.Namespace) -> list[WorkerPlan]:
    """The workers of a run, the most expensive first; with --no-cache they keep nothing that they compile."""
    keep = not arguments.no_cache
    return sorted(plan_workers(offer.subjects, offer.environments, keep_compiled=keep), key=cost)


@contextmanager
def open_replies(arguments: argparse.Namespace) -> Iterator[ReplyCache]:
    """Open the cache of replies of earlier runs; with --no-cache it is empty."""
    if arguments.no_cache:
        yield ReplyCache()
        return
    with ResultCache(places.cache()) as cache:
        yield ReplyCache(cache, places.adapters())
    if cache.fault:
        print(f"conformance: {cache.fault}", file=sys.stderr)


def _see_decided(baseline_problems: Sequence[str], decision: Decision, folder: Path) -> None:
    """
    Check that a finished run was compared with the same baseline.

    Raises:
        UsageError: it was not.
    """
    new = [problem for problem in map(harmless, baseline_problems) if problem not in decision.problems]
    if new:
        raise UsageError(
            f"the run in {folder} is finished and did not use this baseline, which rejects it: {new[0]}; compare the "
            "two with conformance compare"
        )


def narrowed(arguments: argparse.Namespace) -> bool:
    """Return whether the arguments choose fewer cases or subjects than there are."""
    return bool(arguments.case or arguments.tag or arguments.paths or arguments.subject)


def chosen_offer(arguments: argparse.Namespace) -> Offer:
    """Return the chosen subjects that can run here; with --last-failed, only those that the newest run rejected."""
    offer = make_offer(arguments.subject, arguments.env, arguments.device)
    if arguments.last_failed:
        return of_subjects(offer, last_rejected())
    return offer if leaves_nothing_out(arguments) else by_default(offer, arguments.subject)


def _judge(session: Session, pool: Pool, progress: Progress, arguments: argparse.Namespace) -> bool:
    """Run the session with a progress display, and return whether -x ended it."""
    progress.plan(session.total, len(session.done))
    session.watch = RunListener(
        cell=progress.cell,
        worker=progress.worker,
        search=progress.search,
        stop=arguments.stop,
    )
    try:
        session.run(pool)
    except StopRun:
        return True
    return False


def _reported(decision: Decision, session: Session, arguments: argparse.Namespace) -> int:
    """Write the reports, print the summary, and return the exit code."""
    folder = session.folder
    judged = write_reports(folder)
    if arguments.junit is not None:
        write_asked(arguments.junit, junit_xml(judged))
    print_slowest(session.logged_cells, arguments.durations)
    print_summary(judged, sys.stdout, brief=arguments.level == QUIET)
    if arguments.open:
        open_page(folder)
    if any(decision.known.get(kind) for kind in ("dead", "too_wide")):
        lists = "".join(f" {shlex.quote(str(path))}" for path in arguments.known)
        print(f"To edit the list: conformance known update --from {shlex.quote(str(folder))}{lists}")
    for text in _without_effect(decision.known, arguments.known):
        print(text)
    if arguments.annotations:
        root = places.case_root(arguments.paths) if arguments.paths else places.cases()
        for line in run_annotations(judged, root.parent):
            print(line)
    if decision.exit_code == REJECTED and arguments.exit_zero:
        return CONFORMS
    return decision.exit_code


def _without_effect(known: Mapping[str, Any], given: Sequence[Path]) -> Iterator[str]:
    """The entries of the user's own lists that accept nothing in this run. Of the packaged list, most may."""
    files = tuple(f"{shown_entry(path)}:" for path in given)
    unreached = [text for text in known.get("not_reached", ()) if text.startswith(files)]
    for text in unreached[:SHOWN_ENTRIES]:
        yield f"Accepts nothing in this run (see its subject and conditions): {text}"
    if (left := len(unreached) - SHOWN_ENTRIES) > 0:
        yield f"Accepts nothing in this run: {left} more; verdict.json lists them"


# A function that makes the command to rerun one cell of an offer.
RerunCommand = Callable[[Key, Offer], str]


def rerun_command(key: Key, offer: Offer, arguments: argparse.Namespace) -> str:
    """
    Return the command that reruns one cell, quoted for a shell.

    arguments: the parsed arguments; if this run is part of another command, `again` among them makes the command.
    """
    again: RerunCommand | None = vars(arguments).get("again")
    if again is not None:
        return again(key, offer)
    words = ["conformance", "run", *(str(path) for path in arguments.paths)]
    for environment in arguments.env:
        words += ["--env", environment]
    if arguments.device != "cpu":
        words += ["--device", arguments.device]
    return shlex.join([*words, *one_cell(key, offer, arguments.subject)])


def one_cell(key: Key, offer: Offer, patterns: Sequence[str]) -> list[str]:
    """Return the options that choose one cell; patterns: those of -a, so that adapter files keep their given path."""
    case, name = key
    adapter = next(subject.adapter for subject in offer.subjects if subject.name == name)
    given = {found[0].absolute(): found[0] for found in map(adapter_file, patterns) if found}
    subject = f"{given[adapter.path]}{name.removeprefix(adapter.name)}" if adapter.path in given else name
    return ["-a", subject, "-k", case]
