"""All workers of a run: one queue of jobs for each plan, a limit on living processes, and no process left behind."""

import asyncio
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from conformance.bridge.messages import ANSWERS
from conformance.disk import scratch
from conformance.engine.conversation import EXCERPT, Conversation, Death, StartFailure
from conformance.engine.job import Job, Limits, Outcome, Report, Started, Usage
from conformance.engine.process import Process, copy_bridge
from conformance.engine.worker_plan import WorkerPlan, prune


@dataclass(frozen=True)
class Hooks:
    """
    The functions that a pool calls.

    jobs: returns the calls for a plan. It is called once, when the worker is ready, and consumed lazily.
    judged: takes each outcome, and may return further jobs for the same plan (`fresh` jobs run alone in a new process).
    started: called once for every process that is ready, and for a plan that is given up.
    recalled: returns the greeting of a plan's worker from an earlier run. If there is one, a process is started only
    when a job is left for it.
    """

    jobs: Callable[[WorkerPlan, Started], Iterable[Job]]
    judged: Callable[[Job, Outcome], Iterable[Job] | None]
    started: Callable[[Started], None]
    recalled: Callable[[WorkerPlan], Started | None] = lambda _: None


class Backlog:
    """The jobs that a plan still has to do."""

    def __init__(self) -> None:
        self._source: Iterator[Job] | None = None
        self._next: deque[Job] = deque()
        self._fresh: deque[Job] = deque()

    @property
    def opened(self) -> bool:
        """Whether it has a source of jobs."""
        return self._source is not None

    def open(self, jobs: Iterable[Job]) -> None:
        """Set the source of jobs."""
        self._source = iter(jobs)

    def add(self, jobs: Iterable[Job]) -> None:
        """Put these jobs first, in this order; jobs that need a fresh process go last."""
        given = list(jobs)
        self._next.extendleft(job for job in reversed(given) if not job.fresh)
        self._fresh.extend(job for job in given if job.fresh)

    def give_back(self, jobs: Iterable[Job]) -> None:
        """Return jobs that were taken; they come before all others of their kind."""
        given = list(jobs)
        self._next.extendleft(job for job in reversed(given) if not job.fresh)
        self._fresh.extendleft(job for job in reversed(given) if job.fresh)

    def take(self) -> Job | None:
        """The next job that needs no fresh process."""
        if self._next:
            return self._next.popleft()
        for job in self._source or ():
            if not job.fresh:
                return job
            self._fresh.append(job)
        return None

    def take_fresh(self) -> Job | None:
        """The next job that needs a fresh process."""
        return self._fresh.popleft() if self._fresh else None

    def has_more(self) -> bool:
        """Whether there is any job left."""
        if (job := self.take()) is not None:
            self.give_back([job])
        return job is not None or bool(self._fresh)


class WorkerQueue:
    """
    Serves one plan.

    launch: starts a process for it. process: one that was started in advance. kept: the conversation with a process
    that was kept after it had served this plan, or one that differs in the adapter alone.
    """

    def __init__(self, plan: WorkerPlan, limits: Limits, launch: Callable[[WorkerPlan], Process]) -> None:
        self.plan = plan
        self.process: Process | None = None
        self.kept: Conversation | None = None
        self._limits = limits
        self._launch = launch
        self._backlog = Backlog()
        self._usage: list[Usage] = []
        self._deaths = 0
        self._failed_starts = 0
        self._stderr = ""

    async def run(self, hooks: Hooks, *, keep: bool) -> Report:
        """Serve until no job is left, or until the plan is given up. keep: whether its process then lives on."""
        if self._is_done(hooks):
            return Report(self.plan, ())
        failure = ""
        while not failure:
            try:
                more = await self._one_process(hooks, keep=keep)
            except StartFailure as error:
                self._failed_starts += 1
                if error.worth_another and self._failed_starts < self._limits.starts:
                    continue
                failure = f"did not start: {error}{_where(self._stderr) if error.worth_another else ''}"
            else:
                if isinstance(more, Death) and self._deaths > self._limits.deaths:
                    failure = f"died {self._deaths} times in a row; the last {more.reason}"
                elif more is None:
                    return Report(self.plan, tuple(self._usage))
        self._give_up(hooks, failure)
        return Report(self.plan, tuple(self._usage), failure)

    def _is_done(self, hooks: Hooks) -> bool:
        """Whether every reply is known from an earlier run, so no process is needed."""
        recalled = hooks.recalled(self.plan) if self.process is None else None
        if recalled is None:
            return False
        hooks.started(recalled)
        self._backlog.open(hooks.jobs(self.plan, recalled))
        return not self._backlog.has_more()

    async def _one_process(self, hooks: Hooks, *, keep: bool) -> "Death | bool | None":
        """
        Serve with one process, the kept one if there is one.

        Returns how it died, True if another process is needed, None if all jobs are done.
        """
        kept, self.kept = self.kept, None
        since = time.monotonic()
        conversation = kept or Conversation(self._new_process(), self._limits)
        used = None
        try:
            if kept is None:
                await conversation.open()
                hello = await conversation.greet()
            else:
                hello = await conversation.load(self.plan, self._limits)
            self._ready(conversation, hello, since, hooks)
            death = await conversation.serve(self._takes(), lambda job, outcome: self._judge(hooks, job, outcome))
            if death is None and keep and not self._backlog.has_more():
                self.kept = conversation
            elif death is None:
                used = await conversation.close()
        except StartFailure:
            if kept is None:
                raise
            return True  # a new process says what is wrong, if anything is
        finally:
            if self.kept is None:
                used = used or await conversation.abort()
                self._stderr = conversation.stderr[-EXCERPT:]
                self._usage.append(replace(used, worker=self.plan.name))
        if death is None:
            return True if self._backlog.has_more() else None
        self._deaths += 1
        self._backlog.give_back(death.not_begun)
        return death

    def _new_process(self) -> Process:
        """
        The process that was started in advance, or a new one.

        Raises:
            StartFailure: the interpreter cannot be run.
        """
        process, self.process = self.process, None
        try:
            return process or self._launch(self.plan)
        except OSError as error:
            raise StartFailure(f"{self.plan.python}: {error.strerror or error}") from None

    def _ready(self, conversation: Conversation, hello: Mapping[str, Any], since: float, hooks: Hooks) -> None:
        self._failed_starts = 0
        seconds = time.monotonic() - since
        started = Started(self.plan, "ready", hello, seconds, stderr=conversation.stderr[-EXCERPT:])
        hooks.started(started)
        if not self._backlog.opened:
            self._backlog.open(hooks.jobs(self.plan, started))

    def _takes(self) -> Callable[[], Job | None]:
        """The source of jobs for the next process: all ordinary jobs, or one job that needs a process for itself."""
        first = self._backlog.take()
        if first is None:
            alone = iter([self._backlog.take_fresh()])
            return lambda: next(alone, None)
        self._backlog.give_back([first])
        return self._backlog.take

    def _judge(self, hooks: Hooks, job: Job, outcome: Outcome) -> None:
        if outcome.status in ANSWERS:
            self._deaths = 0
        self._backlog.add(hooks.judged(job, outcome) or ())

    def _give_up(self, hooks: Hooks, failure: str) -> None:
        """Report the failure once, and report every job that is left as not run."""
        hooks.started(Started(self.plan, "failed", reason=failure, stderr=self._stderr))
        while (job := self._backlog.take() or self._backlog.take_fresh()) is not None:
            hooks.judged(job, Outcome("not_run", reason=f"its worker {failure}"))


# What introduces the name of the module that was being imported when a process died.
OF_IMPORT = ", while it imported "


def _where(stderr: str) -> str:
    """Name the module that was being imported when a process died, as Python's fault handler reports it."""
    imported = re.search(r'File "([^"]+)", line \d+ in <module>', stderr)
    if imported is None:
        return ""
    return f"{OF_IMPORT}{imported[1]}: the installed package is broken, or its versions do not fit together"


class Pool:
    """Serves plans in the given order, so the slowest plan should come first."""

    def __init__(
        self,
        plans: Sequence[WorkerPlan],
        workers: int,
        limits: Limits | None = None,
        *,
        waits: Callable[[WorkerPlan], bool] = lambda _: False,
    ) -> None:
        """Take the plans. waits: whether the process of a plan is started only when a call is left for it."""
        self._workers = workers
        self._waits = waits
        self._queues = [WorkerQueue(plan, limits or Limits(), self._launch) for plan in plans]
        self._runner = asyncio.Runner()
        self._folder = scratch()
        self._home = Path(self._folder.name) / "home"
        self._launched: list[Process] = []

    def _launch(self, plan: WorkerPlan) -> Process:
        process = Process(plan, Path(self._folder.name) / "bridge", self._home)
        self._launched.append(process)
        return process

    @property
    def plans(self) -> list[WorkerPlan]:
        """The plans that the workers serve."""
        return [queue.plan for queue in self._queues]

    def start(self) -> None:
        """Start as many processes as may live at once, without waiting for them."""
        self._home.mkdir()
        copy_bridge(Path(self._folder.name) / "bridge")
        self._start_processes()

    def _start_processes(self) -> None:
        for folder in {Path(queue.plan.compiled).parent for queue in self._queues if queue.plan.compiled}:
            prune(folder)
        living = sum(queue.kept is not None for queue in self._queues)
        idle = [queue for queue in self._queues if queue.kept is None and not self._waits(queue.plan)]
        for queue in idle[: self._workers - living]:
            try:
                queue.process = self._launch(queue.plan)
            except OSError:
                continue  # the queue will try again, and report what is wrong

    def go_on(self, plans: Sequence[WorkerPlan], workers: int, limits: Limits) -> None:
        """
        Serve these plans from now on, whose adapters have the same helper files.

        The first one gets the process that `run` has kept, if it needs nothing else but another adapter.
        """
        before = self._queues
        self._workers = workers
        self._queues = [WorkerQueue(plan, limits, self._launch) for plan in plans]
        for old in before:
            if old.kept is None:
                continue
            if self._queues[0].kept is None and _differs_in_adapter(old.plan, plans[0]):
                self._queues[0].kept = old.kept
            else:
                self._runner.run(old.kept.abort())
        self._start_processes()

    def run(self, hooks: Hooks, *, keep: bool = False) -> list[Report]:
        """
        Serve all plans. keep: whether the processes live on, for `go_on`.

        Raises:
            KeyboardInterrupt: after every process has ended.
            Exception: whatever a hook raises, after every process has ended.
        """
        return self._runner.run(self._serve(hooks, keep=keep))

    async def _serve(self, hooks: Hooks, *, keep: bool) -> list[Report]:
        slots = asyncio.Semaphore(self._workers)

        async def in_turn(queue: WorkerQueue) -> Report:
            async with slots:
                return await queue.run(hooks, keep=keep)

        tasks = [asyncio.create_task(in_turn(queue)) for queue in self._queues]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def close(self) -> None:
        """Kill the processes that are still alive, and remove the copy of the bridge."""
        for queue in self._queues:
            if queue.kept is not None:
                self._runner.run(queue.kept.abort())
                queue.kept = None
        self._runner.close()
        for process in self._launched:
            process.abandon()
        self._folder.cleanup()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _differs_in_adapter(one: WorkerPlan, other: WorkerPlan) -> bool:
    """
    Whether a process of one plan can serve the other after it has loaded the other adapter.

    Where the other compiles nothing that is worth keeping, it does not matter where that would be kept.
    """
    first, second = (
        replace(plan, name="", adapter=Path(), subjects=(), distributions=(), part=0, parts=1) for plan in (one, other)
    )
    return first == replace(second, compiled=second.compiled or first.compiled)
