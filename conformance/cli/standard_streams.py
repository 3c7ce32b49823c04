"""Signals and standard streams: what was judged is kept, whoever ends the command or closes its output."""

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
    """While this lasts, the first of these signals interrupts; one that is ignored (nohup) stays ignored."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ended = False

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal ended
        if ended:
            return  # it asks for what is under way
        ended = True
        interrupt = signal.getsignal(signal.SIGINT)
        if not callable(interrupt):  # a shell lets what it starts in the background ignore SIGINT
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
def tolerate_closed_streams() -> Iterator[tuple[TolerantStream, TolerantStream]]:
    """Make stdout and stderr steady, and open what was closed: else the next file would be taken for stdout."""
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
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free, which is this one
