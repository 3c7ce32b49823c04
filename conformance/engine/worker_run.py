"""One worker's part of a run: its calls, the controls that show whether it works, and its second look."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from conformance.engine.cell_records import VerdictWriter
from conformance.engine.cells import Cell
from conformance.engine.controls import Controls, RefusedCall
from conformance.engine.job import Job, Outcome
from conformance.engine.judging import is_refused
from conformance.engine.records import Key
from conformance.engine.second_look import Question, SecondLook
from conformance.engine.worker_plan import WorkerPlan


@dataclass
class PlannedCalls:
    """
    The calls of all workers.

    number: of the last call. signatures: subject -> what its frameworks compiled for. first: numbers of the calls that
    were the first of their signature. further: how many calls were made besides those of the cases, by purpose.
    """

    number: int = 0
    signatures: dict[str, set[str]] = field(default_factory=dict)
    first: set[int] = field(default_factory=set)
    further: Counter[str] = field(default_factory=Counter)

    def job(self, cell: Cell, *, fresh: bool = False) -> Job:
        """The next call. fresh: it is made alone, in a process of its own."""
        self.number += 1
        known = self.signatures.setdefault(cell.subject.name, set())
        if cell.signature not in known:
            known.add(cell.signature)
            self.first.add(self.number)
        return Job(
            number=self.number,
            cell=cell.key,
            call=cell.call,
            requirements=cell.case.requirements(),
            limit=cell.reply_limit,
            signature=cell.signature,
            fresh=fresh,
        )


@dataclass(eq=False)
class WorkerRun:
    """
    What one worker was asked and has answered.

    ended: called when the last answer has its verdict. not_run: cells that were not called.
    """

    plan: WorkerPlan
    look: SecondLook
    controls: Controls
    calls: PlannedCalls
    writer: VerdictWriter
    ended: Callable[["WorkerRun"], None]
    not_run: list[Key] = field(default_factory=list)
    _asked: dict[int, Cell | Question] = field(default_factory=dict)

    def ordinary(self, cells: Iterable[Cell]) -> Iterator[Job]:
        """The calls of the cases, each made when it is taken."""
        for cell in cells:
            self.look.waiting += 1
            yield self._job(cell, cell)
        self.look.exhausted = True

    def answered(self, job: Job, outcome: Outcome) -> list[Job]:
        """Take what a call came to; the calls that follow from it."""
        self.look.waiting -= 1
        asked = self._asked.pop(job.number)
        if isinstance(asked, Question):
            asked.take(outcome)
        else:
            self._hear(job, asked, outcome)
        return self.next_jobs()

    def next_jobs(self) -> list[Job]:
        """When every call is answered: the next questions, or none, and then every cell has its verdict."""
        if self.look.waiting or not self.look.exhausted:
            return []
        if questions := self.controls.next_questions() or self._further_look():
            self.look.waiting = len(questions)
            self.calls.further.update(question.purpose for question in questions)
            return [self._job(question.cell, question, fresh=question.fresh) for question in questions]
        self.settle()
        self.ended(self)
        return []

    def settle(self) -> None:
        """Write what waits for the second look, with what it found so far."""
        while self.look.pending:
            self.writer.settle(self.look.pending.pop(0))

    def give_up_refused(self) -> None:
        """Refused calls whose valid twins were not made count as not run."""
        self.not_run += [refused.cell.key for refused in self.controls.take_refused()]

    def keep_only_red(self) -> None:
        """Forget what conforms so far: a resumed run asks it again, and looks at it again."""
        self.look.pending = [pending for pending in self.look.pending if pending.red]

    def _job(self, cell: Cell, asked: Cell | Question, *, fresh: bool = False) -> Job:
        job = self.calls.job(cell, fresh=fresh)
        self._asked[job.number] = asked
        return job

    def _hear(self, job: Job, cell: Cell, outcome: Outcome) -> None:
        """Judge what came back; a refused call waits for its twin."""
        if outcome.status == "not_run":
            self.not_run.append(cell.key)
            return
        self.controls.hear(cell, outcome)
        if is_refused(cell, outcome):
            self.controls.refused.append(RefusedCall(job.number, cell, outcome))
        else:
            self._judge(job.number, cell, outcome)

    def _judge(self, number: int, cell: Cell, outcome: Outcome, doubt: str = "") -> None:
        pending = self.writer.judged(cell, outcome, compiles=number in self.calls.first, doubt=doubt)
        if self.writer.waits(pending):
            self.look.pending.append(pending)
        else:
            self.writer.write_at_once(pending)

    def _further_look(self) -> list[Question]:
        """The next questions of the second look, which begins when refused calls have their verdicts."""
        for refused in self.controls.take_refused():
            self._judge(refused.number, refused.cell, refused.outcome, refused.doubt)
        return self.look.next_questions()
