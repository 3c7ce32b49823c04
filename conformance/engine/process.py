"""One worker process: started, spoken to, listened to, and ended with everything that it started."""

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

from conformance import bridge
from conformance.bridge.wire import PREFIX, Message, WireError, decode, encode, lengths
from conformance.engine.worker_plan import WorkerPlan, environ

# The variable that holds the mark of a worker.
MARK = "CONFORMANCE_WORKER"


# When a process started, in clock ticks since the system did: tells it from a later one with the same id.
Born = int


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


# How many bytes of standard error are kept.
STDERR_TAIL = 64 * 1024

# Seconds to read on where a process is gone: one that it started and that left its group may hold the pipes.
GRACE = 0.5

# Stands in texts of a worker for its temporary folder, whose name is another in every run.
TEMPORARY = "<temporary>"

_START = "import sys; sys.path[0] = sys.argv.pop(1); from conformance.bridge.worker import main; main()"


@dataclass(frozen=True)
class Exit:
    """How a process ended: its exit code, negative for a signal, and what it used."""

    code: int
    cpu: float

    def __str__(self) -> str:
        if self.code >= 0:
            return f"exited with code {self.code}"
        with suppress(ValueError):
            return f"was killed by {signal.Signals(-self.code).name}"
        return f"was killed by signal {-self.code}"


def _steady(found: re.Match[str]) -> str:
    return TEMPORARY + ("/home/tmp" if found[1] else "")


def copy_bridge(folder: Path) -> Path:
    """Put the bridge, and nothing else of ours, as a package into `folder`: all that a worker imports from us."""
    package = folder / "conformance"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    source = Path(bridge.__file__).parent
    shutil.copytree(source, package / "bridge", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


class Process:
    """Started at once, outside any event loop; `attach` it to one before speaking to it."""

    def __init__(self, plan: WorkerPlan, bridge_folder: Path, home: Path) -> None:
        """
        Start the process.

        Raises:
            OSError: the interpreter cannot be run.
        """
        options = {
            "adapter": str(plan.adapter),
            "device": plan.device,
            "distributions": list(plan.distributions),
            "coordinator": os.getpid(),
        }
        self.started = time.monotonic()
        self._mark = uuid.uuid4().hex
        self._below: dict[int, Born] = {}
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
        """Also the id of its process group."""
        return int(self._popen.pid)

    def _watch(self) -> None:
        """Wait for the end; what the process started ends with it, while its id is still its own."""
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        with self._gone:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            end(self._below | marked(self._mark))
            _pid, status, usage = os.wait4(self.pid, 0)
            self._reaped = True
            self._popen.returncode = os.waitstatus_to_exitcode(status)
        self.exit.set_result(Exit(self._popen.returncode, usage.ru_utime + usage.ru_stime))

    def kill(self) -> None:
        """End the process, everything in its group, and what it started and has left the group."""
        with self._gone:
            if not self._reaped:
                started = below(self.pid)
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid, signal.SIGKILL)
                end(started)

    def ask_where(self) -> None:
        """Make it write the stacks of its threads to stderr."""
        with self._gone:
            if not self._reaped:
                os.kill(self.pid, signal.SIGUSR1)

    async def attach(self) -> None:
        """Begin to listen."""
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
        return self.steady(b"".join(self._stderr)[-STDERR_TAIL:].decode(errors="replace"))

    def steady(self, text: str) -> str:
        """A text of the process with a fixed word for its temporary folder: the same in every run."""
        return re.sub(f"(?:{'|'.join(self._temporary)})(/home/tmp[a-z0-9_]{{8}})?", _steady, text)

    def send(self, message: Message) -> None:
        """Write a frame, without waiting for the other side to read it."""
        if not self._requests.is_closing():
            self._requests.write(b"".join(encode(message)))

    async def receive(self, body_limit: Callable[[], int]) -> Message | None:
        """
        Wait for one frame; None at the end of the stream.

        Raises:
            WireError: what came is no frame, or one with a larger body than `body_limit` says when it comes.
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
        """Say that nothing more will come: it exits, and what it started ends with it."""
        self._started = below(self.pid)
        self._requests.close()

    async def ended(self, patience: float | None = None) -> Exit | None:
        """How it ended, or None if it did not within `patience` seconds."""
        waiting = asyncio.wrap_future(self.exit)
        done, _ = await asyncio.wait({waiting}, timeout=patience)
        return waiting.result() if done else None

    async def dispose(self) -> Exit:
        """Kill it if it lives, read the rest of its stderr, and close what is open."""
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
        """Kill it and close what is open, where no event loop runs."""
        self.kill()
        self.exit.result()
        for pipe in (self._popen.stdin, self._popen.stdout, self._popen.stderr):
            if pipe is not None:
                pipe.close()
