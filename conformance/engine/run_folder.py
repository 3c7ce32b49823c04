"""
Reads a run folder.

Only a valid log is accepted: a truncated line or an unknown schema, record type or verdict is an error, with file and
line. The footer may be absent or followed by other records: then the run was interrupted, is loaded as incomplete and
is never green. If two processes wrote a log at the same time, which earlier releases allowed, cells can appear twice:
the worse verdict counts, and `repeated` lists them.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from conformance.engine.records import (
    Footer,
    Header,
    Key,
    LoggedCase,
    LoggedCell,
    LoggedDiagnosis,
    LoggedSubject,
    Worker,
)
from conformance.engine.runlog import LOG, Record, RunLogError, read_log
from conformance.spec.model_faults import faults
from conformance.spec.texts import quoted
from conformance.verdicts.verdict import graver, is_green

AnyRecord = TypeVar("AnyRecord", bound=BaseModel)


@dataclass(frozen=True)
class Run:
    """The contents of a run folder; `footer` is None if the run was interrupted."""

    folder: Path
    header: Header
    workers: tuple[Worker, ...]
    cells: Mapping[Key, LoggedCell]
    footer: Footer | None
    diagnoses: Mapping[str, LoggedDiagnosis] = field(default_factory=dict)
    repeated: frozenset[Key] = frozenset()

    @property
    def complete(self) -> bool:
        """Whether the log has a footer that says that nothing is missing."""
        return self.footer is not None and self.footer.complete

    @property
    def conforms(self) -> bool:
        """Whether the gate accepted the run; False for a run without a footer."""
        return self.footer is not None and self.footer.gate.conforms and not self.rejected

    @cached_property
    def rejected(self) -> frozenset[Key]:
        """The cells that the gate rejects; for an interrupted run, those that are not green."""
        red = frozenset(key for key, cell in self.cells.items() if not is_green(cell.record))
        return red if self.footer is None else self.footer.gate.rejected | (red & self.repeated)

    def cases_of(self, subject: LoggedSubject) -> tuple[LoggedCase, ...]:
        """The cases of the subject's operators, in the order of the header."""
        return tuple(case for case in self.header.cases.values() if case.operator in subject.operators)

    @cached_property
    def missing(self) -> frozenset[Key]:
        """Cells of counted subjects that are expected and not in the log."""
        expected = (
            (case.name, subject.name)
            for subject in self.header.subjects.values()
            if subject.counted and subject.offered
            for case in self.cases_of(subject)
        )
        return frozenset(key for key in expected if key not in self.cells)


def log_of(folder: Path) -> Path:
    """
    The log of a run folder.

    Raises:
        RunLogError: the folder has no log.
    """
    path = folder / LOG
    if not path.is_file():
        raise RunLogError(f"{path}: there is no run log here; expected a folder that `conformance run` wrote")
    return path


def load_run(folder: Path, *, whole: bool = True) -> Run:
    """
    Read the log of a run folder.

    whole: reject a truncated last line; otherwise it is ignored.

    Raises:
        RunLogError: there is no log, or it is not valid.
    """
    path = log_of(folder)
    log = read_log(path)
    if whole and log.length < path.stat().st_size:
        where = f"{path}:{len(log.records) + 1}"
        raise RunLogError(
            f"{where}: the line is truncated: the run was interrupted while it was written; resume the run"
        )
    records = ((f"{path}:{line}", record) for line, record in enumerate(log.records, start=1))
    return _assemble(folder, _read(Header, *next(records)), records)


def _assemble(folder: Path, header: Header, records: Iterator[tuple[str, Record]]) -> Run:
    workers: list[Worker] = []
    cells: dict[Key, LoggedCell] = {}
    diagnoses: dict[str, LoggedDiagnosis] = {}
    named: list[tuple[str, str, Key]] = []
    repeated: set[Key] = set()
    footer: Footer | None = None
    for where, record in records:
        footer = None  # a footer that is followed by something was not the end
        match record["type"]:
            case "worker":
                workers.append(_read(Worker, where, record))
            case "cell":
                cell = _named(_read(LoggedCell, where, {**record, "record": record}), header, where)
                if cell.key in cells:
                    repeated.add(cell.key)
                if cell.key not in cells or graver(cells[cell.key].record, record):
                    cells[cell.key] = cell
            case "diagnosis":
                diagnosis = _read(LoggedDiagnosis, where, record)
                diagnoses[diagnosis.subject] = diagnosis
                named += [(where, "diagnosis", (case, diagnosis.subject)) for case in _described(diagnosis)]
            case _:
                footer = _read(Footer, where, record)
                named += [(where, "footer", key) for key in sorted(footer.gate.rejected)]
    for where, what, (case, subject) in named:
        if (case, subject) not in cells:
            raise RunLogError(
                f"{where}: the {what} names {quoted(case)} on {quoted(subject)}, which has no verdict in this log"
            )
    return Run(folder, header, tuple(workers), cells, footer, diagnoses, frozenset(repeated))


def _described(diagnosis: LoggedDiagnosis) -> Iterator[str]:
    """The ids of all cases that a diagnosis names."""
    yield from diagnosis.unexplained
    yield from (case for cause in diagnosis.causes for case in cause.cells)
    yield from (case for lost in diagnosis.errors for case in lost.cells)


def graver_cells(records: Iterable[Record]) -> tuple[dict[Key, Record], int]:
    """Cells by key, with the graver record of cells that appear twice, and the number of such cells."""
    found: dict[Key, Record] = {}
    repeated = set()
    for record in records:
        if record["type"] != "cell":
            continue
        key = (record["case"], record["subject"])
        if key in found:
            repeated.add(key)
        if key not in found or graver(found[key], record):
            found[key] = record
    return found, len(repeated)


def _named(cell: LoggedCell, header: Header, where: str) -> LoggedCell:
    if cell.case not in header.cases:
        raise RunLogError(f"{where}: the header does not name the case {quoted(cell.case)}")
    if cell.subject not in header.subjects:
        raise RunLogError(f"{where}: the header does not name the subject {quoted(cell.subject)}")
    return cell


def _read(kind: type[AnyRecord], where: str, record: Record) -> AnyRecord:
    try:
        return kind.model_validate(record)
    except ValidationError as error:
        fault = faults(error, record, lambda _: ())[0]
        at = f" (at {'.'.join(map(str, fault.path))})" if len(fault.path) > 1 else ""
        raise RunLogError(f"{where}: {fault.message}{at}") from None
