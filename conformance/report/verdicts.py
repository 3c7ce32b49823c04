"""Verdicts in words: of one cell what happened, of several how many there are."""

from collections import Counter
from collections.abc import Iterable

from conformance.engine.records import Cell
from conformance.judge.exceptions import gist
from conformance.judge.verdict import GRAVITY, LOST

KNOWN = "known"
COUNTED = (*(verdict for verdict in GRAVITY if verdict not in (*LOST, "fail")), KNOWN, "fail", *LOST)
"""What cells are counted by: their verdict, or that a known deviation accepts it."""


def kind_of(cell: Cell) -> str:
    """The verdict, and of a fail its class."""
    return f"{cell.verdict}, {cell.fail_class}" if cell.fail_class else cell.verdict


def what_happened(cell: Cell) -> str:
    """One line on a cell: the exception, else the reason, else the verdict."""
    if cell.error is not None and cell.verdict in LOST:
        return f"{cell.error.kind}: {gist(cell.error.message)}"
    return first_line(cell.reason) or kind_of(cell)


def first_line(text: str) -> str:
    """The first line that says anything."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def verdict_counts(cells: Iterable[Cell]) -> dict[str, int]:
    """How many cells have each verdict that occurs, and how many are known deviations, least grave first."""
    tally = Counter(cell.verdict if cell.known is None else KNOWN for cell in cells)
    return {kind: tally[kind] for kind in COUNTED if tally[kind]}
