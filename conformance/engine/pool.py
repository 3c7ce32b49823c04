"""
All workers of a run: at most so many alive, started before there is work for them, none left behind.

    with Pool(plans, workers=3) as pool:              # the first processes start here
        cases = read(...)
        reports = pool.run(Hooks(jobs, judged, started))
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from conformance.disk import scratch
from conformance.engine.job import Limits, Report
from conformance.engine.lane import Hooks, Lane
from conformance.engine.plan import WorkerPlan
from conformance.engine.process import Process, copy_bridge


class Pool:
    """The plans are served in their order, so the slowest should stand first."""

    def __init__(
        self,
        plans: Sequence[WorkerPlan],
        workers: int,
        limits: Limits | None = None,
        *,
        waits: Callable[[WorkerPlan], bool] = lambda _: False,
    ) -> None:
        """Take the plans; waits: whether a plan's process is started only when a call is left for it."""
        self._workers = workers
        self._waits = waits
        self._lanes = [Lane(plan, limits or Limits(), self._launch) for plan in plans]
        self._folder = scratch()
        self._home = Path(self._folder.name) / "home"
        self._launched: list[Process] = []

    def _launch(self, plan: WorkerPlan) -> Process:
        process = Process(plan, Path(self._folder.name) / "bridge", self._home)
        self._launched.append(process)
        return process

    def start(self) -> None:
        """Start as many processes as may live at once, and do not wait for them."""
        self._home.mkdir()
        copy_bridge(Path(self._folder.name) / "bridge")
        for lane in [lane for lane in self._lanes if not self._waits(lane.plan)][: self._workers]:
            try:
                lane.process = self._launch(lane.plan)
            except OSError:
                continue  # the lane will try again, and report what is wrong

    def run(self, hooks: Hooks) -> list[Report]:
        """
        Serve all plans.

        Raises:
            KeyboardInterrupt: every process is gone before it leaves here.
            Exception: whatever a hook raises, likewise.
        """
        return asyncio.run(self._serve(hooks))

    async def _serve(self, hooks: Hooks) -> list[Report]:
        slots = asyncio.Semaphore(self._workers)

        async def in_turn(lane: Lane) -> Report:
            async with slots:
                return await lane.run(hooks)

        tasks = [asyncio.create_task(in_turn(lane)) for lane in self._lanes]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def close(self) -> None:
        """Kill what still lives, and remove the bridge's copy."""
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
