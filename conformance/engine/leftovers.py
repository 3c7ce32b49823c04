"""
Processes that a worker started and that have left its process group: found and ended with it (Linux).

While a worker lives, everything that it started is below it: it adopts what its children leave behind (a subreaper).
So that is noted before it is asked to exit, or killed. When it has died by itself, what it left is found by a mark in
the environment that processes inherit. Elsewhere, and where such a process has wiped its environment, it lives on.
"""

import os
import signal
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

MARK = "CONFORMANCE_WORKER"
"""The variable that holds the mark of a worker."""


Born = int
"""When a process started, in clock ticks since the system did: tells it from a later one with the same id."""


def end(processes: Mapping[int, Born]) -> None:
    """End processes; those that are gone are gone."""
    for pid, born in processes.items():
        with suppress(OSError):
            if _parent_and_birth(pid)[1] == born:
                os.kill(pid, signal.SIGKILL)


def below(pid: int) -> dict[int, Born]:
    """Every process that descends from one; empty where the system does not say."""
    children: dict[int, dict[int, Born]] = defaultdict(dict)
    for each in _pids():
        with suppress(OSError):
            parent, born = _parent_and_birth(each)
            children[parent][each] = born
    found: dict[int, Born] = {}
    new = dict(children[pid])
    while new:
        found |= new
        new = {each: born for parent in new for each, born in children[parent].items() if each not in found}
    return found


def marked(mark: str) -> dict[int, Born]:
    """Every process of this user that was started with this mark; empty where the system does not say."""
    wanted = f"{MARK}={mark}".encode()
    found = {}
    for pid in _pids():
        with suppress(OSError):
            if wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") and pid != os.getpid():
                found[pid] = _parent_and_birth(pid)[1]
    return found


def _pids() -> Iterator[int]:
    if sys.platform == "linux":
        with suppress(OSError):
            yield from (int(each.name) for each in Path("/proc").iterdir() if each.name.isdecimal())


def _parent_and_birth(pid: int) -> tuple[int, Born]:
    """
    The parent of a process, and when it was started (proc(5), fields 4 and 22).

    Raises:
        OSError: it is gone.
    """
    fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    return int(fields[1]), int(fields[19])
