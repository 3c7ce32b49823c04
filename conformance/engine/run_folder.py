"""
Reads a run folder.

Only a valid log is accepted: a truncated line or an unknown schema, record type or verdict is an error, with file and
line. The footer may be absent or followed by other records: then the run was interrupted, is loaded as incomplete and
is never green. If two processes wrote a log at the same time, which earlier releases allowed, cells can appear twice:
the worse verdict counts, and `repeated` lists them.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import islice
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from conformance.engine.logged_cell import JudgedCell, LoggedCell
from conformance.engine.records import Footer, Header, Key, LoggedCase, LoggedDiagnosis, LoggedSubject, Worker
from conformance.engine.runlog import LOG, Line, LoggedRecords, Record, RunLogError, read_lines, record_at
from conformance.spec.model_faults import faults
from conformance.spec.texts import quoted

Valid = TypeVar("Valid")
AnyKey = TypeVar("AnyKey")


# Maximum number of cases that are kept once they are read. In a run with more, memory does not grow with their texts.
MAX_KEPT = 1_500


class _Logged(Mapping[AnyKey, Valid]):
    """Entries of a log by key, in the order of the log; an entry is read when it is asked for."""

    def __init__(self, path: Path, places: Mapping[AnyKey, object]) -> None:
        """Take entries of a log that was checked. places: their keys, each with what tells where its line begins."""
        self._path, self._places = path, places

    def __len__(self) -> int:
        """The number of entries."""
        return len(self._places)

    def __iter__(self) -> Iterator[AnyKey]:
        """Keys in the order of the log."""
        return iter(self._places)

    def __contains__(self, key: object) -> bool:
        """Whether there is an entry; nothing is read."""
        return key in self._places

    def _record_at(self, start: int) -> Record:
        with self._path.open("rb") as file:
            return record_at(file.fileno(), start)


class LoggedCases(_Logged[str, LoggedCase]):
    """
    The cases of a run by id.

    operators: of each case; nothing is read for them.
    """

    def __init__(self, path: Path, starts: Mapping[str, int], operators: Mapping[str, str]) -> None:
        """Take the cases of a log that was checked. starts: for each, the byte at which its line begins."""
        super().__init__(path, starts)
        self._starts, self.operators = starts, operators
        self._read = lru_cache(MAX_KEPT)(self._read_now)

    def __getitem__(self, name: str) -> LoggedCase:
        """
        Read one case.

        Raises:
            KeyError: there is none.
            RunLogError: the log has changed.
        """
        return self._read(name)

    def _read_now(self, name: str) -> LoggedCase:
        return LoggedCase.of(self._record_at(self._starts[name]))


class LoggedCells(_Logged[Key, LoggedCell]):
    """The cells of a run by key."""

    def __init__(self, folder: Path, judged: Mapping[Key, JudgedCell]) -> None:
        """Take the cells of a log that was checked. judged: where their lines begin."""
        super().__init__(folder / LOG, judged)
        self._judged = judged

    def __getitem__(self, key: Key) -> LoggedCell:
        """
        Read one cell.

        Raises:
            KeyError: there is none.
            RunLogError: the log has changed.
        """
        return LoggedCell.model_validate(self.record(key))

    def record(self, key: Key) -> Record:
        """
        The unchanged record of a cell.

        Raises:
            KeyError: there is none.
            RunLogError: the log has changed.
        """
        return self._record_at(self._judged[key].start)


@dataclass(frozen=True, eq=False)
class Run:
    """
    The contents of a run folder; `footer` is None if the run was interrupted.

    judged: what is kept of each cell. Everything else about a cell is read from the log again, by `cells`.
    """

    folder: Path
    header: Header
    workers: tuple[Worker, ...]
    judged: Mapping[Key, JudgedCell]
    footer: Footer | None
    diagnoses: Mapping[str, LoggedDiagnosis] = field(default_factory=dict)
    repeated: frozenset[Key] = frozenset()

    @property
    def cells(self) -> LoggedCells:
        """The whole cells. Whoever needs only what `judged` has does not read the log for it."""
        return LoggedCells(self.folder, self.judged)

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
        red = frozenset(key for key, cell in self.judged.items() if not cell.green)
        return red if self.footer is None else self.footer.gate.rejected | (red & self.repeated)

    @cached_property
    def _operators(self) -> Mapping[str, str]:
        """The operator of each case."""
        cases = self.header.cases
        if isinstance(cases, LoggedCases):
            return cases.operators
        return {name: case.operator for name, case in cases.items()}

    def cases_of(self, subject: LoggedSubject) -> tuple[str, ...]:
        """The ids of the cases of the subject's operators, in the order of the log."""
        return tuple(name for name, operator in self._operators.items() if operator in subject.operators)

    @cached_property
    def missing(self) -> frozenset[Key]:
        """Cells of counted subjects that are expected and not in the log."""
        expected = (
            (case, subject.name)
            for subject in self.header.subjects.values()
            if subject.counted and subject.offered
            for case in self.cases_of(subject)
        )
        return frozenset(key for key in expected if key not in self.judged)


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
    lines = _whole_lines(path) if whole else read_lines(path)
    numbered = ((f"{path}:{number}", line) for number, line in enumerate(lines, start=1))
    return _assemble(folder, _first(path, numbered), numbered)


def _first(path: Path, lines: Iterator[tuple[str, Line]]) -> Header:
    """
    The header of a run, with its cases.

    Raises:
        RunLogError: one of these records is not valid, or a case appears twice.
    """
    where, line = next(lines)
    header = _read(Header.model_validate, where, line.record)
    if header.case_records is None:
        if "cases" not in line.record:
            raise RunLogError(f"{where}: 'case_records' is required here")
        return header
    starts: dict[str, int] = {}
    operators: dict[str, str] = {}
    for where, line in islice(lines, header.case_records):
        case = _read(LoggedCase.of, where, line.record)
        if not case.name or case.name in starts:
            fault = f"a second record of the case {quoted(case.name)}" if case.name else "the record names no case"
            raise RunLogError(f"{where}: {fault}")
        starts[case.name], operators[case.name] = line.start, case.operator
    return header.model_copy(update={"cases": LoggedCases(path, starts, operators)})


def _whole_lines(path: Path) -> Iterator[Line]:
    """
    The lines of a log.

    Raises:
        RunLogError: the last line is truncated.
    """
    number = end = 0
    for line in read_lines(path):
        number, end = number + 1, line.end
        yield line
    if end < path.stat().st_size:
        raise RunLogError(
            f"{path}:{number + 1}: the line is truncated: the run was interrupted while it was written; resume the run"
        )


def _assemble(folder: Path, header: Header, lines: Iterator[tuple[str, Line]]) -> Run:
    workers: list[Worker] = []
    cells: dict[Key, JudgedCell] = {}
    diagnoses: dict[str, LoggedDiagnosis] = {}
    named: list[tuple[str, str, Key]] = []
    repeated: set[Key] = set()
    footer: Footer | None = None
    for where, line in lines:
        record = line.record
        footer = None  # a footer that is followed by something was not the end
        match record["type"]:
            case "worker":
                workers.append(_read(Worker.model_validate, where, record))
            case "cell":
                cell = JudgedCell.of(_read(LoggedCell.model_validate, where, record), line.start)
                _check_names(cell, header, where)
                if not _keep_graver(cells, cell):
                    repeated.add(cell.key)
            case "diagnosis":
                diagnosis = _read(LoggedDiagnosis.model_validate, where, record)
                diagnoses[diagnosis.subject] = diagnosis
                named += [(where, "diagnosis", (case, diagnosis.subject)) for case in _described(diagnosis)]
            case _:
                footer = _read(Footer.model_validate, where, record)
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


def graver_cells(records: LoggedRecords) -> tuple[dict[Key, JudgedCell], int]:
    """
    Cells by key, with the graver record of cells that appear twice, and the number of such cells.

    Raises:
        RunLogError: the record of a cell is not valid.
    """
    found: dict[Key, JudgedCell] = {}
    repeated = set()
    for start, record in zip(records.starts, records, strict=True):
        if record["type"] == "cell":
            cell = JudgedCell.of(_read(LoggedCell.model_validate, f"{records.path}, byte {start}", record), start)
            if not _keep_graver(found, cell):
                repeated.add(cell.key)
    return found, len(repeated)


def _keep_graver(cells: dict[Key, JudgedCell], cell: JudgedCell) -> bool:
    """Add a cell, or let it replace a milder record of the same cell; return whether it is the first one."""
    before = cells.get(cell.key)
    if before is None or cell.is_graver(before):
        cells[cell.key] = cell
    return before is None


def _check_names(cell: JudgedCell, header: Header, where: str) -> None:
    if cell.case not in header.cases:
        raise RunLogError(f"{where}: the log has no case {quoted(cell.case)}")
    if cell.subject not in header.subjects:
        raise RunLogError(f"{where}: the header does not name the subject {quoted(cell.subject)}")


def _read(read: Callable[[Record], Valid], where: str, record: Record) -> Valid:
    try:
        return read(record)
    except ValidationError as error:
        fault = faults(error, record, lambda _: ())[0]
        at = f" (at {'.'.join(map(str, fault.path))})" if len(fault.path) > 1 else ""
        raise RunLogError(f"{where}: {fault.message}{at}") from None
