"""
The result cache: bytes by key in one SQLite file, which several runs may use at the same time.

A fault of the file costs only time. An entry with a wrong checksum is a miss. A file that SQLite cannot read is
renamed. If the file cannot be written, the run continues without it and says so once.
"""

import hashlib
import sqlite3
import time
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Self

FILE = "results.sqlite"
# Maximum size of the file in bytes. Beyond it, the entries that were used longest ago are removed.
LIMIT = 1 << 30

# Share of the limit that is left after entries are removed.
KEPT = 0.8

# Seconds to wait while another run writes.
PATIENCE = 10.0

# Number of entries that are written together.
BATCH = 256

# Bytes of SHA-256 before each value.
CHECKSUM = 16

_TABLE = (
    "CREATE TABLE IF NOT EXISTS entries (key TEXT PRIMARY KEY, value BLOB NOT NULL, used INTEGER NOT NULL) STRICT",
    "CREATE INDEX IF NOT EXISTS by_use ON entries (used)",
)


class ResultCache:
    """
    A cache of bytes. Use it as a context manager, or call `close`, which writes the last entries.

    fault: a sentence that says why the cache is not used any more; "" if it is in use.
    """

    def __init__(self, folder: Path, limit: int = LIMIT) -> None:
        """
        Open the cache in `folder`, which is created if it does not exist.

        limit: maximum size of the file in bytes.
        """
        self._path = folder / FILE
        self._limit = limit
        self._new: dict[str, bytes] = {}
        self._used: set[str] = set()
        self.fault = ""
        self._file = self._opened()

    def _opened(self) -> sqlite3.Connection | None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            try:
                return _connect(self._path)
            except sqlite3.OperationalError:
                raise
            except sqlite3.DatabaseError:  # damaged, or not a database: its content can be computed again
                self._path.replace(self._path.with_suffix(".damaged"))
                return _connect(self._path)
        except (OSError, sqlite3.Error) as error:
            self._give_up(error)
            return None

    def _give_up(self, error: Exception) -> None:
        self.fault = f"the result cache {self._path} is not used any more: {error}"
        self._file = None

    def get(self, key: str) -> bytes | None:
        """The value of a key, or None if there is none or it is damaged."""
        if key in self._new:
            return self._new[key]
        if self._file is None:
            return None
        try:
            row = self._file.execute("SELECT value FROM entries WHERE key = ?", (key,)).fetchone()
        except sqlite3.Error as error:
            self._give_up(error)
            return None
        value = None if row is None else _unpacked(row[0])
        if value is not None:
            self._used.add(key)
        return value

    def put(self, key: str, value: bytes) -> None:
        """Store a value."""
        if self._file is None:
            return
        self._new[key] = value
        if len(self._new) >= BATCH:
            self._write()

    def _write(self) -> None:
        now = int(time.time())
        rows = [(key, _packed(value), now) for key, value in self._new.items()]
        self._execute("INSERT OR REPLACE INTO entries VALUES (?, ?, ?)", rows)
        self._new.clear()

    def _execute(self, statement: str, rows: Iterable[tuple[object, ...]]) -> None:
        if self._file is None:
            return
        try:
            with self._file:
                self._file.executemany(statement, rows)
        except sqlite3.Error as error:
            self._give_up(error)

    def close(self) -> None:
        """Write the last entries, note which entries were used, and keep the file within its limit."""
        self._write()
        now = int(time.time())
        self._execute("UPDATE entries SET used = ? WHERE key = ?", [(now, key) for key in self._used])
        if self._file is None:
            return
        try:
            self._trim(self._file)
            self._file.close()
        except sqlite3.Error as error:
            self._give_up(error)

    def _trim(self, file: sqlite3.Connection) -> None:
        """Remove the entries that were used longest ago, until the file is well below its limit."""
        size = _number(file, "PRAGMA page_count") * _number(file, "PRAGMA page_size")
        if size <= self._limit:
            return
        excess = size - KEPT * self._limit
        gone = []
        for row, length in file.execute("SELECT rowid, length(value) FROM entries ORDER BY used"):
            gone.append((row,))
            excess -= length
            if excess <= 0:
                break
        with file:
            file.executemany("DELETE FROM entries WHERE rowid = ?", gone)
        file.execute("VACUUM")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _connect(path: Path) -> sqlite3.Connection:
    file = sqlite3.connect(path, timeout=PATIENCE)
    file.execute("PRAGMA journal_mode = WAL")
    file.execute("PRAGMA synchronous = NORMAL")
    with file:
        for statement in _TABLE:
            file.execute(statement)
    return file


def _number(file: sqlite3.Connection, question: str) -> int:
    return int(file.execute(question).fetchone()[0])


def _packed(value: bytes) -> bytes:
    packed = zlib.compress(value, 1)
    return hashlib.sha256(packed).digest()[:CHECKSUM] + packed


def _unpacked(stored: bytes) -> bytes | None:
    packed = stored[CHECKSUM:]
    if hashlib.sha256(packed).digest()[:CHECKSUM] != stored[:CHECKSUM]:
        return None
    return zlib.decompress(packed)
