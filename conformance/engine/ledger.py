"""What a run has found so far: its records, in the log and in memory, and the tensors of its cells."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance.disk import write_whole
from conformance.engine.runlog import RunLog

Key = tuple[str, str]
Record = dict[str, Any]


@dataclass
class Ledger:
    """
    The log of a run with what was written into it.

    folder: of the run. rerun: makes the command that reruns one cell. tensors: how many files of tensors there are.
    cells: the records of cells in the order of verdicts. diagnoses: the records of subjects.
    """

    log: RunLog
    folder: Path
    rerun: Callable[[Key], str]
    tensors: int = 0
    cells: list[Record] = field(default_factory=list)
    diagnoses: list[Record] = field(default_factory=list)

    def write_cell(self, key: Key, about: Mapping[str, Any], archive: bytes = b"") -> Record:
        """
        Log a cell; the record as it was logged.

        key: case id and subject name. archive: its tensors, if it has any (npz).
        """
        record: Record = {"type": "cell", "case": key[0], "subject": key[1], **about}
        if archive:
            record["tensors"] = self._write_tensors(archive)
        if record["verdict"] != "pass":
            record["rerun"] = self.rerun(key)
        record = self.log.append(record)
        self.cells.append(record)
        return record

    def write_diagnosis(self, record: Mapping[str, Any]) -> None:
        """Log what explains the failures of a subject."""
        self.diagnoses.append(self.log.append(record))

    def of(self, subjects: Collection[str]) -> tuple[list[Record], list[Record]]:
        """The cells and the diagnoses of some subjects."""
        cells = [record for record in self.cells if record["subject"] in subjects]
        return cells, [record for record in self.diagnoses if record["subject"] in subjects]

    def _write_tensors(self, archive: bytes) -> str:
        """The name of the file in the folder."""
        self.tensors += 1
        name = f"tensors/{self.tensors:05d}.npz"
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, archive)
        return name
