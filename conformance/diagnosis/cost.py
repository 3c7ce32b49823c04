"""
The cost of an explanation in bits; the explanation with the fewest bits is reported.

A cause costs its prior and its condition. Each failing cell without a cause costs UNEXPLAINED bits. So the gain of a
cause is the cost of the cells that it explains, minus its own cost.
"""

from collections.abc import Iterable
from math import log2

from conformance.deviations.names import FRAMEWORK_BITS, USUAL_BITS, bits_of
from conformance.diagnosis.explanation import CANONICAL, Way

# Bits for a failing cell without a cause: enough to pay for a second everyday mistake in that cell alone.
UNEXPLAINED = 8.0

# Bits for each further deviation that is combined with the first. A usual one, which straightforward code has beside
# any other mistake, is no surprise and costs only its prior.
SECOND_DEVIATION = 4.0

# Maximum extra cost, in bits, of an explanation that is reported in addition to the best.
MAX_EXTRA_COST = 2.0

# Maximum number of explanations that are reported in addition to the best.
MAX_ALTERNATIVES = 2


def of_change(change: Iterable[Way], *, coarser: bool = False) -> float:
    """The cost of deviations or of coarser arithmetic, in bits; undoing a declared way costs nothing."""
    each = [0.0 if name == CANONICAL else bits_of(decision, name) for decision, name in change]
    surprises = sum(bits != USUAL_BITS for bits in each)
    return sum(each) + SECOND_DEVIATION * max(surprises - 1, 0) + (FRAMEWORK_BITS if coarser else 0.0)


def of_condition(terms: int, conditions: int) -> float:
    """The cost of a condition with `terms` terms, each chosen from `conditions` possible conditions, in bits."""
    return terms * log2(max(conditions, 2))


def saved(cells: int, cost: float) -> float:
    """The bits saved by an explanation of `cells` failing cells that costs `cost` bits."""
    return UNEXPLAINED * cells - cost
