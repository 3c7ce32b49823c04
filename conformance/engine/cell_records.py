"""From an outcome to the record of a judged cell in the log and in memory, and from a record back to evidence."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from conformance.bridge.tensor import Tensor
from conformance.diagnosis.evidence import Evidence
from conformance.diagnosis.explanation import Way, way_of
from conformance.disk import write_whole
from conformance.engine.cells import Cell, outputs_digest
from conformance.engine.diagnosing import OF_CHANGED_CALLS, SubjectDiagnosis
from conformance.engine.environments import Machine
from conformance.engine.job import Outcome, Started, StopRun
from conformance.engine.judging import Judge, Judged, judge_digest, judged_outcome, packed
from conformance.engine.logged_cell import (
    Failure,
    JudgedCell,
    LoggedCell,
    LoggedDeclaration,
    LoggedDeviation,
    LoggedExplanation,
    LoggedMask,
    LoggedOutput,
    Reviewed,
)
from conformance.engine.pending import Accepts, PendingCell, SecondLookResult
from conformance.engine.records import Key
from conformance.engine.runlog import Record, RunLog
from conformance.spec.materialise import materialise, problem_digest
from conformance.spec.rounding import to_tensor
from conformance.verdicts.compare import NON_REPRODUCIBLE
from conformance.verdicts.verdict import CONFORMING, GRAVITY


@dataclass
class Ledger:
    """
    The log of a run, and the records that were written to it.

    folder: the run folder. rerun: returns the command that reruns one cell. tensors: number of tensor files.
    cells: what is kept of cells, in the order of verdicts; `read` returns them whole. diagnoses: of subjects.
    """

    log: RunLog
    folder: Path
    rerun: Callable[[Key], str]
    tensors: int = 0
    cells: list[JudgedCell] = field(default_factory=list)
    diagnoses: list[Record] = field(default_factory=list)

    def write_cell(self, cell: LoggedCell, archive: bytes = b"") -> LoggedCell:
        """
        Log a cell, and return it with the name of its tensors and, unless it passed, the command that reruns it.

        archive: its tensors (npz), or nothing.
        """
        tensors = {"tensors": self._write_tensors(archive)} if archive else {}
        rerun = {"rerun": self.rerun(cell.key)} if cell.verdict != "pass" else {}
        whole = cell.model_copy(update={**tensors, **rerun})
        self.log.append(whole.record())
        self.cells.append(JudgedCell.of(whole, self.log.start))
        return whole

    def read(self, cells: Iterable[JudgedCell]) -> Iterator[LoggedCell]:
        """Some cells as they are in the log; each is read when it is taken."""
        return (self.read_cell(cell) for cell in cells)

    def read_cell(self, cell: JudgedCell) -> LoggedCell:
        """A cell as it is in the log."""
        return LoggedCell.model_validate(self.log.read(cell.start))

    def write_diagnosis(self, record: Record) -> None:
        """Log the diagnosis of a subject."""
        self.diagnoses.append(self.log.append(record))

    def _write_tensors(self, archive: bytes) -> str:
        """The name of the file in the folder."""
        self.tensors += 1
        name = f"tensors/{self.tensors:05d}.npz"
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, archive)
        return name


def recalled(cell: Cell, logged: LoggedCell, judge: Judge, folder: Path) -> Evidence | None:
    """
    The evidence in the record of a cell, or None if it says nothing about the numbers.

    folder: the run folder, which holds the reply of a failing cell.
    """
    conforms = logged.verdict in CONFORMING or logged.fail_class == OF_CHANGED_CALLS
    if (
        logged.known is not None
        or logged.fail_class in NON_REPRODUCIBLE
        or logged.declared is None
        or cell.case.mistake is not None
        or not (conforms or logged.verdict == "fail")
    ):
        return None
    declaration = logged.declared.declaration()
    evidence = Evidence(
        cell.case.id, cell.call.facts, cell.route.problem, judge.declared(cell, declaration), declaration.profile
    )
    if conforms:
        return evidence
    return evidence.failing(_reply(logged, folder), _recorded_ways(logged))


def _reply(logged: LoggedCell, folder: Path) -> dict[str, Tensor]:
    """The reply in its original dtypes."""
    with np.load(folder / logged.tensors) as arrays:
        return {each.output: to_tensor(arrays[f"{each.output}.actual"], each.dtype) for each in logged.outputs}


def _recorded_ways(logged: LoggedCell) -> tuple[Way, ...]:
    if logged.explanation is None:
        return ()
    ties = (key.rpartition("=") for key in logged.ties)
    said = logged.explanation
    return (way_of(said.decision, said.name), *(way_of(decision, name) for decision, _, name in ties))


def logged_cell(pending: PendingCell, found: SecondLookResult) -> LoggedCell:
    """
    The record of a cell, but for the name of its tensors and the command that reruns it.

    found: the verdict that counts, and what the second look found. Of a call that the adapter declined, the record has
    no declaration, no evidence and no digests.
    """
    cell, outcome, judged = pending.cell, pending.outcome, found.judged
    judgement, asked = judged.judgement, outcome.status != "unsupported"
    explanation = judged.explanation
    return LoggedCell(
        case=cell.case.id,
        subject=cell.subject.name,
        verdict=GRAVITY[GRAVITY.index(judged.verdict)],
        fail_class=judged.fail_class,
        budget=judgement.budget if judgement is not None else None,
        reason=judged.message,
        outputs=tuple(_outputs(judged)),
        explanation=(
            LoggedExplanation.model_validate(explanation, from_attributes=True) if explanation is not None else None
        ),
        ties=tuple(f"{tie.decision}={tie.name}" for tie in judgement.ties) if judgement is not None else (),
        route=tuple(LoggedMask(**mask) for mask in cell.route.record()),
        dropped_outputs=cell.dropped if asked else (),
        declared=_declared(cell, outcome) if asked else None,
        differs_from_canonical=judgement.differs if judgement is not None else None,
        mistake=cell.case.mistake if asked else None,
        searched=judgement is None or judgement.searched,
        uncalibrated=judgement is not None and judgement.uncalibrated,
        known=pending.reviewed.known,
        covered_by=pending.reviewed.covered_by,
        evidence=outcome.evidence if asked else {},
        seconds={**outcome.seconds, "judge": pending.seconds},
        compiles=pending.compiles,
        cached=outcome.cached,
        digests=_digests(cell, outcome) if asked else {},
        error=Failure.model_validate(outcome.error) if asked and outcome.error is not None else None,
        repeats=found.repeats,
        invariants=found.invariants,
        pattern=found.pattern,
    )


def _outputs(judged: Judged) -> Iterator[LoggedOutput]:
    """The comparison of each output."""
    for each in judged.judgement.outputs if judged.judgement is not None else ():
        dtype = judged.actual[each.output].dtype
        about = {"output": each.output, "verdict": each.verdict, "budget": each.budget, "message": each.message}
        yield LoggedOutput.model_validate({**about, "dtype": dtype, **each.numbers})


def _declared(cell: Cell, outcome: Outcome) -> LoggedDeclaration | None:
    """What was declared for a call: the adapter's dialect, the documented reading of verbatim masks, the profile."""
    declaration = outcome.declaration
    if declaration is None:
        return None
    where = f"SLOTS of {cell.subject.adapter.path.name}"
    taken = [(each.decision, each.name, each.source) for each in declaration.dialect]
    taken += [(decision, name, where) for decision, name in cell.route.dialect.items()]
    return LoggedDeclaration(
        profile=declaration.profile.record(),
        dialect=tuple(LoggedDeviation(decision=decision, name=name, source=source) for decision, name, source in taken),
        evidence=declaration.evidence,
    )


def _digests(cell: Cell, outcome: Outcome) -> dict[str, str]:
    digests = {
        "problem": problem_digest(materialise(cell.case)),
        "call": cell.digest,
        "adapter": cell.subject.adapter.digest,
        "judge": judge_digest(),
    }
    return digests | ({"outputs": outputs_digest(outcome.outputs)} if outcome.outputs else {})


# Called with a judged cell: what the list of known deviations says of it.
Review = Callable[[Judged], Reviewed]


def accepts_nothing(_: Judged) -> None:
    """Without a list of known deviations."""


@dataclass(frozen=True)
class RunListener:
    """
    What a session calls while it runs.

    cell: called with every cell. worker: called with every worker that is ready or given up. total: called once with
    the number of cells, before the first. search: called before the causes of a subject's failures are searched. stop:
    whether a rejected cell ends the run.
    """

    cell: Callable[[LoggedCell], None] = lambda _: None
    worker: Callable[[Started], None] = lambda _: None
    total: Callable[[int], None] = lambda _: None
    search: Callable[[str], None] = lambda _: None
    stop: bool = False


@dataclass
class VerdictWriter:
    """
    Judges outcomes and writes their records.

    review: what the gate says of a judged cell. accepts: what it would say of a changed call, which it does not count.
    subset: ids of cases that get a second look although they conform.
    """

    judge: Judge
    review: Review
    accepts: Accepts
    watch: RunListener
    ledger: Ledger
    diagnosing: SubjectDiagnosis
    subset: frozenset[str]
    _versions: dict[str, Mapping[str, str]] = field(default_factory=dict)
    _machines: dict[str, Machine] = field(default_factory=dict)

    def greet(self, started: Started) -> None:
        """Note the versions and the machine of a worker for the records of its subjects."""
        for name in started.plan.subjects:
            self._versions[name] = started.hello.get("versions", {})
            self._machines[name] = Machine.of(started.hello.get("evidence", {}))

    def judged(self, cell: Cell, outcome: Outcome, *, compiles: bool, doubt: str = "") -> PendingCell:
        """
        Judge what came back.

        compiles: it was the first call of its signature. doubt: why a refusal says nothing, if it does not.
        """
        started = time.thread_time()
        judged = judged_outcome(self.judge, cell, outcome, self._versions.get(cell.subject.name, {}), doubt)
        judged = replace(judged, machine=self._machines.get(cell.subject.name, judged.machine))
        reviewed = self.review(judged)
        judged = self.judge.explained(judged, reviewed.known)
        seconds = time.thread_time() - started
        return PendingCell(cell, outcome, judged, reviewed, materialise(cell.case), compiles, seconds)

    def waits(self, pending: PendingCell) -> bool:
        """Whether a cell gets a second look; one that ends the run does not."""
        if pending.red:
            return not self.watch.stop
        passing = pending.judged.verdict in CONFORMING
        return passing and pending.cell.subject.counted and pending.cell.case.id in self.subset

    def write_at_once(self, pending: PendingCell) -> None:
        """Write a cell that gets no second look."""
        found = SecondLookResult(pending.judged, pending.judged.arrays)
        self._diagnose(pending, found.judged)
        self.write(logged_cell(pending, found), packed(found.arrays))

    def settle(self, pending: PendingCell) -> None:
        """Write a cell with what its second look found."""
        started = time.thread_time()
        found = pending.settle(self.judge, self.accepts)
        pending.seconds += time.thread_time() - started
        for judged in (pending.judged, pending.changed):
            if judged is not None:
                self._diagnose(pending, judged)
        self.write(logged_cell(pending, found), packed(found.arrays))

    def _diagnose(self, pending: PendingCell, judged: Judged) -> None:
        """Keep a verdict for the diagnosis of its subject."""
        known = pending.reviewed.known is not None
        self.diagnosing.add(judged, known=known, non_reproducible=pending.is_non_reproducible)

    def write(self, cell: LoggedCell, archive: bytes = b"") -> None:
        """
        Write one record.

        Raises:
            StopRun: the run ends with this cell.
        """
        whole = self.ledger.write_cell(cell, archive)
        self.watch.cell(whole)
        if self.watch.stop and not whole.green:
            raise StopRun(whole.subject)
