"""The records of a run, in the log and in memory, and the evidence that is recalled from them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from conformance.bridge.messages import read_declaration
from conformance.bridge.tensor import Tensor
from conformance.diagnosis.evidence import Evidence
from conformance.diagnosis.explanation import Way, way_of
from conformance.disk import write_whole
from conformance.engine.cells import Cell
from conformance.engine.diagnosing import OF_CHANGED_CALLS
from conformance.engine.judging import Judge
from conformance.engine.records import JudgedCell
from conformance.engine.runlog import RunLog
from conformance.spec.rounding import to_tensor
from conformance.verdicts.repetition import CLASSES
from conformance.verdicts.verdict import CONFORMING

Key = tuple[str, str]
Record = dict[str, Any]


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
        or klass in CLASSES
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
