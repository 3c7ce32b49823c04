"""Standard streams whose other side may be gone, full or closed: what cannot be told does not change what was found."""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO, cast


class Steady:
    """
    A stream that drops what cannot be written.

    fault: the first error, None while there is none. The stream is then pointed at nothing, also for the end of the
    interpreter, which would flush it.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.fault: OSError | None = None

    def write(self, text: str) -> int:
        """Write, with escapes for what the stream's encoding lacks."""
        try:
            self._stream.write(text)
        except UnicodeEncodeError:
            encoding = self._stream.encoding
            self._stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        except OSError as error:
            self._lose(error)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write them one after another."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Write what is held back."""
        try:
            self._stream.flush()
        except OSError as error:
            self._lose(error)

    def _lose(self, error: OSError) -> None:
        self.fault = self.fault or error
        with suppress(OSError, ValueError):
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, self._stream.fileno())
            os.close(nothing)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def steady_streams() -> Iterator[tuple[Steady, Steady]]:
    """Make stdout and stderr steady, and open what was closed: else the next file would be taken for stdout."""
    _open_closed()
    before = sys.stdout, sys.stderr
    out, err = (Steady(stream or _nowhere()) for stream in before)
    sys.stdout, sys.stderr = cast("TextIO", out), cast("TextIO", err)
    try:
        yield out, err
    finally:
        out.flush()
        err.flush()
        sys.stdout, sys.stderr = before


def _nowhere() -> TextIO:
    return Path(os.devnull).open("w", encoding="utf-8")


def _open_closed() -> None:
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free, which is this one
