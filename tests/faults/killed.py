"""
Run the command line, and let the kernel kill it after so many CPU seconds.

Example: `python killed.py start 1.25 run -a numpy.sdpa`. With `header` or `footer`, the time counts from the moment
when the log has that record. A watcher in another process reacts too late on a busy machine; a timer of the process
itself does not. No process can handle SIGKILL, whoever sends it.
"""

import ctypes
import signal
import struct
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from conformance.engine.runlog import Record, RunLog

CLOCK_PROCESS_CPUTIME_ID = 2


def arm(seconds: float) -> None:
    """
    Start the timer (timer_create(2)).

    Raises:
        OSError: the system cannot create or start such a timer.
    """
    system = ctypes.CDLL(None, use_errno=True)
    event = struct.pack("@qii48x", 0, signal.SIGKILL, 0)
    timer = ctypes.c_void_p()
    if system.timer_create(CLOCK_PROCESS_CPUTIME_ID, event, ctypes.byref(timer)):
        raise OSError(ctypes.get_errno(), "timer_create")
    whole, part = divmod(max(int(seconds * 1e9), 1), 10**9)
    if system.timer_settime(timer, 0, struct.pack("@4q", 0, 0, whole, part), None):
        raise OSError(ctypes.get_errno(), "timer_settime")


def arm_after(kind: str, seconds: float) -> None:
    """Start the timer when a record of this kind is appended to the log."""
    append = RunLog.append

    def appended(log: RunLog, record: Mapping[str, Any]) -> Record:
        found = append(log, record)
        if record["type"] == kind:
            arm(seconds)
        return found

    RunLog.append = appended  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    since, seconds = sys.argv.pop(1), float(sys.argv.pop(1))
    if since == "start":
        arm(seconds)
    from conformance.cli import main
    from conformance.engine.runlog import Record, RunLog

    if since != "start":
        arm_after(since, seconds)
    sys.exit(main())
