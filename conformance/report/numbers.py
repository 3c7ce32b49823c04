"""Numbers as people read them."""


def budget_text(budget: float | None) -> str:
    """A budget as people read it: two significant digits, in plain notation where that is short."""
    if budget is None:
        return ""
    if budget != budget or abs(budget) == float("inf"):  # noqa: PLR0124 - only nan differs from itself
        return str(budget)
    if 0 < budget < 0.005:  # noqa: PLR2004 - would read 0.00
        return "<0.01"
    if budget < 10:  # noqa: PLR2004 - from here on decimals say nothing
        return f"{budget:.2f}"
    return f"{budget:.0f}" if budget < 10_000 else f"{budget:.0e}".replace("e+0", "e").replace("e+", "e")  # noqa: PLR2004


def share_text(share: float | None) -> str:
    """A share as a percentage; 100 % only where nothing is left out."""
    if share is None:
        return ""
    return f"{int(share * 100)} %"
