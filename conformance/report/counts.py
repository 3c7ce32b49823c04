"""Numbers and verdicts as people read them."""

from collections import Counter
from collections.abc import Iterable
from math import isfinite

from conformance.engine.records import Cell
from conformance.verdicts.verdict import GRAVITY, LOST, gist

# What is less would read 0.00.
SMALL = 0.005
# From here on decimals say nothing,
LARGE = 10
# and from here on all digits say no more than two.
LONG = 10_000


def budget_text(budget: float | None) -> str:
    """A budget as people read it: two significant digits, in plain notation where that is short."""
    if budget is None:
        return ""
    if not isfinite(budget):
        return str(budget)
    if 0 < budget < SMALL:
        return "<0.01"
    if budget < LARGE:
        return f"{budget:.2f}"
    return f"{budget:.0f}" if budget < LONG else f"{budget:.0e}".replace("e+0", "e").replace("e+", "e")


def share_text(share: float | None) -> str:
    """A share as a percentage; 100 % only where nothing is left out."""
    if share is None:
        return ""
    return f"{int(share * 100)} %"


KNOWN = "known"
# What cells are counted by: their verdict, or that a known deviation accepts it.
COUNTED = (*(verdict for verdict in GRAVITY if verdict not in (*LOST, "fail")), KNOWN, "fail", *LOST)


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
