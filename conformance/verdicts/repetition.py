"""
Classifies repeated replies to one call: the same, nondeterministic, or order dependent.

The call is repeated three times in a row in the old worker, so that two of the replies follow the very same call. It is
repeated more often if another call of the subject had two different replies. Then it is made once alone in a fresh
worker. Two replies are the same if all their bits are equal.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from conformance.bridge.tensor import Tensor

# The classes of non-reproducible replies, the most severe first.
CLASSES = (NONDETERMINISTIC, ORDER_DEPENDENT) = ("nondeterministic", "order_dependent")
# Number of times that a call is repeated in the same worker.
IN_A_ROW = 3

# The reply to a call; None if it raised an exception.
Reply = Mapping[str, Tensor] | None


@dataclass(frozen=True)
class Repetition:
    """
    The result of repeating one call.

    found: `same`, or one of CLASSES with the reason. again, alone: how many times the call was repeated in the same
    worker and in a fresh one.
    """

    found: str
    again: int
    alone: int
    reason: str = ""

    def record(self) -> dict[str, object]:
        """The record for the run log."""
        record: dict[str, object] = {"found": self.found, "again": self.again, "alone": self.alone}
        return record | ({"reason": self.reason} if self.reason else {})


def repetition(first: Reply, again: Sequence[Reply], alone: Sequence[Reply]) -> Repetition:
    """Compare the replies to one call: the first, those in the same worker in order, and those in a fresh worker."""
    counts = (len(again), len(alone))
    # the first reply of a row is left out: it follows a different call
    in_a_row = (pair for row in (again[:IN_A_ROW], again[IN_A_ROW:]) for pair in pairwise(row[1:]))
    for one, other in in_a_row:
        if how := _spread(one, other):
            return Repetition(
                NONDETERMINISTIC, *counts, f"the same call, made twice in a row, returns two different results: {how}"
            )
    for where, others in (("after other calls", again), ("alone in a fresh worker", alone)):
        for other in others:
            if how := _spread(other, first):
                return Repetition(ORDER_DEPENDENT, *counts, f"{where}, the same call returns a different result: {how}")
    return Repetition("same", *counts)


def _spread(one: Reply, other: Reply) -> str:
    """Describe the first difference of two replies; "" if they are the same."""
    if one is None or other is None:
        return "" if one is other else "one of the two calls raises an exception"
    return next((how for name, tensor in one.items() if (how := _difference(name, tensor, other[name]))), "")


def _difference(name: str, one: Tensor, other: Tensor) -> str:
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return f"{name} is {one.dtype} {list(one.shape)}, then {other.dtype} {list(other.shape)}"
    if one.bits.tobytes() == other.bits.tobytes():
        return ""
    first, second = one.float64(), other.float64()
    with np.errstate(invalid="ignore"):
        gap = np.where(first == second, 0.0, np.abs(first - second))
    gap = np.where(np.isnan(gap) & ~(np.isnan(first) & np.isnan(second)), np.inf, np.nan_to_num(gap, nan=0.0))
    at = np.unravel_index(int(gap.argmax()), gap.shape)
    return f"{name} {first[at]:.9g}, then {second[at]:.9g} at {[int(each) for each in at]}"
