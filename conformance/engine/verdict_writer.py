"""From an outcome to a record of the run log: judged, reviewed, kept as evidence, written."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from conformance.engine.cells import Cell
from conformance.engine.diagnosing import SubjectDiagnosis
from conformance.engine.environments import Machine
from conformance.engine.job import Outcome, RunListener, Started, StopRun
from conformance.engine.judging import Judge, Judged, judged_outcome, judgement_record, outcome_record, packed
from conformance.engine.ledger import Ledger
from conformance.engine.pending import Accepts, PendingCell
from conformance.spec.materialise import materialise
from conformance.spec.problem_digest import problem_digest
from conformance.verdicts.verdict import CONFORMING, is_green

Key = tuple[str, str]
# Told of a judged cell; what it returns is added to the record (`known`, `covered_by`).
Review = Callable[[Judged], Mapping[str, Any]]


def accepts_nothing(_: Judged) -> Mapping[str, Any]:
    """Without a list of known deviations."""
    return {}


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
        judged = self.judge.explained(judged, reviewed.get("known"))
        about = outcome_record(cell, outcome, problem_digest(materialise(cell.case)))
        record = about | {"verdict": judged.verdict} | judgement_record(judged)
        if judged.message:
            record["reason"] = judged.message
        record |= reviewed
        record["seconds"] = {**outcome.seconds, "judge": time.thread_time() - started}
        record["compiles"] = compiles
        if outcome.cached:
            record["cached"] = True
        return PendingCell(cell, outcome, judged, record, materialise(cell.case), not is_green(record))

    def waits(self, pending: PendingCell) -> bool:
        """Whether a cell gets a second look; one that ends the run does not."""
        if pending.red:
            return not self.watch.stop(pending.record)
        passing = pending.judged.verdict in CONFORMING
        return passing and pending.cell.subject.counted and pending.cell.case.id in self.subset

    def write_at_once(self, pending: PendingCell) -> None:
        """Write a cell that gets no second look."""
        self.diagnosing.add(pending.judged, pending.record)
        self.write(pending.cell.key, pending.record, packed(pending.judged.arrays))

    def settle(self, pending: PendingCell) -> None:
        """Write a cell with what its second look found."""
        started = time.thread_time()
        record, arrays = pending.settle(self.judge, self.accepts)
        record["seconds"]["judge"] += time.thread_time() - started
        for judged in (pending.judged, pending.changed):
            if judged is not None:
                self.diagnosing.add(judged, record, non_reproducible=pending.is_non_reproducible)
        self.write(pending.cell.key, record, packed(arrays))

    def write(self, key: Key, about: Mapping[str, Any], archive: bytes = b"") -> None:
        """
        Write one record.

        Raises:
            StopRun: the run ends with this cell.
        """
        record = self.ledger.write_cell(key, about, archive)
        self.watch.cell(record)
        if self.watch.stop(record):
            raise StopRun(key[1])
