"""What a session tells while it goes on, and how it is ended."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from conformance.engine.job import Started

Record = dict[str, Any]


class StopRun(Exception):  # noqa: N818 - asked for with -x, not an error
    """A rejected cell ends the run."""


@dataclass(frozen=True)
class Watch:
    """
    What a session tells while it goes on.

    cell: every record. worker: every worker that is ready or given up. stop: whether a record ends the run. total: how
    many cells there are, told before the first.
    """

    cell: Callable[[Record], None] = lambda _: None
    worker: Callable[[Started], None] = lambda _: None
    stop: Callable[[Record], bool] = lambda _: False
    total: Callable[[int], None] = lambda _: None
