"""`conformance probe`: compare what subjects declare with the behaviour that their replies show."""

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.cli.argument_parser import VERBOSE, see_writable_files
from conformance.cli.case_choice import load_cases
from conformance.cli.command_known import load_known
from conformance.cli.command_run import chosen_offer, open_replies, plans_for, rerun_command
from conformance.cli.offer import Offer, collect
from conformance.cli.output_folder import open_folder
from conformance.cli.progress import Progress, open_page, print_slowest
from conformance.diagnosis.behaviour_profile import BehaviourProfile, Probe, behaviour_profile
from conformance.disk import write_asked, write_whole
from conformance.engine.adapters import Subject
from conformance.engine.cell_records import RunListener
from conformance.engine.job import Limits
from conformance.engine.judging import Judge, Judged
from conformance.engine.logged_cell import LoggedCell, Reviewed
from conformance.engine.pool import Pool
from conformance.engine.second_look import Closeness
from conformance.engine.session import Session
from conformance.gate.decision import Decision, decide
from conformance.gate.run_ending import Clock, ending, finish
from conformance.report import write_reports
from conformance.report.probe_report import FILE, Pictured, markdown, record, table
from conformance.verdicts.verdict import LOST

# The tag of the cases that a probe asks.
TAG = "probe"


@dataclass(frozen=True)
class ProbedSubject:
    """A subject, its behaviour profile, and its cells in the run log."""

    subject: Subject
    behaviour: BehaviourProfile
    cells: tuple[LoggedCell, ...]

    @property
    def undocumented(self) -> frozenset[str]:
        """Return the decisions that SLOTS marks as undocumented."""
        families = {"float": "float_mask", "int": "number_mask"}
        return frozenset(
            f"{family}[{slot.name}]"
            for slot in self.subject.slots.values()
            for element, family in families.items()
            if slot.meaning(element) == "undocumented"
        )


@dataclass(frozen=True)
class ProbeRun:
    """The probed subjects and the decision of the gate; `resources` holds the lock of the run folder."""

    probed_subjects: tuple[ProbedSubject, ...]
    decision: Decision
    folder: Path
    offer: Offer
    resources: ExitStack


def run_probe(arguments: argparse.Namespace, patterns: Sequence[str], only: Sequence[str] = ()) -> ProbeRun:
    """
    Ask the probe cases of the subjects that match the patterns, write the run folder, and read the replies.

    only: the names of the subjects to keep; if empty, all except dense forms.
    """
    clock = Clock()
    see_writable_files(arguments.json)
    arguments.subject = list(patterns)
    judge = Judge()
    known = load_known(arguments.known, judge)
    offer = _restricted(chosen_offer(arguments), only)
    probes: dict[str, list[Probe]] = {subject.name: [] for subject in offer.subjects}

    def review(judged: Judged) -> Reviewed:
        reviewed = known.review(judged)
        probe = _probe(judged, accepted=reviewed.known is not None)
        if probe is not None:
            probes[judged.subject].append(probe)
        return reviewed

    limits = Limits(start=arguments.start_timeout, first=arguments.timeout, call=arguments.timeout)
    plans = plans_for(offer, arguments)
    with ExitStack() as resources:
        with open_replies(arguments) as replies, Pool(plans, arguments.jobs, limits, waits=replies.knows) as pool:
            cases = load_cases(arguments.paths, arguments.case, TAG)
            opened = open_folder(arguments, offer, cases)
            session = Session(
                cases=cases,
                subjects=offer.subjects,
                log=opened.log,
                folder=opened.folder,
                review=review,
                judge=judge,
                replies=replies,
                rerun=lambda key: rerun_command(key, offer, arguments),
                plain=lambda: load_cases((), (), None),
                accepts=known.accepts,
                closeness=Closeness(reshape=True),
            )
            resources.enter_context(ending(session, offer.incomplete))
            with Progress(sys.stderr, name_red=False, level=arguments.level) as progress:
                progress.plan(session.total)
                session.watch = RunListener(cell=progress.cell, worker=progress.worker, search=progress.search)
                session.run(pool)
        decision = decide(
            session.cells,
            [*offer.incomplete, *session.missing],
            (),
            known.record(whole=False),
            not_working=session.not_working,
        )
        footer = finish(session, decision, clock)
        probed_subjects = tuple(_probed_subjects(offer.subjects, probes, tuple(session.logged_cells)))
        return ProbeRun(probed_subjects, Decision.recorded(footer), opened.folder, offer, resources.pop_all())


def collect_probes(arguments: argparse.Namespace) -> int:
    """Print which calls would be made, and return the exit code."""
    offer = _restricted(chosen_offer(arguments), ())
    return collect(load_cases((), (), TAG), offer, every=arguments.level == VERBOSE)


def write_results(probe_run: ProbeRun, files: Mapping[str, str], data: str, elsewhere: Path | None) -> None:
    """Write these files and the reports into the run folder; write the file named `data` to `elsewhere` as well."""
    with probe_run.resources:
        for name, text in files.items():
            write_whole(probe_run.folder / name, text)
        write_reports(probe_run.folder)
    if elsewhere is not None:
        write_asked(elsewhere, files[data])


def as_json(value: Any) -> str:
    """Return indented JSON."""
    return json.dumps(value, indent=2) + "\n"


def _restricted(offer: Offer, only: Sequence[str]) -> Offer:
    """Keep the subjects named in `only`; if it is empty, all except dense forms, unless there is nothing else."""
    counted = tuple(subject for subject in offer.subjects if subject.counted) or offer.subjects
    kept = tuple(subject for subject in offer.subjects if subject.name in only) if only else counted
    return Offer(kept, offer.environments, offer.not_offered, offer.incomplete)


def _probe(judged: Judged, *, accepted: bool) -> Probe | None:
    """Return a judged cell as input for the behaviour profile, or None if it has no reply."""
    if judged.declared is None or judged.profile is None:
        return None
    return Probe(
        judged.case,
        judged.facts,
        judged.problem,
        judged.declared,
        judged.profile,
        judged.actual,
        accepted=accepted,
    )


def _probed_subjects(
    subjects: Iterable[Subject], probes: Mapping[str, Sequence[Probe]], cells: Sequence[LoggedCell]
) -> Iterable[ProbedSubject]:
    for subject in subjects:
        own = tuple(cell for cell in cells if cell.subject == subject.name)
        yield ProbedSubject(subject, behaviour_profile(probes[subject.name]), own)


def probe(arguments: argparse.Namespace) -> int:
    """Probe subjects, print a table for each, and return the exit code: 1 if behaviour contradicts a declaration."""
    if arguments.collect_only:
        return collect_probes(arguments)
    probe_run = run_probe(arguments, arguments.subject)
    pictures = [pictured(probed) for probed in probe_run.probed_subjects]
    for picture in pictures:
        print("\n".join(table(picture)), end="\n\n")
    for sentence in (*probe_run.decision.incomplete, *probe_run.decision.problems):
        print(sentence)
    files = {"probe.md": "\n".join(markdown(pictures)) + "\n", FILE: profiles(pictures)}
    write_results(probe_run, files, FILE, arguments.json)
    print_slowest([cell for probed in probe_run.probed_subjects for cell in probed.cells], arguments.durations)
    print(f"Report: {probe_run.folder / 'probe.md'}")
    if arguments.open:
        open_page(probe_run.folder)
    return probe_run.decision.exit_code


def profiles(pictures: Iterable[Pictured]) -> str:
    """Return all behaviour profiles as JSON."""
    return as_json({"schema": 1, "subjects": [record(picture) for picture in pictures]})


def pictured(probed: ProbedSubject) -> Pictured:
    """Return what the report shows about a subject."""
    name = probed.subject.name
    broken = tuple(cell.case for cell in probed.cells if cell.verdict in LOST)
    rerun = {cell.case: cell.rerun for cell in probed.cells if cell.rerun}
    return Pictured(name, probed.behaviour, probed.undocumented, broken, rerun, len(probed.cells))
