"""
What an explanation costs, in bits: the explanation with the fewest bits is told.

A cause costs what it is a priori, and its condition; a failing cell that stays without a cause costs as well. So a
cause is worth the cells that it explains, less what it costs.
"""

from collections.abc import Iterable
from math import log2

from conformance.deviations.names import FRAMEWORK_BITS, bits_of
from conformance.diagnosis.explanation import CANONICAL, Way

# A failing cell without a cause: enough for a second everyday mistake beside a first, in that cell alone.
UNEXPLAINED = 8.0

# A further decision of a pair.
SECOND_DEVIATION = 4.0

# An explanation is told beside the best if it costs less than so much more.
MAX_EXTRA_COST = 2.0

# So many explanations are told beside the best, at most.
MAX_ALTERNATIVES = 2


def of_change(change: Iterable[Way], *, coarser: bool = False) -> float:
    """What decisions that are taken otherwise cost, or coarser arithmetic; taking a declared one back costs nothing."""
    each = [0.0 if name == CANONICAL else bits_of(decision, name) for decision, name in change]
    return sum(each) + SECOND_DEVIATION * max(len(each) - 1, 0) + (FRAMEWORK_BITS if coarser else 0.0)


def of_condition(terms: int, conditions: int) -> float:
    """What a condition of so many terms costs, each of which is one of so many conditions that tell cells apart."""
    return terms * log2(max(conditions, 2))


def saved(cells: int, cost: float) -> float:
    """By how much an explanation of so many cells, that costs so much, is shorter than none."""
    return UNEXPLAINED * cells - cost
