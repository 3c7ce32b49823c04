"""Numbers as people read them."""

from math import isfinite

SMALL = 0.005
"""What is less would read 0.00."""
LARGE = 10
"""From here on decimals say nothing,"""
LONG = 10_000
"""and from here on all digits say no more than two."""


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
