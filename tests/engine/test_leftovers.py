"""Processes that a worker starts are found: by descent while the worker lives, by their mark after it ends."""

import os
import subprocess
import sys
import time
from pathlib import Path

from conformance.engine import process

CHILD = """
import ctypes, os, subprocess, sys, time
ctypes.CDLL(None).prctl(36, 1)
subprocess.run(["sh", "-c", "setsid env -i sleep 300 & setsid sleep 300 & exit 0"])
print("ready", flush=True)
time.sleep(300)
"""


def test_descendants_and_what_bears_the_mark_are_found_and_ended() -> None:
    worker = subprocess.Popen(
        [sys.executable, "-c", CHILD], env={**os.environ, process.MARK: "a mark"}, stdout=subprocess.PIPE
    )
    assert worker.stdout is not None
    assert worker.stdout.readline() == b"ready\n"
    try:
        time.sleep(0.2)
        below, marked = process.descendants(worker.pid), process.marked("a mark")
        assert len(below) == 2
        assert set(marked) - {worker.pid} < set(below), "the one whose environment was wiped bears no mark"
        process.end({pid: born + 1 for pid, born in below.items()})
        assert all(lives(pid) for pid in below), "another process with the same id"
        process.end(below)
        deadline = time.monotonic() + 5
        while any(lives(pid) for pid in below) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not any(lives(pid) for pid in below)
        process.end(below)
    finally:
        worker.kill()
        worker.wait()
        worker.stdout.close()
    assert process.marked("a mark") == process.descendants(worker.pid) == {}


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False
