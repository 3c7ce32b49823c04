"""
The run log: JSON lines that are only ever appended (docs/run-log.md).

A record is one write of one whole line, so that a run that is killed leaves at most one truncated last line. Text is
made harmless here, where it enters the log and where it leaves it: writers of reports need not look at it. Whoever
appends holds a lock on the file, so that a run has one owner.
"""

import datetime as dt
import errno
import fcntl
import json
import os
import platform
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from conformance.bridge.strict_json import plain_data, strict_json
from conformance.disk import remove_parts, write_whole
from conformance.spec.texts import harmless, quoted

# Its name in a run folder.
LOG = "run.jsonl"

# Who holds the log: a file beside it, there while the run lives.
OWNER = "owner.json"

SCHEMA = 1
# The largest record in bytes; the header of a run has the text of all its cases.
LONGEST = 1 << 26

TYPES = ("header", "worker", "cell", "diagnosis", "footer")
# How every log begins.
BEGINNING = b'{"type": "header", "schema": 1, '

# Errors of file systems that have no locks.
UNLOCKABLE = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL})

# A line of JSON without any of these has no text that `harmless` would change.
SUSPECT = re.compile(rb"\\[urbf]|::|##|[\x7f-\xff]")

Record = dict[str, Any]


class RunLogError(Exception):
    """A file that is no run log of ours, or one that cannot be continued; the text begins with file and line."""


@dataclass(frozen=True)
class Log:
    """
    What a run log says.

    length: of its whole lines in bytes; what follows was cut. complete: whether it ends with a footer.
    """

    records: tuple[Record, ...]
    length: int

    @property
    def complete(self) -> bool:
        """Whether the run came to its end."""
        return bool(self.records) and bool(self.records[-1]["type"] == "footer")


class RunLog:
    """
    An open log; every record is in the file when `append` returns.

    footer: the one that was appended, None as long as there is none. The lock is the system's (flock) and falls with
    the process. A file system without locks keeps no second owner out: `locked` is false there.
    """

    def __init__(self, path: Path, file: int) -> None:
        """
        Take the log, which is open.

        Raises:
            RunLogError: another process holds it; with its number, its machine and since when.
        """
        self.path, self._file = path, file
        self.footer: Record | None = None
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
        Begin a log in a file that does not exist yet.

        Raises:
            FileExistsError: it does.
        """
        return cls(path, os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o644))

    @classmethod
    def resume(cls, path: Path) -> tuple[Self, tuple[Record, ...]]:
        """
        Continue the log of a cut run after its last whole line, and give back what it says so far.

        That is nothing where the run was cut before its header was written, and ends with the footer where it was cut
        after that. The folder must exist.

        Raises:
            RunLogError: it is no run log of this schema, or another process holds it.
        """
        log = cls(path, os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644))
        try:
            found = Log((), 0) if _is_unbegun(path) else read_log(path)
            os.ftruncate(log._file, found.length)
        except BaseException:
            log.close()
            raise
        return log, found.records

    @classmethod
    def hold(cls, path: Path) -> Self:
        """
        Keep others from a log that is there, to write reports of it.

        Raises:
            RunLogError: another process holds it. OSError: it cannot be opened.
        """
        return cls(path, os.open(path, os.O_RDWR | os.O_APPEND))

    def append(self, record: Mapping[str, Any]) -> Record:
        """
        Write one record and give it back as it stands in the log: with `schema`, and harmless.

        Raises:
            TypeError: something in it is no JSON value.
            ValueError: its type is unknown.
            OSError: it cannot be written; nothing of it stays in the file.
        """
        kind = record.get("type")
        if kind not in TYPES:
            raise ValueError(f"a record of type {kind!r}; a run log has {', '.join(TYPES)}")
        about = as_logged(record)
        line = memoryview(json.dumps(about, allow_nan=False).encode() + b"\n")
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
        return about

    def close(self) -> None:
        """Let others have it; a second time does nothing."""
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
    Lock the open log, or close it; false where the file system has no locks.

    Raises:
        RunLogError: another process holds it.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        raise RunLogError(
            f"{path}: the run is held by {_owner(path)}: wait until it has ended, or end it; nothing was changed"
        ) from None
    except OSError as error:
        if error.errno in UNLOCKABLE:
            return False
        os.close(file)
        raise
    return True


def _owner(path: Path) -> str:
    """Who holds a log, in words."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        about = json.loads(path.with_name(OWNER).read_bytes())
        return str(harmless(f"process {about['pid']} on {about['host']} since {about['since']}"))
    return f"a process that has not written {OWNER} yet"


def _is_unbegun(path: Path) -> bool:
    """Whether a log was cut before its header was whole."""
    content = path.read_bytes()
    return b"\n" not in content and (content.startswith(BEGINNING) or BEGINNING.startswith(content))


def as_logged(record: Mapping[str, Any]) -> Record:
    """
    A record as it stands in a log.

    Raises:
        TypeError: something in it is no JSON value.
    """
    found: Record = harmless(plain_data({"type": record["type"], "schema": SCHEMA, **record}))
    return found


def read_log(path: Path) -> Log:
    """
    Read a log; a last line that was cut is left out.

    Raises:
        RunLogError: it has no header, another schema, or a line that is no record.
        OSError: the file cannot be read.
    """
    records: list[Record] = []
    length = 0
    with path.open("rb") as file:
        while (line := file.readline(LONGEST + 1)).endswith(b"\n"):
            number = len(records) + 1
            records.append(_record(f"{path}:{number}", line, first=number == 1))
            length += len(line)
    if len(line) > LONGEST:
        raise RunLogError(f"{path}:{len(records) + 1}: a line of over {LONGEST} bytes; no record is as long")
    if not records:
        raise RunLogError(f"{path}:1: no header: the run was cut before it began, or this is no run log")
    return Log(tuple(records), length)


def _record(place: str, line: bytes, *, first: bool) -> Record:
    try:
        record = strict_json(line)
    except ValueError as error:
        raise RunLogError(f"{place}: {error}") from None
    if not isinstance(record, dict) or record.get("type") not in TYPES:
        found = record.get("type") if isinstance(record, dict) else record
        raise RunLogError(f"{place}: not a record of a run log: {quoted(found)}")
    if record.get("schema") != SCHEMA:
        raise RunLogError(f"{place}: schema {record.get('schema')!r}; this version reads schema {SCHEMA}")
    if (record["type"] == "header") is not first:
        raise RunLogError(f"{place}: a run log has one header, in its first line")
    return harmless(record) if SUSPECT.search(line) else record
