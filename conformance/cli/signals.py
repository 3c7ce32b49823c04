"""SIGTERM and SIGHUP end a command as Ctrl+C does: what was judged is kept, and nothing is left running."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

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
