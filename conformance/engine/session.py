"""
One run: workers call subjects with the cases, and each reply is judged and logged as it comes.

`review` is called with each judged cell, and decides what its verdict means for the gate. Cells that it does not
accept, and a few others, are written after the second look, which follows the last call of a worker.
"""

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import chain
from pathlib import Path

from conformance.engine.adapters import Subject
from conformance.engine.cell_records import Ledger, Review, RunListener, VerdictWriter, accepts_nothing, recalled
from conformance.engine.cells import Cell, Refused, count_cells, make_cell
from conformance.engine.controls import Controls
from conformance.engine.diagnosing import AnsweredCall, Cases, SubjectDiagnosis
from conformance.engine.job import Job, Outcome, Report, Started, StopRun
from conformance.engine.judging import Judge
from conformance.engine.logged_cell import JudgedCell, LoggedCell
from conformance.engine.pending import Accepts
from conformance.engine.pool import Hooks, Pool
from conformance.engine.records import Key
from conformance.engine.reply_cache import ReplyCache, WorkerResult, WorkerResults
from conformance.engine.runlog import RunLog
from conformance.engine.second_look import Closeness, SecondLook, subset_of
from conformance.engine.worker_plan import WorkerPlan
from conformance.engine.worker_run import PlannedCalls, WorkerRun
from conformance.spec.case import Case
from conformance.spec.materialise import forget, materialise
from conformance.verdicts.expectation import PublishedFinding, published_findings
from conformance.verdicts.verdict import LOST


class CaseUses:
    """How many workers may still need a case: what is remembered of it is dropped after the last one."""

    def __init__(self) -> None:
        """Start without any worker."""
        self._left: Counter[str] = Counter()

    def expect(self, case: str) -> None:
        """One more worker, or one more call, will need the case."""
        self._left[case] += 1

    def needs(self, case: str) -> bool:
        """Whether somebody still needs the case."""
        return self._left[case] > 0

    def end(self, case: str) -> bool:
        """One of them is done; whether it was the last one."""
        self._left[case] -= 1
        if self._left[case] > 0:
            return False
        del self._left[case]
        return True


@dataclass
class Session:
    """
    The state of a run.

    done: cells of an interrupted run that is resumed. rerun: returns the command that reruns one cell. accepts: returns
    what `review` would say of a changed call, without counting it. accepted_way: whether a deviation is accepted beside
    another cause. evident: deviations that earlier calls showed together. suite: returns all cases, for causes that the
    chosen cases do not distinguish. plain: returns cases; the plainest of them are asked of a subject that has no reply
    so far. replies: calls that earlier runs know. results: the same of whole workers. restore: is called with each of
    their cells. keeps_cases: whether the expected replies of a case are kept after its last call, because the diagnosis
    of a failing subject needs them again; only for few cases. calls: the calls of all workers. failures: worker -> why
    it did not start. reports: the report of each worker.
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
    restore: Callable[[LoggedCell], None] = lambda _: None
    watch: RunListener = field(default_factory=RunListener)
    accepts: Accepts = accepts_nothing
    accepted_way: Callable[[tuple[str, str]], bool] = lambda _: False
    evident: tuple[tuple[str, str], ...] = ()
    closeness: Closeness = field(default_factory=Closeness)
    keeps_cases: bool = False
    done: Mapping[Key, JudgedCell] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    reports: list[Report] = field(default_factory=list)
    calls: PlannedCalls = field(default_factory=PlannedCalls)
    published: tuple[PublishedFinding, ...] = ()

    def __post_init__(self) -> None:
        self.suite = cache(self.suite)
        self._uses = CaseUses()
        self._cases = {case.id: case for case in self.cases}
        self._diagnosing = SubjectDiagnosis(self.suite, self.accepted_way, self.evident)
        self.ledger = Ledger(self.log, self.folder, self.rerun, len(self.done))
        self._by_name = {subject.name: subject for subject in self.subjects}
        self._workers: list[WorkerRun] = []
        self._by_number: dict[int, WorkerRun] = {}
        self._replayed: dict[Key, JudgedCell] = {}
        self._whole: set[str] = set()
        self._diagnosed: set[str] = set()

    def run(self, pool: Pool) -> None:
        """
        Judge every cell that is not done, then explain the failures of each subject together.

        Raises:
            StopRun: `watch.stop` ended it. KeyboardInterrupt: what was judged so far is logged.
        """
        self.cells.extend(self.done.values())
        self.published = published_findings(self.cases, materialise)
        for plan in pool.plans:
            for case in self._cases_of(plan):
                self._uses.expect(case.id)
        try:
            self.reports = pool.run(Hooks(self._jobs, self._replied, self._started, self._recalled))
        except KeyboardInterrupt:
            for worker in self._workers:
                worker.keep_only_red()
            self._settle_all()
            raise
        except StopRun:
            self._settle_all()
            self._diagnose(self._by_name)
            raise
        self._settle_all()
        self._diagnose(self._by_name)
        self._remember()

    @cached_property
    def _writer(self) -> VerdictWriter:
        """Made when the run begins: until then a caller may set `watch`."""
        return VerdictWriter(
            self.judge,
            self.review,
            self.accepts,
            self.watch,
            self.ledger,
            self._diagnosing,
            subset_of(self.cases, self.closeness.subset),
        )

    @property
    def cells(self) -> list[JudgedCell]:
        """What is kept of all cells so far, in the order of verdicts."""
        return self.ledger.cells

    @property
    def logged_cells(self) -> Iterator[LoggedCell]:
        """These cells as they are in the log; each is read when it is taken."""
        return self.ledger.read(self.cells)

    @property
    def total(self) -> int:
        """How many cells there are, those that were done before included."""
        return sum(count_cells(case, self.subjects) for case in self.cases)

    @property
    def missing(self) -> list[str]:
        """What is not judged, or not diagnosed, though it was asked for, in sentences."""
        found = [f"{worker}: {reason}" for worker, reason in self.failures.items()]
        if not_run := self._not_run:
            case, subject = not_run[0]
            found.append(f"{len(not_run)} cells were not run, first {case} on {subject}")
        return [*found, *self._diagnosing.faults.values()]

    @property
    def not_working(self) -> dict[str, str]:
        """
        Subject -> the sentence about it, for those of which no valid call had a reply.

        Not if a known deviation accepts every such error: then it is known what works, and what does not.
        """
        lost = {cell.subject for cell in self.cells if cell.verdict in LOST and cell.known is None}
        forms = {replace(self._by_name[name], dense=False).name for name in lost}
        every = (worker.controls.not_working for worker in self._workers)
        found = {name: said for each in every for name, said in each.items()}
        refused = {cell.subject for cell in self.cells if cell.verdict == "inconclusive"}
        return {name: said for name, said in found.items() if name in forms or name in refused}

    @property
    def contradicted(self) -> list[str]:
        """Where published numbers and the oracle disagree, in sentences."""
        return [finding.problem for finding in self.published if finding.problem]

    @property
    def _not_run(self) -> list[Key]:
        return [key for worker in self._workers for key in worker.not_run]

    def _cases_of(self, plan: WorkerPlan) -> Sequence[Case]:
        return self.cases[plan.part :: plan.parts]

    def _recalled(self, plan: WorkerPlan) -> Started | None:
        """What an earlier run knows of a worker: how it greeted, and perhaps all of its records."""
        started = self.replies.recalled(plan)
        if started is not None and not self.done and (known := self.results.recall(plan)) is not None:
            self._replay(plan, known)
        return started

    def _replay(self, plan: WorkerPlan, known: WorkerResult) -> None:
        for earlier in known.cells:
            archive = known.tensors.get(earlier.tensors, b"")
            cell = self.ledger.write_cell(earlier.model_copy(update={"cached": True}), archive)
            self.replies.known += int(bool(cell.seconds))
            self.restore(cell)
            self._replayed[cell.key] = self.cells[-1]
            self.watch.cell(cell)
        for diagnosis in known.diagnoses:
            self.ledger.write_diagnosis(diagnosis)
        self._whole |= set(plan.subjects)
        self._diagnosed |= set(plan.subjects)

    def _diagnose(self, names: Collection[str]) -> None:
        """Explain the failures of each of these subjects together, once, and log what was found."""
        left = {*names} - self._diagnosed
        self._diagnosed |= left
        for name in sorted(self._diagnosing.failing(left)):
            self.watch.search(name)
        self._recall(left)
        for record in self._diagnosing.records(self._by_name, left):
            self.ledger.write_diagnosis(record)

    def _recall(self, names: Collection[str]) -> None:
        """
        What conforms is evidence as well, of subjects that fail, and is recalled from its record when it is needed.

        Of a run that was cut, so is what failed before.
        """
        failing = self._diagnosing.failing(names) | {
            cell.subject for cell in self.done.values() if cell.verdict == "fail"
        }.intersection(names)
        if not failing:
            return
        for judged in self.cells:
            key = judged.key
            if key[1] not in failing or judged.verdict == "unsupported":
                continue
            if (before := key in self.done) or self._diagnosing.recalls(judged):
                case, logged = self._cases[key[0]], self.ledger.read_cell(judged)
                made = make_cell(case, materialise(case), self._by_name[key[1]])
                found = recalled(made, logged, self.judge, self.folder) if isinstance(made, Cell) else None
                answered = None if before or not isinstance(made, Cell) else AnsweredCall(made)
                self._diagnosing.recall(key[1], key[0], found, answered)
                if not self._uses.needs(key[0]):
                    self._forget(key[0])

    def _remember(self) -> None:
        """Keep the records of every worker that answered all its calls for a later run that asks the same."""
        if self.done:
            return
        lacking = {*(subject for _, subject in self._not_run), *self._diagnosing.faults}
        for plan in [report.plan for report in self.reports if not report.failure]:
            if not self._whole.issuperset(plan.subjects) and lacking.isdisjoint(plan.subjects):
                cells = [cell for cell in self.cells if cell.subject in plan.subjects]
                diagnoses = [record for record in self.ledger.diagnoses if record["subject"] in plan.subjects]
                self.results.keep(plan, cells, self.ledger.read(cells), diagnoses, self.folder)

    def _started(self, started: Started) -> None:
        record = self.log.append({"type": "worker", **started.record()})
        self.replies.greet(started)
        if started.status == "failed":
            self.failures[started.plan.name] = record["reason"]
        self._writer.greet(started)
        self.watch.worker(started)

    def _jobs(self, plan: WorkerPlan, _: Started) -> Iterator[Job]:
        look = SecondLook(self.closeness, lambda name: self.calls.signatures.get(name, ()))
        controls = Controls([self._by_name[name] for name in plan.subjects], self.plain)
        worker = WorkerRun(plan, look, controls, self.calls, self._writer, self._ended)
        self._workers.append(worker)
        before = (cell for cell in chain(self.done.values(), self._replayed.values()) if cell.subject in plan.subjects)
        for cell in self.ledger.read(before):
            controls.recall(cell)
        for job in worker.ordinary(self._cells(plan)):
            yield from self._not_known(worker, [job])
        yield from self._not_known(worker, worker.next_jobs())

    def _not_known(self, worker: WorkerRun, jobs: Iterable[Job]) -> Iterator[Job]:
        """The jobs that are left for a worker: those whose outcome an earlier run knows are answered at once."""
        queue = deque(jobs)
        while queue:
            job = queue.popleft()
            self._uses.expect(job.cell[0])
            outcome = self.replies.recall(worker.plan, job)
            if outcome is None:
                self._by_number[job.number] = worker
                yield job
            else:
                queue.extend(self._answered(worker, job, outcome))

    def _replied(self, job: Job, outcome: Outcome) -> Iterable[Job]:
        """Take what a worker said, and remember it for later runs."""
        self.replies.keep(job, outcome)
        worker = self._by_number.pop(job.number)
        return list(self._not_known(worker, self._answered(worker, job, outcome)))

    def _answered(self, worker: WorkerRun, job: Job, outcome: Outcome) -> list[Job]:
        following = worker.answered(job, outcome)
        self._end_use(job.cell[0])
        return following

    def _cells(self, plan: WorkerPlan) -> Iterator[Cell]:
        """What a worker is to be asked; what its adapter cannot take is recorded at once."""
        for case in self._cases_of(plan):
            for name in plan.subjects:
                if (made := self._cell(case, name)) is not None:
                    yield made
            self._end_use(case.id)

    def _cell(self, case: Case, name: str) -> Cell | None:
        subject = self._by_name[name]
        if (case.id, name) in self.done or (case.id, name) in self._replayed or case.operator not in subject.operators:
            return None
        made = make_cell(case, materialise(case), subject)
        if isinstance(made, Refused):
            declined = LoggedCell(case=case.id, subject=name, verdict="unsupported", reason=made.reason)
            self._writer.write(declined)
            return None
        return made

    def _end_use(self, case: str) -> None:
        """After the last worker, what was worked out for a case may be forgotten."""
        if self._uses.end(case):
            self._forget(case)

    def _forget(self, case: str) -> None:
        if self.keeps_cases:
            return
        self.judge.finish(case)
        if case in self._cases:  # the twin of a refused call may be of a case that was not chosen
            forget(self._cases[case])

    def _ended(self, worker: WorkerRun) -> None:
        if worker.plan.parts == 1:  # of a subject whose cases are shared between workers, at the end
            self._diagnose(worker.plan.subjects)

    def _settle_all(self) -> None:
        """Also of a worker that was given up, or when the user interrupts, what is pending has its verdict."""
        for worker in self._workers:
            worker.give_up_refused()
        for worker in self._workers:
            worker.settle()
