"""
The run log: JSON lines that are only ever appended (docs/run-log.md).

A record is one write of one whole line, so that a run that is killed leaves at most one truncated last line.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from conformance.bridge.values import plain, strict_json
from conformance.spec.texts import shown

LOG = "run.jsonl"
"""Its name in a run folder."""

SCHEMA = 1
LONGEST = 1 << 26
"""The largest record in bytes; the header of a run has the text of all its cases."""

TYPES = ("header", "worker", "cell", "diagnosis", "footer")

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
        return bool(self.records[-1]["type"] == "footer")


class RunLog:
    """An open log; every record is in the file when `append` returns."""

    def __init__(self, file: int) -> None:
        self._file = file

    @classmethod
    def create(cls, path: Path) -> Self:
        """
        Begin a log in a file that does not exist yet.

        Raises:
            FileExistsError: it does.
        """
        return cls(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o644))

    @classmethod
    def resume(cls, path: Path) -> tuple[Self, tuple[Record, ...]]:
        """
        Continue the log of a cut run after its last whole line, and give back what it says so far.

        Raises:
            RunLogError: it is no run log of this schema, or its run came to its end.
        """
        log = read_log(path)
        if log.complete:
            raise RunLogError(f"{path}:{len(log.records)}: the run came to its end; there is nothing to resume")
        file = os.open(path, os.O_WRONLY | os.O_APPEND)
        os.ftruncate(file, log.length)
        return cls(file), log.records

    def append(self, record: Mapping[str, Any]) -> None:
        """
        Write one record; `schema` is added.

        Raises:
            TypeError: something in it is no JSON value.
            ValueError: its type is unknown.
        """
        kind = record.get("type")
        if kind not in TYPES:
            raise ValueError(f"a record of type {kind!r}; a run log has {', '.join(TYPES)}")
        about = plain({"type": kind, "schema": SCHEMA, **record})
        line = memoryview(json.dumps(about, allow_nan=False).encode() + b"\n")
        while line:
            line = line[os.write(self._file, line) :]

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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
        raise RunLogError(f"{place}: not a record of a run log: {shown(found)}")
    if record.get("schema") != SCHEMA:
        raise RunLogError(f"{place}: schema {record.get('schema')!r}; this version reads schema {SCHEMA}")
    if (record["type"] == "header") is not first:
        raise RunLogError(f"{place}: a run log has one header, in its first line")
    return record
