"""
The run log: a file of JSON lines that is only appended to (docs/run-log.md).

Each record is one write of one whole line, so a killed run leaves at most one truncated last line. Text is made
harmless here, both when it is written and when it is read, so that writers of reports need not check it. A process that
appends holds a lock on the file, so that a run has one owner.
"""

import datetime as dt
import errno
import fcntl
import json
import os
import platform
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, overload

from conformance.bridge.strict_json import plain_data, strict_json
from conformance.disk import remove_parts, write_whole
from conformance.spec import old_names
from conformance.spec.texts import harmless, quoted

# The name of the log in a run folder.
LOG = "run.jsonl"

# The name of the file that says which process has the log locked; it exists while that process runs.
OWNER = "owner.json"

SCHEMA = 2
# Schemas that can be read. In schema 1, the header contains all cases; it has no records of type "case".
READABLE = (1, SCHEMA)

# Maximum size of a record in bytes; the header of schema 1 contains the text of all its cases.
MAX_RECORD = 1 << 26

TYPES = ("header", "case", "worker", "cell", "diagnosis", "footer")
# The first bytes of every log, and of every case record.
BEGINNING = b'{"type": "header", "schema": '
CASE = b'{"type": "case", '

# Errors of file systems without locks.
UNLOCKABLE = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL})

# Every text that `harmless` would change has one of these in a line of JSON, or a byte beyond ASCII.
UNSAFE = (b"::", b"##", b"\x7f", b"\\u", b"\\r", b"\\b", b"\\f")

Record = dict[str, Any]


class RunLogError(Exception):
    """A file is not a valid run log, or cannot be continued; the text begins with file and line."""


class LoggedRecords(Sequence[Record]):
    """
    The records of a valid log. A record is read from its line when it is asked for, so memory does not grow with them.

    starts: for each record, the byte of the file at which its line begins.
    """

    def __init__(self, path: Path, starts: Sequence[int]) -> None:
        """Take the lines of a log that `read_lines` has checked."""
        self.path, self.starts = path, starts

    def __len__(self) -> int:
        """The number of records."""
        return len(self.starts)

    @overload
    def __getitem__(self, number: int) -> Record: ...

    @overload
    def __getitem__(self, number: slice) -> "LoggedRecords": ...

    def __getitem__(self, number: "int | slice") -> "Record | LoggedRecords":
        """One record; or some, which are not read yet."""
        if isinstance(number, slice):
            return LoggedRecords(self.path, self.starts[number])
        with self.path.open("rb") as file:
            return record_at(file.fileno(), self.starts[number])

    def __iter__(self) -> Iterator[Record]:
        """Each record, read when it is taken."""
        with self.path.open("rb") as file:
            for start in self.starts:
                yield record_at(file.fileno(), start)


@dataclass(frozen=True)
class Log:
    """
    The contents of a run log.

    length: the number of bytes of its whole lines; the rest of the file is a truncated line.
    """

    records: LoggedRecords
    length: int

    @property
    def complete(self) -> bool:
        """Whether the log ends with a footer, so that the run was not interrupted."""
        return bool(self.records) and bool(self.records[-1]["type"] == "footer")


class RunLog:
    """
    An open log; every record is in the file when `append` returns.

    footer: the footer that was appended last, or None. start: the byte at which the last appended line begins. locked:
    whether the log is locked. The lock (flock) is released when the process ends. On a file system without locks,
    `locked` is False and a second owner is possible.
    """

    def __init__(self, path: Path, file: int) -> None:
        """
        Lock an open log.

        Raises:
            RunLogError: another process has locked it; the text has its id, its machine and the time.
        """
        self.path, self._file = path, file
        self.footer: Record | None = None
        self.start = 0
        self.locked = _lock(path, file)
        try:
            remove_parts(path.parent)
            since = f"{dt.datetime.now(tz=dt.UTC):%Y-%m-%dT%H:%M:%SZ}"
            about = {"pid": os.getpid(), "host": platform.node(), "since": since}
            write_whole(path.with_name(OWNER), json.dumps(about) + "\n")
        except BaseException:
            self.close()
            raise

    @classmethod
    def create(cls, path: Path) -> Self:
        """
        Create a log in a new file.

        Raises:
            FileExistsError: the file exists.
        """
        return cls(path, os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o644))

    @classmethod
    def resume(cls, path: Path) -> tuple[Self, LoggedRecords]:
        """
        Continue the log of an interrupted run after its last whole line, and return the log and its records so far.

        There are no records if the run was interrupted before its header and its cases were written. The last record is
        the footer if the run was interrupted after writing it. The folder must exist.

        Raises:
            RunLogError: the file is not a run log of this schema, or another process has locked it.
        """
        log = cls(path, os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644))
        try:
            found = Log(LoggedRecords(path, ()), 0) if _is_unbegun(path) else read_log(path)
            os.ftruncate(log._file, found.length)
        except BaseException:
            log.close()
            raise
        return log, found.records

    @classmethod
    def hold(cls, path: Path) -> Self:
        """
        Lock an existing log while its reports are written.

        Raises:
            RunLogError: another process has locked it.
            OSError: the file cannot be opened.
        """
        return cls(path, os.open(path, os.O_RDWR | os.O_APPEND))

    def append(self, record: Mapping[str, Any]) -> Record:
        """
        Write one record and return it as it is in the log: with `schema`, and with harmless text.

        Raises:
            TypeError: the record contains something that is no JSON value.
            ValueError: the type of the record is unknown.
            OSError: the record cannot be written; no part of it stays in the file.
        """
        kind = record.get("type")
        if kind not in TYPES:
            raise ValueError(f"unknown record type {kind!r}, expected one of {', '.join(TYPES)}")
        about, text = _line(record)
        line = memoryview(text)
        before = os.fstat(self._file).st_size
        try:
            while line:
                line = line[os.write(self._file, line) :]
        except BaseException as error:
            os.ftruncate(self._file, before)
            if isinstance(error, OSError):
                raise OSError(error.errno, error.strerror, str(self.path)) from error
            raise
        self.footer = about if kind == "footer" else None
        self.start = before
        return about

    def read(self, start: int) -> Record:
        """The record whose line begins at a byte of the file."""
        return record_at(self._file, start)

    def close(self) -> None:
        """Close the log and release its lock; a second call does nothing."""
        if self._file >= 0:
            with suppress(OSError):
                self.path.with_name(OWNER).unlink(missing_ok=True)
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _lock(path: Path, file: int) -> bool:
    """
    Lock the open log; False if the file system has no locks. The file is closed if locking fails.

    Raises:
        RunLogError: another process has locked the log.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        raise RunLogError(
            f"{path}: the run is in use by {_owner(path)}: wait until it has ended, or end it; nothing was changed"
        ) from None
    except OSError as error:
        if error.errno in UNLOCKABLE:
            return False
        os.close(file)
        raise
    return True


def _owner(path: Path) -> str:
    """The process that has locked a log, in words."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        about = json.loads(path.with_name(OWNER).read_bytes())
        return str(harmless(f"process {about['pid']} on {about['host']} since {about['since']}"))
    return f"a process that has not written {OWNER} yet"


def _is_unbegun(path: Path) -> bool:
    """Whether a run was interrupted before its header and all of its case records were complete."""
    with path.open("rb") as file:
        first = file.readline(MAX_RECORD + 1)
        if not first.endswith(b"\n"):
            return len(first) <= MAX_RECORD and (first.startswith(BEGINNING) or BEGINNING.startswith(first))
        try:
            expected = case_count(strict_json(first))
        except ValueError:
            return False  # the reader says what is wrong
        whole = 0
        while (line := file.readline(MAX_RECORD + 1)).endswith(b"\n"):
            if whole == expected or not line.startswith(CASE):
                return False
            whole += 1
    return whole < expected and len(line) <= MAX_RECORD


def case_count(header: Any) -> int:
    """
    The number of case records that follow a header; 0 if it contains the cases, as in schema 1.

    Raises:
        ValueError: the number is not one.
    """
    number = header.get("case_records", 0) if isinstance(header, dict) else 0
    if type(number) is not int or number < 0:
        raise ValueError(f"case_records is {quoted(number)}, expected a number of records")
    return number


def logged_cases(records: Sequence[Mapping[str, Any]]) -> Mapping[str, Mapping[str, Any]]:
    """The cases of a valid log by id, whatever its schema."""
    header = records[0]
    if "cases" in header:
        cases: Mapping[str, Mapping[str, Any]] = header["cases"]
        return cases
    return {record["case"]: record for record in records[1 : 1 + case_count(header)]}


def _line(record: Mapping[str, Any]) -> tuple[Record, bytes]:
    """
    A record as it is in a log, and its line.

    Raises:
        TypeError: the record contains something that is no JSON value.
    """
    about = plain_data({"type": record["type"], "schema": SCHEMA, **record})
    line = _encoded(about)
    if _may_be_unsafe(line):
        about = harmless(about)
        line = _encoded(about)
    return about, line


def _encoded(about: Record) -> bytes:
    return f"{json.dumps(about, allow_nan=False)}\n".encode()


def as_logged(record: Mapping[str, Any]) -> Record:
    """
    A record as it is read from a log: with `schema`, with harmless text and without old names.

    Raises:
        TypeError: the record contains something that is no JSON value.
    """
    return _as_read(*_line(record))


def _as_read(record: Record, line: bytes) -> Record:
    """A record of a log with harmless text, and with new names for old ones. line: its line in the log."""
    record = harmless(record) if _may_be_unsafe(line) else record
    return old_names.current_record(record) if old_names.may_be_in(line) else record


def _may_be_unsafe(line: bytes) -> bool:
    """Whether `harmless` may change a text of a line of JSON; much faster than a search for a pattern."""
    return not line.isascii() or any(text in line for text in UNSAFE)


def read_log(path: Path) -> Log:
    """
    Check a log; a truncated last line is ignored.

    Raises:
        RunLogError: the log has no header, another schema, or a line that is not a record.
        OSError: the file cannot be read.
    """
    starts = array("Q")
    lines = read_lines(path)
    while (line := next(lines, None)) is not None:
        starts.append(line.start)
        length = line.end
    return Log(LoggedRecords(path, starts), length)


@dataclass(frozen=True, slots=True)
class Line:
    """A record of a log; its line begins at the byte `start` and ends before the byte `end`."""

    record: Record
    start: int
    end: int


def read_lines(path: Path) -> Iterator[Line]:
    """
    Read and check the records of a log one after the other; a truncated last line is ignored.

    Raises:
        RunLogError: the log has no header, another schema, or a line that is not a record.
        OSError: the file cannot be read.
    """
    number = end = cases = 0
    with path.open("rb") as file:
        while (line := file.readline(MAX_RECORD + 1)).endswith(b"\n"):
            number += 1
            start, end = end, end + len(line)
            where = f"{path}:{number}"
            record = _record(where, line, first=number == 1)
            if number == 1:
                cases = _case_count(where, record)
            elif (record["type"] == "case") is not (number <= cases + 1):
                raise RunLogError(f"{where}: {_misplaced(record['type'], number - 1, cases)}")
            yield Line(record, start, end)
    if len(line) > MAX_RECORD:
        raise RunLogError(f"{path}:{number + 1}: the line has more than {MAX_RECORD} bytes, the maximum of a record")
    if not number:
        raise RunLogError(f"{path}:1: no header: the run was interrupted before it began, or this is not a run log")
    if number <= cases:
        there = f"{number - 1} of {cases} case records are there"
        raise RunLogError(f"{path}:{number + 1}: the run was interrupted before it began: {there}")


def _case_count(where: str, header: Record) -> int:
    try:
        return case_count(header)
    except ValueError as error:
        raise RunLogError(f"{where}: {error}") from None


def _misplaced(kind: str, number: int, cases: int) -> str:
    """What is wrong with a record, counted from 1 after the header, that should be a case record or should not."""
    if kind == "case":
        return f"a case record too many: the header announces {cases}, which must follow it"
    return f"a record of type {quoted(kind)}; expected case record {number} of the {cases} that the header announces"


# Number of bytes that are read at once from a line of unknown length.
BLOCK = 1 << 13


def record_at(file: int, start: int) -> Record:
    """
    Read a record again that this process has written or checked.

    file: the number of an open log. start: the byte at which the line begins.

    Raises:
        RunLogError: there is no whole line any more: something else has changed the file.
    """
    blocks: list[bytes] = []
    at, end = start, b""
    while not end:
        block = os.pread(file, BLOCK, at)
        if not block:
            raise RunLogError(f"the run log was cut off after byte {start} while it was read")
        text, end, _ = block.partition(b"\n")
        blocks.append(text)
        at += len(block)
    line = b"".join(blocks)
    try:
        record: Record = json.loads(line)
    except ValueError as error:
        raise RunLogError(f"the run log was changed at byte {start} while it was read: {error}") from None
    return _as_read(record, line)


def _record(where: str, line: bytes, *, first: bool) -> Record:
    try:
        record = strict_json(line)
    except ValueError as error:
        raise RunLogError(f"{where}: {error}") from None
    if not isinstance(record, dict) or record.get("type") not in TYPES:
        found = record.get("type") if isinstance(record, dict) else record
        raise RunLogError(f"{where}: not a record of a run log: {quoted(found)}")
    if record.get("schema") not in READABLE:
        known = " and ".join(map(str, READABLE))
        raise RunLogError(f"{where}: schema {record.get('schema')!r}; this version reads the schemas {known}")
    if (record["type"] == "header") is not first:
        raise RunLogError(f"{where}: the header must be the first line of a run log, and no other")
    try:
        return _as_read(record, line)
    except (ValueError, RecursionError):
        raise RunLogError(f"{where}: the record is nested too deeply") from None
