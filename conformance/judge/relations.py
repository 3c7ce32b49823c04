"""
Whether an invariant holds between two replies of one subject.

The two replies are compared with each other, not with the oracle; how far they may be apart is the sum of their two
bounds, and what the oracle's own two answers are apart. The oracle says only where a relation is to be asked: where it
does not hold under what is declared (a uniform average over all keys sees an appended key), nothing is.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from conformance.bridge.tensor import Tensor
from conformance.judge.expectation import Expectation
from conformance.judge.invariants import Invariant
from conformance.spec.problem import Array, Problem

MATTERS = 10.0
"""Where the oracle moves by so many bounds, the reply must move by more than one."""


@dataclass(frozen=True, eq=False)
class Side:
    """A problem, what is expected under the declaration, and what came back."""

    problem: Problem
    expected: Expectation
    actual: Mapping[str, Tensor]


@dataclass(frozen=True)
class Relation:
    """
    How a relation stood: holds, broken, or not asked (it does not hold under what is declared).

    where: of a broken one, output, place, numbers, what was allowed.
    """

    name: str
    found: str
    sentence: str = ""
    where: str = ""

    def record(self) -> dict[str, Any]:
        """For the run log."""
        record = {"name": self.name, "found": self.found}
        return record | ({"sentence": self.sentence, "where": self.where} if self.found == "broken" else {})


def relate(invariant: Invariant, first: Side, second: Side) -> Relation:
    """See whether the relation holds between the reply to a problem and the one to the changed problem."""
    asked = False
    for name, expected in second.expected.reply.items():
        if invariant.moves and name != "output":
            continue
        follow = partial(invariant.follow, first.problem, name)
        follows = follow(first.expected.reply[name].values)
        if follows.shape != expected.values.shape:
            continue
        apart = _gap(follows, expected.values)
        allowed = follow(first.expected.bounds[name].tolerance) + second.expected.bounds[name].tolerance
        places = np.isfinite(apart) & (apart > MATTERS * allowed) if invariant.moves else apart <= allowed
        if not places.any():
            continue
        asked = True
        before, after = first.actual[name], second.actual[name]
        if before.shape != first.expected.reply[name].values.shape or after.shape != places.shape:
            where = f"{name}: shapes {list(before.shape)} and {list(after.shape)}"
        else:
            where = _broken(invariant, name, (follow(before.float64()), after.float64()), (places, apart, allowed))
        if where:
            return Relation(invariant.name, "broken", invariant.sentence, where)
    return Relation(invariant.name, "holds" if asked else "not asked")


def _broken(invariant: Invariant, name: str, replies: tuple[Array, Array], oracle: tuple[Array, Array, Array]) -> str:
    """
    Where and how much, of the place that is worst; "" where the relation holds.

    replies: what the first makes follow, and the second. oracle: where it has the relation, how far apart its own two
    answers are, by which two replies that follow may differ beside their bounds, and the sum of these.
    """
    (want, have), (places, apart, allowed) = replies, oracle
    gap, allowed = _gap(want, have), allowed + (0.0 if invariant.moves else apart)
    wrong = places & ((gap <= allowed) if invariant.moves else (gap > allowed))
    if not wrong.any():
        return ""
    excess = np.where(wrong, -gap if invariant.moves else gap, -np.inf)
    at = np.unravel_index(int(np.argmax(excess)), gap.shape)
    place, number = [int(each) for each in at], f"{int(wrong.sum())} of {wrong.size}"
    if invariant.moves:
        return (
            f"{name}: {number} elements do not change, such as {have[at]:.6g} at {place}, "
            f"which must change by {apart[at]:.3g}"
        )
    return (
        f"{name}: {number} elements differ; {have[at]:.6g} at {place}, before the change {want[at]:.6g}, "
        f"allowed {allowed[at]:.3g}"
    )


def _gap(one: Array, other: Array) -> Array:
    """How far apart, infinite where only one is finite, zero where both are the same non-finite."""
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    with np.errstate(invalid="ignore"):
        gap = np.where(same, 0.0, np.abs(one - other))
    return np.where(np.isnan(gap), np.inf, gap)
