"""Progress on stderr with the remaining time; after a run, its slowest calls and its page in a browser."""

import sys
import time
import webbrowser
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Self

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from conformance.cli.argument_parser import PLAIN, QUIET, VERBOSE
from conformance.engine.job import Started
from conformance.engine.logged_cell import LoggedCell
from conformance.report.terminal import plain_console
from conformance.spec.texts import counted, harmless

# Minimum number of seconds between two progress lines if stderr is not a terminal.
EVERY = 10.0

# Minimum number of seconds of judging before the remaining time is shown.
SURE = 3.0

# Number of seconds over which the current rate is measured: the last subjects can be far slower than the first.
WINDOW = 30.0


class Progress:
    """
    Counts cells as they are judged.

    name_red: print rejected cells at once; off where many rejected cells share few causes. level: QUIET prints nothing,
    VERBOSE prints every cell. first: what is done until the number of cells is known.
    """

    def __init__(
        self, stream: IO[str], *, name_red: bool = True, level: int = PLAIN, first: str = "reading cases"
    ) -> None:
        """Write to `stream`."""
        self._name_red, self._level = name_red, level
        self._console = plain_console(stream)
        columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.fields[left]}"))
        described = TextColumn("{task.description}")
        self._bar = Bar(described, *columns, console=self._console, transient=True)
        self._task = self._bar.add_task(first, total=None, left="")
        self._total: int | None = None
        self._cells = self._red = self._before = 0
        self._started = self._printed = time.monotonic()
        self._first: float | None = None
        self._recent: deque[tuple[float, int]] = deque()

    def plan(self, total: int, done: int = 0) -> None:
        """Set the total number of cells, and the number that was done before."""
        self._total, self._cells, self._before = total, done, done
        self._bar.update(self._task, total=total, completed=done, description="starting workers")
        self._say(f"{total:,} verdicts expected{f', {done:,} of them done before' if done else ''}")

    def worker(self, started: Started) -> None:
        """Print that a worker is ready, or why it failed to start."""
        if started.status == "ready":
            versions = ", ".join(f"{name} {version}" for name, version in started.hello.get("versions", {}).items())
            self._say(f"{started.plan.name}: ready after {started.seconds:.1f} s ({versions})")
        else:
            self._say(f"{started.plan.name}: {started.reason}")

    def cell(self, cell: LoggedCell) -> None:
        """Count one cell."""
        self._note_time()
        self._cells += 1
        red = not cell.green
        self._red += red
        if self._first is None and cell.verdict != "unsupported":
            self._first = time.monotonic()
        if self._level == VERBOSE or (red and self._name_red):
            self._say(f"{cell.verdict}: {cell.case} on {cell.subject}{_took(cell, self._level)}")
        self._bar.update(
            self._task, completed=self._cells, description=f"judging, {self._red} rejected", left=self.left
        )
        if not self._console.is_terminal and time.monotonic() - self._printed > EVERY:
            self._printed = time.monotonic()
            left = f", {self.left}" if self.left else ""
            self._say(f"{self._judged} judged, {self._red} rejected, {self._printed - self._started:.0f} s{left}")

    def search(self, subject: str) -> None:
        """Show that the causes of a subject's failures are searched; the display of the next cell replaces this."""
        self._bar.update(self._task, description=f"searching causes of {harmless(subject)}", left="")

    @property
    def _judged(self) -> str:
        return counted(self._cells, "cell") if self._total is None else f"{self._cells:,} of {self._total:,} cells"

    @property
    def left(self) -> str:
        """
        Return the estimated remaining time in words, or "" if it is not known yet.

        Expensive calls come first, so at first the mean time of all calls counts more than that of the last ones.
        """
        now = time.monotonic()
        new = self._cells - self._before
        if self._total is None or self._first is None or now - self._first < SURE or not new:
            return ""
        since, before = self._recent[0]
        mean, recent = (now - self._first) / new, (now - since) / max(self._cells - before, 1)
        done = min(self._cells / self._total, 1.0)
        of_one = mean ** (1.0 - done) * recent**done
        return f"about {_duration(of_one * max(self._total - self._cells, 0))} left"

    def _note_time(self) -> None:
        """Keep the number of cells at some times within the last WINDOW seconds, and one before them."""
        now = time.monotonic()
        if not self._recent or now - self._recent[-1][0] >= 1.0:
            self._recent.append((now, self._cells))
        while len(self._recent) > 1 and now - self._recent[1][0] > WINDOW:
            self._recent.popleft()

    def _say(self, text: str) -> None:
        if self._level != QUIET:
            self._console.print(harmless(text))

    def __enter__(self) -> Self:
        if self._console.is_terminal and self._level != QUIET:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._bar.stop()


def _duration(seconds: float) -> str:
    """Return a duration in seconds, minutes or hours."""
    if seconds < 90:  # noqa: PLR2004 - "1 min" is too coarse
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes / 60:.1f} h"  # noqa: PLR2004 - the same for hours


def _took(cell: LoggedCell, level: int) -> str:
    seconds = cell.seconds.get("call")
    return f", {seconds:.3f} s" if level == VERBOSE and seconds is not None else ""


def print_slowest(cells: Iterable[LoggedCell], number: int | None) -> None:
    """Print the slowest calls: all of them if the number is 0, nothing if it is None."""
    if number is None:
        return
    took = [(cell.seconds["call"], f"{cell.case} on {cell.subject}") for cell in cells if "call" in cell.seconds]
    took.sort(key=lambda each: each[0], reverse=True)
    shown = took[: number or None]
    print(f"The slowest {counted(len(shown), 'call')} of {len(took):,}:")
    for seconds, call in shown:
        print(f"{seconds:9.3f} s  {call}")


def open_page(folder: Path) -> None:
    """Open the page of a run folder in the browser; print its path if there is no browser."""
    page = (folder / "index.html").absolute()
    if not webbrowser.open(page.as_uri()):
        print(f"conformance: no browser was found; open {page} yourself", file=sys.stderr)
