"""
Processes that a worker started and that have left its process group: found and ended with it (Linux).

While a worker lives, everything that it started is below it: it adopts what its children leave behind (a subreaper).
When it has died by itself, what it left is found by a mark in the environment that processes inherit. Elsewhere, and
where such a process has wiped its environment, it lives on.
"""

import os
import signal
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

MARK = "CONFORMANCE_WORKER"
"""The variable that holds the mark of a worker."""


def end(pids: set[int]) -> None:
    """End processes; those that are gone are gone."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def below(pid: int) -> set[int]:
    """Every process that descends from one; empty where the system does not say."""
    children = defaultdict(set)
    for each, parent in _parents():
        children[parent].add(each)
    found: set[int] = set()
    new = children[pid]
    while new:
        found |= new
        new = {each for parent in new for each in children[parent]} - found
    return found


def marked(mark: str) -> set[int]:
    """Every process of this user that was started with this mark; empty where the system does not say."""
    wanted = f"{MARK}={mark}".encode()
    found = set()
    for pid in _pids():
        with suppress(OSError):
            if wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.add(pid)
    return found - {os.getpid()}


def _pids() -> Iterator[int]:
    if sys.platform == "linux":
        with suppress(OSError):
            yield from (int(each.name) for each in Path("/proc").iterdir() if each.name.isdecimal())


def _parents() -> Iterator[tuple[int, int]]:
    for pid in _pids():
        with suppress(OSError):
            yield pid, int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
