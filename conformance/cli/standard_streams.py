"""Signals and standard streams: results are kept if a signal ends the command or its output is closed."""

import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, TextIO, cast

ENDING = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Treat the first SIGTERM or SIGHUP as an interrupt; a signal that is ignored (nohup) stays ignored."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ended = False

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal ended
        if ended:
            return  # the command is ending already
        ended = True
        interrupt = signal.getsignal(signal.SIGINT)
        if not callable(interrupt):  # a shell makes its background jobs ignore SIGINT
            raise KeyboardInterrupt
        interrupt(number, frame)

    before = {each: signal.signal(each, end) for each in ENDING if signal.getsignal(each) is signal.SIG_DFL}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


class TolerantStream:
    """
    A stream that drops text that cannot be written.

    fault: the first error, or None. After an error the stream is redirected to the null device, so that the interpreter
    can flush it when it exits.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.fault: OSError | None = None

    def write(self, text: str) -> int:
        """Write text; characters that the encoding lacks are escaped."""
        try:
            self._stream.write(text)
        except UnicodeEncodeError:
            encoding = self._stream.encoding
            self._stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        except OSError as error:
            self._lose(error)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several lines."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Flush the stream."""
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
def tolerate_closed_streams() -> Iterator[tuple[TolerantStream, TolerantStream]]:
    """Make stdout and stderr tolerant, and reopen closed descriptors, which other files would get otherwise."""
    _open_closed()
    before = sys.stdout, sys.stderr
    out, err = (TolerantStream(stream or _nowhere()) for stream in before)
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
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this descriptor
