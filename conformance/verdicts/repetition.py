"""
What a call that is asked again says about its first reply: the same, nondeterministic, or order dependent.

In the old worker it is asked three times in a row, so that two replies follow the very same call, and more often where
another call of the subject had two; then once alone in a fresh one. ReplyCache are the same where all their bits are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from conformance.bridge.tensor import Tensor

# The gravest first.
CLASSES = (NONDETERMINISTIC, ORDER_DEPENDENT) = ("nondeterministic", "order_dependent")
# So often a call is asked again in the same worker.
IN_A_ROW = 3

# What came back, None for an exception.
Reply = Mapping[str, Tensor] | None


@dataclass(frozen=True)
class Repetition:
    """
    What was found: same, or one of CLASSES, then with the reason in words.

    again, alone: how often it was asked again in the same worker, and in a fresh one.
    """

    found: str
    again: int
    alone: int
    reason: str = ""

    def record(self) -> dict[str, object]:
        """For the run log."""
        record: dict[str, object] = {"found": self.found, "again": self.again, "alone": self.alone}
        return record | ({"reason": self.reason} if self.reason else {})


def repetition(first: Reply, again: Sequence[Reply], alone: Sequence[Reply]) -> Repetition:
    """Compare the replies to one call: the first, those in the same worker in their order, those in a fresh one."""
    asked = (len(again), len(alone))
    # the first of a row follows another call
    in_a_row = (pair for row in (again[:IN_A_ROW], again[IN_A_ROW:]) for pair in pairwise(row[1:]))
    for one, other in in_a_row:
        if how := _spread(one, other):
            return Repetition(
                NONDETERMINISTIC, *asked, f"the same call, made twice in a row, returns two different results: {how}"
            )
    for where, others in (("after other calls", again), ("alone in a fresh worker", alone)):
        for other in others:
            if how := _spread(other, first):
                return Repetition(ORDER_DEPENDENT, *asked, f"{where}, the same call returns a different result: {how}")
    return Repetition("same", *asked)


def _spread(one: Reply, other: Reply) -> str:
    """How far two replies are from each other, in words; "" where they are the same."""
    if one is None or other is None:
        return "" if one is other else "one of the two calls raises an exception"
    return next((how for name, tensor in one.items() if (how := _difference(name, tensor, other[name]))), "")


def _difference(name: str, one: Tensor, other: Tensor) -> str:
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return f"{name} is {one.dtype} {list(one.shape)}, then {other.dtype} {list(other.shape)}"
    if one.bits.tobytes() == other.bits.tobytes():
        return ""
    here, there = one.float64(), other.float64()
    with np.errstate(invalid="ignore"):
        gap = np.where(here == there, 0.0, np.abs(here - there))
    gap = np.where(np.isnan(gap) & ~(np.isnan(here) & np.isnan(there)), np.inf, np.nan_to_num(gap, nan=0.0))
    at = np.unravel_index(int(gap.argmax()), gap.shape)
    return f"{name} {here[at]:.9g}, then {there[at]:.9g} at {[int(each) for each in at]}"
