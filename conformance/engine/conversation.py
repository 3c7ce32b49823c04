"""
The conversation with one worker process: greeting, pipelined requests, time limits, and its death.

The time of a request counts from the worker's `began` message. If the process dies, the request that had begun is lost;
replies that it wrote before are processed first, and requests that had not begun are returned.
"""

import asyncio
import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from conformance.bridge.messages import LOAD, PROTOCOL, Answer, Request, read_answer, request_message
from conformance.bridge.wire import Message, WireError
from conformance.engine.job import Job, Limits, Outcome, Usage
from conformance.engine.process import GRACE, Process, options_of
from conformance.engine.replies import answer_fault, hello_fault
from conformance.engine.worker_plan import WorkerPlan
from conformance.spec.texts import quoted

# Turns of the event loop to wait after a time limit: an answer may have come while the coordinator was judging.
_LOOK_AGAIN = 50

# Seconds that an overdue process gets to write its stacks.
_STACKS = 0.5

# Maximum number of characters of stderr in a record.
EXCERPT = 8_000

_QUEUE = 64

Judged = Callable[[Job, Outcome], None]


class StartFailure(Exception):  # noqa: N818 - the name of what happened
    """A process did not become ready. `worth_another`: whether a second attempt might succeed."""

    def __init__(self, reason: str, *, worth_another: bool = False) -> None:
        super().__init__(reason)
        self.worth_another = worth_another


@dataclass(frozen=True)
class Death:
    """How a process ended while it should have served, and the jobs that it had not begun."""

    reason: str
    not_begun: tuple[Job, ...]


class Conversation:
    """The conversation with a started process; call `open` first and `close` last."""

    def __init__(self, process: Process, limits: Limits) -> None:
        self._process = process
        self._limits = limits
        self._messages: asyncio.Queue[Message | WireError | None] = asyncio.Queue(_QUEUE)
        self._tasks: set[asyncio.Task[None]] = set()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Job] = {}
        self._running: int | None = None
        self._since = 0.0
        self._overdue = False
        self._broken = ""
        self._signatures: set[str] = set()
        self._hello: Mapping[str, Any] = {}
        self._call_cpu = 0.0
        self._cpu_before: float | None = None
        self._peak = 0

    async def open(self) -> None:
        """Start to receive messages."""
        await self._process.attach()
        listening = asyncio.create_task(self._listen())
        self._tasks = {listening, asyncio.create_task(self._watch(listening))}

    async def _listen(self) -> None:
        try:
            while (message := await self._process.receive(self._largest)) is not None:
                await self._messages.put(message)
        except WireError as error:
            await self._messages.put(error)

    def _largest(self) -> int:
        return max((job.limit for job in self._waiting.values()), default=0)

    async def _watch(self, listening: "asyncio.Task[None]") -> None:
        """Put None after the last message; a process that closes its pipe gets a limited time to exit."""
        exited = asyncio.create_task(self._process.ended())
        await asyncio.wait({exited, listening}, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait({exited}, timeout=self._limits.close)
        self._process.kill()
        await exited
        await asyncio.wait({listening}, timeout=GRACE)
        listening.cancel()
        await self._messages.put(None)

    async def greet(self) -> Mapping[str, Any]:
        """
        Wait for the worker's hello and return its fields.

        Raises:
            StartFailure: the worker did not become ready.
        """
        return await self._greeting(self._process.started)

    async def load(self, plan: WorkerPlan, limits: Limits) -> Mapping[str, Any]:
        """
        Let the worker serve the adapter of another plan under other limits, and return the fields of its new hello.

        Raises:
            StartFailure: the worker did not become ready again.
        """
        self._limits = limits
        self._process.send(Message(LOAD, options_of(plan)))
        return await self._greeting(time.monotonic())

    async def _greeting(self, since: float) -> Mapping[str, Any]:
        try:
            message = await self._next(since + self._limits.start)
        except TimeoutError:
            await self._kill_overdue()
            raise StartFailure(f"was not ready after {self._limits.start:g} s") from None
        except WireError as error:
            raise StartFailure(f"broke the protocol: {error}") from None
        if message is None:
            raise StartFailure(f"{await self._process.ended()} before it was ready", worth_another=True)
        if message.kind == "failed":
            raise StartFailure(
                self._process.with_stable_paths(f"{message.fields.get('type')}: {message.fields.get('message')}")
            )
        if message.kind != "hello" or message.fields.get("protocol") != PROTOCOL:
            raise StartFailure(f"does not speak version {PROTOCOL} of the protocol")
        if fault := hello_fault(message.fields):
            raise StartFailure(f"broke the protocol: {fault}")
        self._hello = message.fields
        return self._hello

    async def _next(self, due: float | None) -> Message | None:
        """
        The next message; None after the last one.

        Raises:
            TimeoutError: there is no message, and the event loop's time is past `due`.
            WireError: the worker sent an invalid message.
        """
        try:
            message = self._messages.get_nowait()
        except asyncio.QueueEmpty:
            message = await self._wait(due)
        if isinstance(message, WireError):
            raise message
        return message

    async def _wait(self, due: float | None) -> Message | WireError | None:
        try:
            async with asyncio.timeout_at(due):
                return await self._messages.get()
        except TimeoutError:
            return await self._look_again()

    async def _look_again(self) -> Message | WireError | None:
        for _ in range(_LOOK_AGAIN):
            if not self._messages.empty():
                return self._messages.get_nowait()
            await asyncio.sleep(0)
        raise TimeoutError

    async def _kill_overdue(self) -> None:
        self._process.ask_where()
        await self._process.ended(_STACKS)
        self._process.kill()

    async def serve(self, take: Callable[[], Job | None], judged: Judged) -> Death | None:
        """Send jobs and report outcomes until `take` returns no more; returns early if the process dies."""
        while True:
            self._fill(take)
            if not self._waiting:
                return None
            try:
                message = await self._next(self._due())
                answered = None if message is None else self._hear(message)
            except TimeoutError:
                self._overdue = True
                await self._kill_overdue()
                continue
            except WireError as error:
                self._broken = self._broken or f"broke the protocol: {error}"
                self._process.kill()
                continue
            if message is None:
                return await self._death(judged)
            if answered is not None:
                judged(*answered)

    def _fill(self, take: Callable[[], Job | None]) -> None:
        if self._overdue or self._broken:
            return
        while len(self._waiting) < self._limits.window and (job := take()) is not None:
            if not self._waiting:
                self._since = asyncio.get_running_loop().time()
            number = next(self._numbers)
            self._waiting[number] = job
            self._process.send(request_message(Request(number, job.call, job.requirements, job.limit)))

    def _due(self) -> float | None:
        """The time limit of the request that has begun, or for the next request to begin; None for no limit."""
        if self._overdue or self._broken:
            return None
        if self._running is None:
            return self._since + self._limits.start
        return self._since + self._allowed(self._waiting[self._running])

    def _allowed(self, job: Job) -> float:
        return self._limits.call if job.signature in self._signatures else self._limits.first

    def _hear(self, message: Message) -> tuple[Job, Outcome] | None:
        """The job that a message answers, with its outcome; None if the message is not an answer."""
        if self._overdue or self._broken:
            return None
        self._since = asyncio.get_running_loop().time()
        if message.kind == "began":
            number = message.fields.get("number")
            if self._running is not None or type(number) is not int or number not in self._waiting:
                raise WireError(f"began request {quoted(number)} out of order")
            self._running = number
            cpu = message.fields.get("cpu")
            self._cpu_before = cpu if type(cpu) is float and cpu >= 0 else None
            return None
        answer = read_answer(message)
        if answer.number != self._running:
            raise WireError(f"answered request {answer.number} out of order")
        if fault := answer_fault(answer, self._waiting[answer.number]):
            raise WireError(fault)
        job = self._waiting.pop(answer.number)
        self._running = None
        self._signatures.add(job.signature)
        self._call_cpu += answer.seconds.get("cpu", 0.0)
        self._peak = max(self._peak, answer.peak)
        return job, Outcome.of(self._with_stable_paths(answer))

    def _with_stable_paths(self, answer: Answer) -> Answer:
        error = answer.error and {name: self._process.with_stable_paths(text) for name, text in answer.error.items()}
        return replace(answer, reason=self._process.with_stable_paths(answer.reason), error=error)

    async def _death(self, judged: Judged) -> Death:
        exit_ = await self._process.dispose()
        lost = None if self._running is None else self._waiting.pop(self._running)
        reason = self._broken or str(exit_)
        if self._overdue:
            limit = self._limits.start if lost is None else self._allowed(lost)
            reason = f"was killed after {limit:g} s " + ("without a message" if lost is None else "in one call")
        not_begun = tuple(self._waiting.values())
        self._waiting.clear()
        if lost is not None:
            status: Literal["timeout", "crash"] = "timeout" if self._overdue else "crash"
            outcome = _lost(status, f"the worker {reason}", self._process.stderr)
            judged(lost, replace(outcome, seconds=self._seconds_of_lost(exit_.cpu)))
        return Death(f"{reason}" + (f", in {lost.cell[0]}" if lost else ", between two calls"), not_begun)

    def _seconds_of_lost(self, cpu: float) -> dict[str, float]:
        """The time of the call in which the process died; cpu: of the process in all."""
        seconds = {"call": asyncio.get_running_loop().time() - self._since}
        if self._cpu_before is not None:
            seconds["cpu"] = max(cpu - self._cpu_before, 0.0)
            self._call_cpu += seconds["cpu"]
        return seconds

    async def close(self) -> Usage:
        """Let the process finish and exit, or kill it if it does not; return its resource usage."""
        self._process.finish_input()
        due = asyncio.get_running_loop().time() + self._limits.close
        try:
            if (message := await self._next(due)) is not None:
                peak = message.fields.get("peak")
                self._peak = max(self._peak, peak if message.kind == "bye" and type(peak) is int else 0)
                if await self._next(due) is not None:
                    self._process.kill()
        except (TimeoutError, WireError):  # all answers have arrived: a fault at the end costs no verdict
            self._process.kill()
        return await self.abort()

    async def abort(self) -> Usage:
        """Kill the process and stop receiving; return its resource usage."""
        exit_ = await self._process.dispose()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        start_cpu, peak = float(self._hello.get("cpu", 0.0)), int(self._hello.get("peak", 0))
        return Usage("", exit_.cpu, start_cpu, self._call_cpu, max(self._peak, peak), str(exit_))

    @property
    def stderr(self) -> str:
        """The end of what the process wrote to standard error."""
        return self._process.stderr


def _lost(status: Literal["timeout", "crash"], reason: str, stderr: str) -> Outcome:
    return Outcome(status, reason=reason, error={"type": status, "message": reason, "traceback": stderr[-EXCERPT:]})
