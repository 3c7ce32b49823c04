"""The records of judged cells: from an outcome to a record in the log and in memory, and back to evidence."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from conformance.bridge.messages import read_declaration
from conformance.bridge.tensor import Tensor
from conformance.diagnosis.evidence import Evidence
from conformance.diagnosis.explanation import Way, way_of
from conformance.disk import write_whole
from conformance.engine.cells import Cell
from conformance.engine.diagnosing import OF_CHANGED_CALLS, SubjectDiagnosis
from conformance.engine.environments import Machine
from conformance.engine.job import Outcome, RunListener, Started, StopRun
from conformance.engine.judging import Judge, Judged, judged_outcome, judgement_record, outcome_record, packed
from conformance.engine.pending import Accepts, PendingCell
from conformance.engine.records import JudgedCell, Key
from conformance.engine.runlog import Record, RunLog
from conformance.spec.materialise import materialise, problem_digest
from conformance.spec.rounding import to_tensor
from conformance.verdicts.compare import NON_REPRODUCIBLE
from conformance.verdicts.verdict import CONFORMING, is_green


@dataclass
class Ledger:
    """
    The log of a run, and the records that were written to it.

    folder: the run folder. rerun: returns the command that reruns one cell. tensors: number of tensor files.
    cells: what is kept of cells, in the order of verdicts; `read` returns whole records. diagnoses: of subjects.
    """

    log: RunLog
    folder: Path
    rerun: Callable[[Key], str]
    tensors: int = 0
    cells: list[JudgedCell] = field(default_factory=list)
    diagnoses: list[Record] = field(default_factory=list)

    def write_cell(self, key: Key, about: Mapping[str, Any], archive: bytes = b"") -> Record:
        """
        Log a cell, and return the record as it was logged.

        key: case id and subject name. archive: its tensors (npz), or nothing.
        """
        record: Record = {"type": "cell", "case": key[0], "subject": key[1], **about}
        if archive:
            record["tensors"] = self._write_tensors(archive)
        if record["verdict"] != "pass":
            record["rerun"] = self.rerun(key)
        record = self.log.append(record)
        self.cells.append(JudgedCell.of(record, self.log.start))
        return record

    def read(self, cells: Iterable[JudgedCell]) -> Iterator[Record]:
        """The whole records of some cells, each read from the log when it is taken."""
        return (self.log.read(cell.start) for cell in cells)

    def write_diagnosis(self, record: Mapping[str, Any]) -> None:
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


def recalled(cell: Cell, record: Mapping[str, Any], judge: Judge, folder: Path) -> Evidence | None:
    """
    The evidence in the record of a cell, or None if it says nothing about the numbers.

    folder: the run folder, which holds the reply of a failing cell.
    """
    klass = record.get("class")
    conforms = record["verdict"] in CONFORMING or klass == OF_CHANGED_CALLS
    if (
        "known" in record
        or klass in NON_REPRODUCIBLE
        or cell.case.mistake is not None
        or not (conforms or record["verdict"] == "fail")
    ):
        return None
    declaration = read_declaration(record["declared"])
    evidence = Evidence(
        cell.case.id, cell.call.facts, cell.route.problem, judge.declared(cell, declaration), declaration.profile
    )
    if conforms:
        return evidence
    return evidence.failing(_reply(record, folder), _recorded_ways(record))


def _reply(record: Mapping[str, Any], folder: Path) -> dict[str, Tensor]:
    """The reply in its original dtypes."""
    with np.load(folder / record["tensors"]) as arrays:
        return {
            each["output"]: to_tensor(arrays[f"{each['output']}.actual"], each["dtype"]) for each in record["outputs"]
        }


def _recorded_ways(record: Mapping[str, Any]) -> tuple[Way, ...]:
    if "explanation" not in record:
        return ()
    said = record["explanation"]
    ties = (key.rpartition("=") for key in record["ties"])
    return (way_of(said["decision"], said["name"]), *(way_of(decision, name) for decision, _, name in ties))


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
