"""From a function to a verdict: settle what it is judged under, then judge it like any other subject."""

import datetime as dt
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from conformance import places
from conformance.engine.adapters import Subject, subjects_of
from conformance.engine.environments import our_own
from conformance.engine.header import header
from conformance.engine.job import Limits
from conformance.engine.pool import Pool
from conformance.engine.runlog import LOG, RunLog
from conformance.engine.second_look import Closeness
from conformance.engine.session import Session
from conformance.engine.watch import Watch
from conformance.gate.decide import Decision, decide
from conformance.gate.footer import Clock, finish
from conformance.gate.known import Known
from conformance.own.alternatives import Alternatives
from conformance.own.borrowing import borrow, find_loan
from conformance.own.causes import Cause, causes
from conformance.own.declaring import read_declared
from conformance.own.errors import CheckError
from conformance.own.facts import slots
from conformance.own.observation import Varying
from conformance.own.planning import plan_of
from conformance.own.profiles import PROFILES
from conformance.own.settling import settle, write_adapter
from conformance.own.signature import read_signature
from conformance.own.target import Target
from conformance.own.telling import cause_lines, headline, settled_notes, varying_notes
from conformance.report import Run, write_reports
from conformance.report.findings import findings
from conformance.spec.case import Case
from conformance.spec.glob import covered
from conformance.spec.loader import load
from conformance.spec.materialise import materialise

TIMEOUT = 30.0
"""Seconds that one call may take, if the user does not say."""

DEATHS = 2
"""How often the process of the function may die: one that always crashes or hangs is not waited for all day."""


@dataclass(frozen=True)
class Request:
    """What is to be checked: the options of `conformance check`."""

    target: Target
    like: str | None = None
    operator: str | None = None
    profile: str | None = None
    declare: Mapping[str, str] = field(default_factory=dict)
    globs: tuple[str, ...] = ()
    timeout: float = TIMEOUT

    @property
    def command(self) -> list[str]:
        """The command that checks again."""
        words = ["conformance", "check", self.target.given]
        for option, value in (("--as", self.like), ("--operator", self.operator), ("--profile", self.profile)):
            words += [option, value] if value else []
        for decision, name in self.declare.items():
            words += ["--declare", f"{decision}={name}"]
        return words

    def rerun(self, case: str) -> str:
        """The command that checks one case again, quoted for a shell."""
        return shlex.join([*self.command, "-k", case])


@dataclass(frozen=True)
class Checked:
    """A check that came to its end. notes: what was settled and observed, in sentences."""

    request: Request
    run: Run
    decision: Decision
    notes: tuple[str, ...]

    @property
    def causes(self) -> tuple[Cause, ...]:
        """Why it does not conform."""
        return causes(findings(self.run))

    def lines(self) -> list[str]:
        """The check in plain words: whether it conforms, why not, and what was found on the way."""
        found, given = self.causes, self.request.target.given
        again = {cause.case: self.request.rerun(cause.case) for cause in found}
        first = headline(given, self.run, found, conforms=self.decision.conforms)
        return [first, *cause_lines(found, again), *self.notes]


WITHOUT_CONSENSUS = frozenset({"poisoned_key", "poisoned_value"})
"""Relations about non-finite values, which are a decision: the cases on it observe it, or hold what is declared."""

HELD = "{} holds a run already: choose another --out"


def check(request: Request, folder: Path, watch: Watch) -> Checked:
    """
    Judge the function, and write the run folder.

    Raises:
        CheckError: what was asked for cannot be checked. KeyboardInterrupt: what was judged so far is logged.
    """
    clock = Clock()
    if request.profile is not None and request.profile not in PROFILES:
        raise CheckError(f"there is no profile {request.profile!r}, only {', '.join(PROFILES)}")
    if (folder / LOG).exists():
        raise CheckError(HELD.format(folder))
    begun = _borrowed(request, folder) if request.like else _own(request, folder)
    subjects, chosen = begun.subjects, begun.cases
    try:
        log = RunLog.create(folder / LOG)
    except FileExistsError as error:  # another check has begun there meanwhile
        raise CheckError(HELD.format(folder)) from error
    log.append(header(folder.name, request.command, "cpu", chosen, subjects, {"default": our_own()}))
    alternatives = Alternatives()
    session = Session(
        cases=chosen,
        subjects=subjects,
        log=log,
        folder=folder,
        review=alternatives.review,
        rerun=lambda key: request.rerun(key[0]),
        suite=lambda: load_cases(chosen[0].operator),
        watch=watch,
        closeness=Closeness(reshape=True, left_out=WITHOUT_CONSENSUS),
    )
    limits = Limits(first=request.timeout, call=request.timeout, deaths=DEATHS, starts=1)
    with Pool([plan_of(*subjects)], 1, limits) as pool:
        session.run(pool)
    known = Known((), dt.datetime.now(tz=dt.UTC).date())
    decision = decide(session.records, session.missing, (), known.record(whole=False))
    finish(session, decision, clock)
    run = write_reports(folder)
    named = {case for finding in findings(run) if finding.explained for case, _ in finding.cells}
    notes = (*begun.notes, *varying_notes(begun.varies, named), *alternatives.notes())
    return Checked(request, run, decision, notes)


@dataclass(frozen=True)
class _Begun:
    """What is judged, on which cases, and what was found before: notes in sentences, and decisions that vary."""

    subjects: list[Subject]
    cases: list[Case]
    notes: tuple[str, ...]
    varies: Varying = field(default_factory=dict)


def _own(request: Request, folder: Path) -> _Begun:
    signature = read_signature(request.target.definition, request.operator)
    cases = load_cases(signature.operator)
    chosen = _chosen(cases, request.globs)
    declared = read_declared(request.declare, slots(signature, {}), materialise(cases[0]))
    settled = settle(request.target, signature, declared, request.profile, cases, request.timeout)
    subject = write_adapter(folder, settled.files(request.target))
    return _Begun(subjects_of([subject.adapter]), chosen, settled_notes(settled), settled.observed.varies)


def _borrowed(request: Request, folder: Path) -> _Begun:
    if request.operator is not None:
        raise CheckError("--operator goes with a function of NumPy; with --as the subject says it")
    loan = find_loan(str(request.like))
    cases = load_cases(loan.operator)
    chosen = _chosen(cases, request.globs)
    example = materialise(cases[0])
    subjects = borrow(loan, request.target, folder, request.declare, request.profile, example)
    return _Begun(subjects, chosen, (loan.note,))


def load_cases(operator: str) -> list[Case]:
    """Our cases of an operator."""
    return [case for case in load([places.cases()], places.cases()) if case.operator == operator]


def _chosen(cases: Sequence[Case], globs: Sequence[str]) -> list[Case]:
    """An exact id wins, as in `conformance run`."""
    if not globs:
        return list(cases)
    meant = covered({case.id for case in cases}, globs)
    found = [case for case in cases if case.id in meant]
    if not found:
        raise CheckError(f"no {cases[0].operator} case matches {', '.join(globs)}; see conformance list cases")
    return found
