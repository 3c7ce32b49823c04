"""
One run: cases put to subjects through workers, every reply judged and logged as it comes.

What a verdict means for the gate is decided by `review`, which is told of every judged cell. The records of cells that
it does not accept, and of a few others, wait for the second look that a worker is given after its last call.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from conformance.engine.adapters import Subject
from conformance.engine.cells import Cell, Refused, count_cells, make_cell
from conformance.engine.controls import Controls, RefusedCall
from conformance.engine.diagnosing import Cases, SubjectDiagnosis
from conformance.engine.environments import Machine
from conformance.engine.job import Job, Outcome, Report, RunListener, Started, StopRun
from conformance.engine.judging import (
    Judge,
    Judged,
    is_refused,
    judged_outcome,
    judgement_record,
    outcome_record,
    packed,
)
from conformance.engine.ledger import Ledger, recalled
from conformance.engine.pending import Accepts, PendingCell
from conformance.engine.pool import Hooks, Pool
from conformance.engine.reply_cache import ReplyCache, WorkerResult, WorkerResults
from conformance.engine.runlog import RunLog
from conformance.engine.second_look import Closeness, Question, SecondLook, subset_of
from conformance.engine.worker_plan import WorkerPlan
from conformance.spec.case import Case
from conformance.spec.materialise import materialise
from conformance.spec.problem import Problem
from conformance.spec.problem_digest import problem_digest
from conformance.verdicts.published_numbers import Finding, published_findings
from conformance.verdicts.verdict import CONFORMING, LOST, is_green

Key = tuple[str, str]
Record = dict[str, Any]
# Told of a judged cell; what it returns is added to the record (`known`, `covered_by`).
Review = Callable[[Judged], Mapping[str, Any]]


def accepts_nothing(_: Judged) -> Mapping[str, Any]:
    """Without a list of known deviations."""
    return {}


@dataclass(frozen=True, eq=False)
class _Served:
    """What is kept of one worker's calls: those that a second look is for, and those that show whether it works."""

    plan: WorkerPlan
    look: SecondLook
    controls: Controls


@dataclass
class Session:
    """
    The state of a run.

    done: records of a cut run that is resumed. rerun: makes the command that reruns one cell. accepts: what `review`
    would say of a changed call, which it does not count. further: how many calls the second look made, by what for.
    suite: every case that there is, for telling causes apart that the chosen ones do not. plain: cases of which the
    plainest are asked of a subject that has no reply so far. replies: what earlier runs know. results: the
    same of whole workers; restore: told of each of their records.
    """

    cases: Sequence[Case]
    subjects: Sequence[Subject]
    log: RunLog
    folder: Path
    review: Review
    rerun: Callable[[Key], str]
    suite: Cases = tuple
    plain: Cases = tuple
    judge: Judge = field(default_factory=Judge)
    replies: ReplyCache = field(default_factory=ReplyCache)
    results: WorkerResults = field(default_factory=WorkerResults)
    restore: Callable[[Record], None] = lambda _: None
    watch: RunListener = field(default_factory=RunListener)
    accepts: Accepts = accepts_nothing
    closeness: Closeness = field(default_factory=Closeness)
    done: Mapping[Key, Record] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    reports: list[Report] = field(default_factory=list)
    signatures: dict[str, set[str]] = field(default_factory=dict)
    planned: int = 0
    published: tuple[Finding, ...] = ()
    further: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.suite = cache(self.suite)
        self._diagnosing = SubjectDiagnosis(self.suite, lambda case: self.problem(case)[0])
        self._problems: dict[str, tuple[Problem, str]] = {}
        self._pending: dict[int, Cell] = {}
        self._questions: dict[int, Question] = {}
        self._served: list[_Served] = []
        self._by_number: dict[int, _Served] = {}
        self._subset = subset_of(self.cases, self.closeness.subset)
        self._versions: dict[str, Mapping[str, str]] = {}
        self._machines: dict[str, Machine] = {}
        self._by_name = {subject.name: subject for subject in self.subjects}
        self._not_run: list[Key] = []
        self._first: set[int] = set()
        self.ledger = Ledger(self.log, self.folder, self.rerun, len(self.done))
        self._replayed: dict[Key, Record] = {}
        self._whole: set[str] = set()
        self._diagnosed: set[str] = set()

    def run(self, pool: Pool) -> None:
        """
        Judge every cell that is not done, then explain the failures of each subject together.

        Raises:
            StopRun: `watch.stop` ended it. KeyboardInterrupt: what was judged so far is logged.
        """
        self.records.extend(self.done.values())
        self.published = published_findings(self.cases, lambda case: self.problem(case)[0])
        try:
            self.reports = pool.run(Hooks(self._jobs, self._replied, self._started, self._recalled))
        except KeyboardInterrupt:
            for served in self._served:  # what passes so far is asked again, and looked at again, when it is resumed
                served.look.pending = [pending for pending in served.look.pending if pending.red]
            self._settle_all()
            raise
        except StopRun:
            self._settle_all()
            self._diagnose(self._by_name)
            raise
        self._settle_all()
        self._diagnose(self._by_name)
        self._remember()

    @property
    def records(self) -> list[Record]:
        """All cells so far, in the order of verdicts."""
        return self.ledger.cells

    @property
    def total(self) -> int:
        """How many cells there are, those that were done before included."""
        return sum(count_cells(case, self.problem(case)[0], self.subjects) for case in self.cases)

    @property
    def missing(self) -> list[str]:
        """What is not judged though it was asked for, in sentences."""
        found = [f"{worker}: {reason}" for worker, reason in self.failures.items()]
        if self._not_run:
            case, subject = self._not_run[0]
            found.append(f"{len(self._not_run)} cells were not run, first {case} on {subject}")
        return found

    @property
    def not_working(self) -> dict[str, str]:
        """
        Subject -> the sentence that tells it, for those of which no valid call had a reply.

        Not if a known deviation accepts every such error: then it is known what works, and what does not.
        """
        lost = {record["subject"] for record in self.records if record["verdict"] in LOST and "known" not in record}
        forms = {replace(self._by_name[name], dense=False).name for name in lost}
        every = (served.controls.not_working for served in self._served)
        found = {name: said for each in every for name, said in each.items()}
        refused = {record["subject"] for record in self.records if record["verdict"] == "inconclusive"}
        return {name: said for name, said in found.items() if name in forms or name in refused}

    @property
    def contradicted(self) -> list[str]:
        """Where published numbers and the oracle disagree, in sentences."""
        return [finding.problem for finding in self.published if finding.problem]

    def problem(self, case: Case) -> tuple[Problem, str]:
        """The arrays of a case and their digest, made once."""
        if case.id not in self._problems:
            problem = materialise(case)
            self._problems[case.id] = (problem, problem_digest(problem))
        return self._problems[case.id]

    def _recalled(self, plan: WorkerPlan) -> Started | None:
        """What an earlier run knows of a worker: how it greeted, and perhaps all of its records."""
        started = self.replies.recalled(plan)
        if started is not None and not self.done and (known := self.results.recall(plan)) is not None:
            self._replay(plan, known)
        return started

    def _replay(self, plan: WorkerPlan, known: WorkerResult) -> None:
        for earlier in known.cells:
            key = earlier["case"], earlier["subject"]
            archive = known.tensors.get(earlier.get("tensors", ""), b"")
            record = self.ledger.write_cell(key, earlier | {"cached": True}, archive)
            self.replies.known += int("seconds" in record)
            self.restore(record)
            self._replayed[key] = record
            self.watch.cell(record)
        for diagnosis in known.diagnoses:
            self.ledger.write_diagnosis(diagnosis)
        self._whole |= set(plan.subjects)

    def _diagnose(self, names: Collection[str]) -> None:
        """Explain the failures of each of these subjects together, once, and log what was found."""
        left = {*names} - self._diagnosed
        self._diagnosed |= left
        self._recall(left)
        for record in self._diagnosing.records(self._by_name, left):
            self.ledger.write_diagnosis(record)

    def _remember(self) -> None:
        """Keep the records of every worker that answered all its calls for a later run that asks the same."""
        if self.done:
            return
        lacking = {subject for _, subject in self._not_run}
        for plan in [report.plan for report in self.reports if not report.failure]:
            if not self._whole.issuperset(plan.subjects) and lacking.isdisjoint(plan.subjects):
                self.results.keep(plan, *self.ledger.of(plan.subjects), self.folder)

    def _recall(self, names: Collection[str]) -> None:
        """What was judged before the run was cut, of those of these subjects with failures, is evidence as well."""
        if not self.done:
            return
        failing = {record["subject"] for record in self.records if record["verdict"] == "fail"} & {*names}
        cases = {case.id: case for case in self.cases}
        for (case, name), record in self.done.items():
            if name in failing:
                made = make_cell(cases[case], self.problem(cases[case])[0], self._by_name[name])
                found = recalled(made, record, self.judge, self.folder) if isinstance(made, Cell) else None
                self._diagnosing.recall(name, case, found)

    def _started(self, started: Started) -> None:
        record = self.log.append({"type": "worker", **started.record()})
        self.replies.greet(started)
        if started.status == "failed":
            self.failures[started.plan.name] = record["reason"]
        for name in started.plan.subjects:
            self._versions[name] = started.hello.get("versions", {})
            self._machines[name] = Machine.of(started.hello.get("evidence", {}))
        self.watch.worker(started)

    def _jobs(self, plan: WorkerPlan, _: Started) -> Iterator[Job]:
        look = SecondLook(self.closeness, lambda name: self.signatures.get(name, ()))
        controls = Controls([self._by_name[name] for name in plan.subjects], self.plain)
        served = _Served(plan, look, controls)
        self._served.append(served)
        for (_case, name), judged_before in (*self.done.items(), *self._replayed.items()):
            if name in plan.subjects:
                controls.recall(judged_before)
        for cell in self._cells(plan):
            look.waiting += 1
            yield from self._not_known([self._job(served, cell)])
        look.exhausted = True
        yield from self._not_known(self._next(served))

    def _not_known(self, jobs: Iterable[Job]) -> Iterator[Job]:
        """The jobs that are left for a worker: those whose outcome an earlier run knows are answered at once."""
        queue = deque(jobs)
        while queue:
            job = queue.popleft()
            outcome = self.replies.recall(self._by_number[job.number].plan, job)
            if outcome is None:
                yield job
            else:
                queue.extend(self._answered(job, outcome))

    def _replied(self, job: Job, outcome: Outcome) -> Iterable[Job]:
        """Take what a worker said, and remember it for later runs."""
        self.replies.keep(job, outcome)
        return list(self._not_known(self._answered(job, outcome)))

    def _cells(self, plan: WorkerPlan) -> Iterator[Cell]:
        """What a worker is to be asked; what its adapter cannot take is recorded at once."""
        for case in self.cases[plan.part :: plan.parts]:
            for name in plan.subjects:
                if (case.id, name) in self.done or (case.id, name) in self._replayed:
                    continue
                subject = self._by_name[name]
                if case.operator not in subject.operators:
                    continue
                made = make_cell(case, self.problem(case)[0], subject)
                if isinstance(made, Refused):
                    self._write(made.key, {"verdict": "unsupported", "reason": made.reason})
                elif made is not None:
                    yield made

    def _job(self, served: _Served, cell: Cell, question: Question | None = None) -> Job:
        self.planned += 1
        number = self.planned
        self._by_number[number] = served
        if question is None:
            self._pending[number] = cell
        else:
            self._questions[number] = question
        known = self.signatures.setdefault(cell.subject.name, set())
        if cell.signature not in known:
            known.add(cell.signature)
            self._first.add(number)
        return Job(
            number=number,
            cell=cell.key,
            call=cell.call,
            requirements=cell.case.requirements(),
            limit=cell.reply_limit,
            signature=cell.signature,
            fresh=question is not None and question.fresh,
        )

    def _answered(self, job: Job, outcome: Outcome) -> Iterable[Job]:
        served = self._by_number.pop(job.number)
        served.look.waiting -= 1
        if (question := self._questions.pop(job.number, None)) is not None:
            question.take(outcome)
        else:
            self._heard(served.look, served.controls, job, outcome)
        return self._next(served)

    def _next(self, served: _Served) -> Iterable[Job]:
        """When all have answered: what is asked next, or the records that have waited for it."""
        look, controls = served.look, served.controls
        if look.waiting or not look.exhausted:
            return ()
        if questions := controls.next_questions() or self._further_look(look, controls):
            look.waiting = len(questions)
            self.further.update(question.purpose for question in questions)
            return [self._job(served, question.cell, question) for question in questions]
        self._settle(look)
        if served.plan.parts == 1:  # of a subject whose cases are shared between workers, at the end
            self._diagnose(served.plan.subjects)
        return ()

    def _further_look(self, look: SecondLook, controls: Controls) -> list[Question]:
        """The next questions of the second look, which begins when refused calls have their verdicts."""
        for refused in controls.take_refused():
            self._judged(look, refused.number, refused.cell, refused.outcome, refused.doubt)
        return look.next_questions()

    def _heard(self, look: SecondLook, controls: Controls, job: Job, outcome: Outcome) -> None:
        """Judge what came back; a refused call waits for its twin."""
        cell = self._pending.pop(job.number)
        if outcome.status == "not_run":
            self._not_run.append(cell.key)
            return
        controls.hear(cell, outcome)
        if is_refused(cell, outcome):
            controls.refused.append(RefusedCall(job.number, cell, outcome))
        else:
            self._judged(look, job.number, cell, outcome)

    def _judged(self, look: SecondLook, number: int, cell: Cell, outcome: Outcome, doubt: str = "") -> None:
        started = time.thread_time()
        judged = judged_outcome(self.judge, cell, outcome, self._versions.get(cell.subject.name, {}), doubt)
        judged = replace(judged, machine=self._machines.get(cell.subject.name, judged.machine))
        about = outcome_record(cell, outcome, self.problem(cell.case)[1])
        record = about | {"verdict": judged.verdict} | judgement_record(judged)
        if judged.message:
            record["reason"] = judged.message
        record |= self.review(judged)
        record["seconds"] = {**outcome.seconds, "judge": time.thread_time() - started}
        record["compiles"] = number in self._first
        if outcome.cached:
            record["cached"] = True
        red = not is_green(record)
        pending = PendingCell(cell, outcome, judged, record, self.problem(cell.case)[0], red)
        if self._waits(pending):
            look.pending.append(pending)
        else:
            self._diagnosing.add(judged, record)
            self._write(pending.cell.key, record, packed(judged.arrays))

    def _waits(self, pending: PendingCell) -> bool:
        """Whether a cell gets a second look; one that ends the run does not."""
        if pending.red:
            return not self.watch.stop(pending.record)
        passing = pending.judged.verdict in CONFORMING
        return passing and pending.cell.subject.counted and pending.cell.case.id in self._subset

    def _settle_all(self) -> None:
        """Also of a worker that was given up, or when the user interrupts, what is held has its verdict."""
        for served in self._served:
            self._not_run += [refused.cell.key for refused in served.controls.take_refused()]
        for served in self._served:
            self._settle(served.look)

    def _settle(self, look: SecondLook) -> None:
        while look.pending:
            pending = look.pending.pop(0)
            started = time.thread_time()
            record, arrays = pending.settle(self.judge, self.accepts)
            record["seconds"]["judge"] += time.thread_time() - started
            for judged in (pending.judged, pending.changed):
                if judged is not None:
                    self._diagnosing.add(judged, record, non_reproducible=pending.is_non_reproducible)
            self._write(pending.cell.key, record, packed(arrays))

    def _write(self, key: Key, about: Mapping[str, Any], archive: bytes = b"") -> None:
        record = self.ledger.write_cell(key, about, archive)
        self.watch.cell(record)
        if self.watch.stop(record):
            raise StopRun(key[1])
