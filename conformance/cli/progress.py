"""Progress on stderr: a moving line on a terminal, a line now and then elsewhere."""

import time
from typing import IO, Any, Self

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from conformance.engine.job import Started
from conformance.judge.verdict import is_green
from conformance.report.terminal import plain_console

EVERY = 10.0
"""Seconds between two lines where stderr is no terminal."""


class Progress:
    """Counts cells as they are judged; red ones are named at once, unless there may be many of few causes."""

    def __init__(self, stream: IO[str], *, name_red: bool = True) -> None:
        """Write to `stream`."""
        self._name_red = name_red
        self._console = plain_console(stream)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Bar(*columns, console=self._console, transient=True)
        self._task = self._bar.add_task("judging", total=None)
        self._cells = self._red = 0
        self._started = self._told = time.monotonic()

    def worker(self, started: Started) -> None:
        """Tell that a worker is ready, or why it is given up."""
        if started.status == "ready":
            versions = ", ".join(f"{name} {version}" for name, version in started.hello.get("versions", {}).items())
            self._console.print(f"{started.plan.name}: ready after {started.seconds:.1f} s ({versions})")
        else:
            self._console.print(f"{started.plan.name}: {started.reason}")

    def cell(self, record: dict[str, Any]) -> None:
        """Count one cell."""
        self._cells += 1
        if not is_green(record):
            self._red += 1
            if self._name_red:
                self._console.print(f"{record['verdict']}: {record['case']} on {record['subject']}")
        self._bar.update(self._task, completed=self._cells, description=f"judging, {self._red} rejected")
        if not self._console.is_terminal and time.monotonic() - self._told > EVERY:
            self._told = time.monotonic()
            self._console.print(f"{self._cells} cells judged, {self._red} rejected, {self._told - self._started:.0f} s")

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._bar.stop()
