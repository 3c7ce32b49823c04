"""Numbers and verdicts formatted for people."""

from collections import Counter
from collections.abc import Iterable
from math import isfinite

from conformance.engine.logged_cell import JudgedCell, LoggedCell
from conformance.verdicts.verdict import GRAVITY, LOST, gist

# Smaller budgets would be printed as 0.00.
MIN_BUDGET = 0.005
# Budgets from here on are printed without decimals,
MIN_WITHOUT_DECIMALS = 10
# and from here on in scientific notation.
MIN_SCIENTIFIC = 10_000


def budget_text(budget: float | None) -> str:
    """A budget with two decimals below 10, as an integer below 10,000, else in scientific notation; "" for None."""
    if budget is None:
        return ""
    if not isfinite(budget):
        return str(budget)
    if 0 < budget < MIN_BUDGET:
        return "<0.01"
    if budget < MIN_WITHOUT_DECIMALS:
        return f"{budget:.2f}"
    return f"{budget:.0f}" if budget < MIN_SCIENTIFIC else f"{budget:.0e}".replace("e+0", "e").replace("e+", "e")


def share_text(share: float | None) -> str:
    """A share as a percentage, rounded down: 100 % only if nothing is left out; "" for None."""
    if share is None:
        return ""
    return f"{int(share * 100)} %"


KNOWN = "known"
# What cells are counted by: their verdict, or "known" if a known deviation accepts it.
COUNTED = (*(verdict for verdict in GRAVITY if verdict not in (*LOST, "fail")), KNOWN, "fail", *LOST)


def kind_of(cell: LoggedCell | JudgedCell) -> str:
    """The verdict; for a fail also its class."""
    return f"{cell.verdict}, {cell.fail_class}" if cell.fail_class else cell.verdict


def what_happened(cell: LoggedCell) -> str:
    """One line about a cell: the exception, else the reason, else the verdict."""
    if cell.error is not None and cell.verdict in LOST:
        kind, said = cell.error.kind, gist(cell.error.message)
        return kind if said in ("", kind) else f"{kind}: {said}"
    return first_line(cell.reason) or kind_of(cell)


def first_line(text: str) -> str:
    """The first line that is not blank."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def verdict_counts(cells: Iterable[JudgedCell]) -> dict[str, int]:
    """The number of cells per verdict that occurs, known deviations counted separately; least grave first."""
    tally = Counter(cell.verdict if cell.known is None else KNOWN for cell in cells)
    return {kind: tally[kind] for kind in COUNTED if tally[kind]}
