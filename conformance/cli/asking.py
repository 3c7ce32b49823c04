"""Asking subjects for their dialect: the probe set through the ordinary workers, every reply kept and read."""

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.cli.choice import load_cases
from conformance.cli.collecting import collect
from conformance.cli.errors import see_writable_files
from conformance.cli.folder import open_folder
from conformance.cli.known import load_known
from conformance.cli.offer import Offer, cost
from conformance.cli.progress import Progress
from conformance.cli.run import chosen_offer, open_replies, rerun_command
from conformance.cli.words import VERBOSE
from conformance.disk import write_asked, write_whole
from conformance.engine.adapters import Subject
from conformance.engine.job import Limits
from conformance.engine.judging import Judge, Judged
from conformance.engine.plan import plan_workers
from conformance.engine.pool import Pool
from conformance.engine.second_look import Closeness
from conformance.engine.session import Session
from conformance.engine.watch import Watch
from conformance.gate.decide import Decision, decide
from conformance.gate.footer import Clock, ending, finish
from conformance.judge.probing import Portrait, portray
from conformance.judge.reading import Probe
from conformance.report import write_reports

TAG = "probe"
"""Cases with this tag are asked."""


@dataclass(frozen=True)
class Sitter:
    """A subject, what was read off its replies, and its cells in the run log."""

    subject: Subject
    portrait: Portrait
    records: tuple[Mapping[str, Any], ...]

    @property
    def undocumented(self) -> frozenset[str]:
        """Decisions on which SLOTS say that the documentation is silent."""
        families = {"float": "float_mask", "int": "number_mask"}
        return frozenset(
            f"{family}[{slot.name}]"
            for slot in self.subject.slots.values()
            for element, family in families.items()
            if slot.meaning(element) == "undocumented"
        )


@dataclass(frozen=True)
class Asked:
    """What came back from all subjects, and the gate's answer; held: the run folder, which is ours until it is left."""

    sitters: tuple[Sitter, ...]
    decision: Decision
    folder: Path
    offer: Offer
    held: ExitStack


def ask(arguments: argparse.Namespace, patterns: Sequence[str], only: Sequence[str] = ()) -> Asked:
    """
    Put the probe set to the subjects that the patterns ask for, write the run folder, and read the replies.

    only: names of those among them that are meant; all without dense ones where it is empty.
    """
    clock = Clock()
    see_writable_files(arguments.json)
    arguments.subject = list(patterns)
    judge = Judge()
    known = load_known(arguments.known, judge.expectation)
    offer = _restricted(chosen_offer(arguments), only)
    probes: dict[str, list[Probe]] = {subject.name: [] for subject in offer.subjects}
    by_name = {subject.name: subject for subject in offer.subjects}

    def review(judged: Judged) -> Mapping[str, Any]:
        record = known.review(judged)
        if (probe := _probe(judged, by_name[judged.subject], accepted="known" in record)) is not None:
            probes[judged.subject].append(probe)
        return record

    limits = Limits(start=arguments.start_timeout, first=arguments.timeout, call=arguments.timeout)
    plans = sorted(plan_workers(offer.subjects, offer.environments), key=cost)
    with ExitStack() as held:
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
            held.enter_context(ending(session, offer.incomplete))
            with Progress(sys.stderr, name_red=False, level=arguments.level) as progress:
                progress.plan(session.total)
                session.watch = Watch(cell=progress.cell, worker=progress.worker)
                session.run(pool)
        decision = decide(
            session.records,
            [*offer.incomplete, *session.missing],
            (),
            known.record(whole=False),
            not_working=session.not_working,
        )
        footer = finish(session, decision, clock)
        sitters = tuple(_sitters(offer.subjects, probes, session.records))
        return Asked(sitters, Decision.recorded(footer), opened.folder, offer, held.pop_all())


def collect_probes(arguments: argparse.Namespace) -> int:
    """Print what would be asked of whom, and return the exit code."""
    offer = _restricted(chosen_offer(arguments), ())
    return collect(load_cases((), (), TAG), offer, every=arguments.level == VERBOSE)


def keep(asked: Asked, files: Mapping[str, str], data: str, elsewhere: Path | None) -> None:
    """Put what was read off the replies into the run folder, one of them elsewhere too, then write the reports."""
    with asked.held:
        for name, text in files.items():
            write_whole(asked.folder / name, text)
        write_reports(asked.folder)
    if elsewhere is not None:
        write_asked(elsewhere, files[data])


def as_json(value: Any) -> str:
    """JSON for people and machines."""
    return json.dumps(value, indent=2) + "\n"


def _restricted(offer: Offer, only: Sequence[str]) -> Offer:
    """Keep those that are meant; of all, no dense ones unless nothing else was asked for: they are the same calls."""
    counted = tuple(subject for subject in offer.subjects if subject.counted) or offer.subjects
    kept = tuple(subject for subject in offer.subjects if subject.name in only) if only else counted
    return Offer(kept, offer.environments, offer.not_offered, offer.incomplete)


def _probe(judged: Judged, subject: Subject, *, accepted: bool) -> Probe | None:
    """What a judged cell tells, or None where there is no reply to read."""
    if judged.declared is None or judged.profile is None:
        return None
    opposite = frozenset(
        mask.slot
        for mask in judged.facts.masks
        if not mask.verbatim and subject.slots[mask.slot].meaning(mask.element) == "ignore"
    )
    return Probe(
        judged.case,
        judged.facts,
        judged.problem,
        judged.declared,
        judged.profile,
        judged.actual,
        accepted=accepted,
        opposite=opposite,
    )


def _sitters(
    subjects: Iterable[Subject], probes: Mapping[str, Sequence[Probe]], records: Sequence[Mapping[str, Any]]
) -> Iterable[Sitter]:
    for subject in subjects:
        cells = tuple(record for record in records if record["subject"] == subject.name)
        yield Sitter(subject, portray(probes[subject.name]), cells)
