"""A worker process: starting it, exchanging frames with it, and ending it with everything that it started."""

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance import bridge
from conformance.bridge.wire import PREFIX, Message, WireError, decode, encode, lengths
from conformance.engine.worker_plan import WorkerPlan, environ

# The environment variable with the mark of a worker.
MARK = "CONFORMANCE_WORKER"


# When a process started, in clock ticks since boot: distinguishes it from a later one with the same id.
Born = int


def end(processes: Mapping[int, Born]) -> None:
    """Kill processes; those that have already ended are ignored."""
    for pid, born in processes.items():
        with suppress(OSError):
            if _parent_and_birth(pid)[1] == born:
                os.kill(pid, signal.SIGKILL)


def descendants(pid: int) -> dict[int, Born]:
    """Every descendant of a process; empty if the system does not say."""
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
    """Every process of this user that was started with this mark; empty if the system does not say."""
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
    The parent of a process, and when the process started (proc(5), fields 4 and 22).

    Raises:
        OSError: the process has ended.
    """
    fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    return int(fields[1]), int(fields[19])


# Maximum number of bytes of standard error that are kept.
STDERR_TAIL = 64 * 1024

# Seconds to keep reading after a process has ended: a process that it started may still hold the pipes.
GRACE = 0.5

# Replaces the temporary folder in texts of a worker: its name differs from run to run.
TEMPORARY = "<temporary>"

_START = "import sys; sys.path[0] = sys.argv.pop(1); from conformance.bridge.worker import main; main()"


@dataclass(frozen=True)
class Exit:
    """How a process ended: its exit code (negative for a signal) and its CPU seconds."""

    code: int
    cpu: float

    def __str__(self) -> str:
        if self.code >= 0:
            return f"exited with code {self.code}"
        with suppress(ValueError):
            return f"was killed by {signal.Signals(-self.code).name}"
        return f"was killed by signal {-self.code}"


def _placeholder(found: re.Match[str]) -> str:
    return TEMPORARY + ("/home/tmp" if found[1] else "")


def copy_bridge(folder: Path) -> Path:
    """Copy the bridge into `folder` as a package: the only code of this project that a worker imports."""
    package = folder / "conformance"
    package.mkdir(parents=True)
    source = Path(bridge.__file__).parent
    shutil.copytree(source, package / "bridge", ignore=shutil.ignore_patterns("__pycache__"))
    (package / "bridge" / "worker_package.py").rename(package / "__init__.py")
    return folder


def options_of(plan: WorkerPlan) -> dict[str, Any]:
    """What a worker needs to know to load an adapter."""
    return {"adapter": str(plan.adapter), "device": plan.device, "distributions": list(plan.distributions)}


class Process:
    """A worker process, started at once outside any event loop; `attach` it to one before exchanging frames."""

    def __init__(self, plan: WorkerPlan, bridge_folder: Path, home: Path) -> None:
        """
        Start the process.

        Raises:
            OSError: the interpreter cannot be run.
        """
        options = {**options_of(plan), "coordinator": os.getpid()}
        self.started = time.monotonic()
        self._mark = uuid.uuid4().hex
        self._descendants: dict[int, Born] = {}
        self._temporary = [re.escape(each) for each in dict.fromkeys((str(home.parent), os.path.realpath(home.parent)))]
        self._popen = subprocess.Popen(
            [plan.python, "-u", "-c", _START, str(bridge_folder), json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=environ(plan, home) | {MARK: self._mark},
            cwd=home,
            start_new_session=True,
        )
        self._gone = threading.Lock()
        self._reaped = False
        self._stderr: deque[bytes] = deque()
        self._tail: asyncio.Task[None] | None = None
        self.exit: Future[Exit] = Future()
        self.exit.set_running_or_notify_cancel()
        threading.Thread(target=self._watch, name=f"watch {plan.name}", daemon=True).start()

    @property
    def pid(self) -> int:
        """The id of the process and of its process group."""
        return int(self._popen.pid)

    def _watch(self) -> None:
        """Wait until the process ends, then kill what it started, before its id can be reused."""
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        with self._gone:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            end(self._descendants | marked(self._mark))
            _pid, status, usage = os.wait4(self.pid, 0)
            self._reaped = True
            self._popen.returncode = os.waitstatus_to_exitcode(status)
        self.exit.set_result(Exit(self._popen.returncode, usage.ru_utime + usage.ru_stime))

    def kill(self) -> None:
        """Kill the process, its process group, and its descendants that have left the group."""
        with self._gone:
            if not self._reaped:
                started = descendants(self.pid)
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid, signal.SIGKILL)
                end(started)

    def ask_where(self) -> None:
        """Make the process write the stacks of its threads to stderr."""
        with self._gone:
            if not self._reaped:
                os.kill(self.pid, signal.SIGUSR1)

    async def attach(self) -> None:
        """Connect the pipes to the running event loop."""
        loop = asyncio.get_running_loop()
        stderr, self._answers = asyncio.StreamReader(), asyncio.StreamReader()
        self._transports = [
            (await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stderr), self._popen.stderr))[0],
            (await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(self._answers), self._popen.stdout))[0],
        ]
        self._requests, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, self._popen.stdin)
        self._tail = asyncio.create_task(self._keep_tail(stderr))

    async def _keep_tail(self, stderr: asyncio.StreamReader) -> None:
        kept = 0
        while chunk := await stderr.read(STDERR_TAIL):
            self._stderr.append(chunk)
            kept += len(chunk)
            while kept - len(self._stderr[0]) >= STDERR_TAIL:
                kept -= len(self._stderr.popleft())

    @property
    def stderr(self) -> str:
        """The last STDERR_TAIL bytes of standard error, as text."""
        return self.with_stable_paths(b"".join(self._stderr)[-STDERR_TAIL:].decode(errors="replace"))

    def with_stable_paths(self, text: str) -> str:
        """A text of the process with its temporary folder replaced by a fixed word, so that runs can be compared."""
        return re.sub(f"(?:{'|'.join(self._temporary)})(/home/tmp[a-z0-9_]{{8}})?", _placeholder, text)

    def send(self, message: Message) -> None:
        """Write a frame without waiting for the other side to read it."""
        if not self._requests.is_closing():
            self._requests.write(b"".join(encode(message)))

    async def receive(self, body_limit: Callable[[], int]) -> Message | None:
        """
        Wait for one frame; None at the end of the stream.

        Raises:
            WireError: the bytes are not a frame, or its body is larger than `body_limit()` at that time.
        """
        try:
            prefix = await self._answers.readexactly(PREFIX.size)
            header_length, body_length = lengths(prefix, body_limit())
            header = await self._answers.readexactly(header_length)
            return decode(header, await self._answers.readexactly(body_length))
        except asyncio.IncompleteReadError as end:
            if end.partial:
                raise WireError("the stream ended inside a frame") from None
            return None

    def finish_input(self) -> None:
        """Close the request pipe: the process exits, and what it started is killed."""
        self._descendants = descendants(self.pid)
        self._requests.close()

    async def ended(self, patience: float | None = None) -> Exit | None:
        """How the process ended, or None if it did not end within `patience` seconds."""
        waiting = asyncio.wrap_future(self.exit)
        done, _ = await asyncio.wait({waiting}, timeout=patience)
        return waiting.result() if done else None

    async def dispose(self) -> Exit:
        """Kill the process if it is alive, read the rest of its stderr, and close all pipes."""
        self.kill()
        await self.ended()
        if self._tail is not None:
            if not self._requests.is_closing() or self._requests.get_write_buffer_size():
                self._requests.abort()
            await asyncio.wait({self._tail}, timeout=GRACE)
            self._tail.cancel()
            await asyncio.wait({self._tail})
            for transport in self._transports:
                transport.close()
        return self.exit.result()

    def abandon(self) -> None:
        """Kill the process and close all pipes, without an event loop."""
        self.kill()
        self.exit.result()
        for pipe in (self._popen.stdin, self._popen.stdout, self._popen.stderr):
            if pipe is not None:
                pipe.close()
