"""
The entry point: it runs one command and returns its exit code.

Results are kept if a signal ends the command or if its output is closed.
"""

import argparse
import importlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, TextIO, cast

from conformance.cli.argument_parser import EnvironmentFault, UsageError, is_fault, sentence
from conformance.cli.parser import build_parser
from conformance.gate.decision import CONFORMS, INTERNAL, INTERRUPTED, USAGE
from conformance.spec.mistakes import CaseFileErrors

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


def _function(command: str) -> Callable[[argparse.Namespace], int]:
    """Import the function of one command (`module:name`) only when it runs, because --help needs none of them."""
    module, _, name = command.partition(":")
    function: Callable[[argparse.Namespace], int] = getattr(importlib.import_module(f"conformance.cli.{module}"), name)
    return function


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code (docs/exit-codes.md)."""
    with tolerate_closed_streams() as (out, _), ended_by_signals():
        parser = build_parser()
        if "_ARGCOMPLETE" in os.environ:
            importlib.import_module("conformance.cli.command_completion").answer(parser)
        arguments = parser.parse_args(argv)
        code = _ended(arguments)
        out.flush()
        return _reported(code, out.fault, arguments)


def _ended(arguments: argparse.Namespace) -> int:
    """Run the command, and turn every exception into an exit code."""
    try:
        return int(_function(arguments.command)(arguments))
    except CaseFileErrors as error:
        count = len(error.mistakes)
        print(error, file=sys.stderr)
        print(f"{count} {'mistake' if count == 1 else 'mistakes'}; nothing was run", file=sys.stderr)
        return USAGE
    except UsageError as error:
        print(f"conformance: {error}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt as error:
        print(f"conformance: {error if error.args else 'interrupted'}", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - a bug must not look like a verdict
        _report(error)
        return INTERNAL


def _report(error: Exception) -> None:
    """Print what ended the command: a fault of the environment as one sentence, a bug with its traceback."""
    if isinstance(error, EnvironmentFault):
        print(f"conformance: {error}", file=sys.stderr)
    elif isinstance(error, OSError) and is_fault(error):
        print(f"conformance: {sentence(error)}", file=sys.stderr)
    else:
        traceback.print_exc()
        print("conformance: internal error: please report it with the text above", file=sys.stderr)


def _reported(code: int, fault: OSError | None, arguments: argparse.Namespace) -> int:
    """
    Return the exit code, which changes if stdout could not be written.

    A command that only prints fails then; a command that writes a folder keeps its exit code. A closed pipe, such as
    `| head`, changes nothing, because the reader wanted no more.
    """
    if fault is None or isinstance(fault, BrokenPipeError):
        return code
    print(f"conformance: standard output cannot be written: {sentence(fault)}", file=sys.stderr)
    return INTERNAL if code == CONFORMS and not hasattr(arguments, "out") else code
