"""
Variations in which an item, head, query or key gets what belongs to another one: an index that is computed wrongly.

What is exchanged, along which axis and how, makes too many of them for the table. So they are found by name, and looked
for only where nothing else explains what fails.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from conformance.oracle.orders import ORDERS, Order
from conformance.oracle.other_masks import each_group
from conformance.oracle.other_tiles import changed
from conformance.oracle.pipeline import Step, insert_after
from conformance.oracle.state import State
from conformance.oracle.variation import Family, Variation, asks_for_weights, problem_row, unbounded_row
from conformance.spec.problem import Array, Group, Problem

DECISION = "exchange"

AXES = {"items": 0, "heads": 1, "queries": 2, "keys": 3}
"""Dimensions of the logits."""

NOUNS = {"items": "item", "heads": "head", "queries": "query", "keys": "key"}

TENSORS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "query": ("the query", ("items", "heads", "queries")),
    "key": ("the key", ("items", "heads", "keys")),
    "value": ("the value", ("items", "heads", "keys")),
    "key_value": ("key and value", ("items", "heads", "keys")),
    "mask": ("the mask", ("items", "heads", "queries", "keys")),
    "result": ("the result", ("items", "heads", "queries")),
    "weights": ("the returned weights", ("items", "heads", "queries", "keys")),
}
"""What is exchanged -> in words, and along which axes."""

AFTER = {"result": ("weigh", "context"), "weights": ("weights", "weights")}
"""What is exchanged when it is computed -> after which step, and which field of the state it is."""


@dataclass(frozen=True)
class Exchange:
    """tensor: one of TENSORS. axis: one of AXES. order: one of ORDERS."""

    tensor: str
    axis: str
    order: str

    @property
    def kind(self) -> str:
        """Those of one tensor along one axis are of one kind."""
        return f"{self.tensor}_{self.axis}"

    @property
    def name(self) -> str:
        """As it is written after `exchange=`."""
        return f"{self.kind}_{self.order}"

    @property
    def how(self) -> Order:
        """What is done along the axis."""
        return ORDERS[self.order]

    @property
    def sentence(self) -> str:
        """What it does, after "it"."""
        return self.how.words.format(what=TENSORS[self.tensor][0], one=NOUNS[self.axis])

    def shares(self, problem: Problem) -> Array | None:
        """What each has of each, along the axis; None where that is its own, or nobody sees it."""
        if self.tensor == "mask" and not any(_spans(group, self.axis) for group in problem.groups):
            return None
        if self.tensor == "weights" and not asks_for_weights(problem):
            return None
        count = problem.logits_shape[AXES[self.axis]]
        shares = self.how.shares(count)
        return None if np.array_equal(shares, np.eye(count)) else shares

    def shown(self, problem: Problem) -> bytes:
        """What tells it from others in a call; nothing where nothing is exchanged."""
        shares = self.shares(problem)
        return b"" if shares is None else self.kind.encode() + shares.tobytes()

    def rows(self, problem: Problem) -> Array:
        """The rows that may have another answer, broadcastable to (batch, num_heads, seq_len_q)."""
        shares, axis = self.shares(problem), AXES[self.axis]
        if shares is None:
            return np.zeros((1, 1, 1), dtype=bool)
        if self.axis == "keys" or (self.axis == "heads" and problem.num_heads != problem.num_kv_heads):
            return np.ones((1, 1, 1), dtype=bool)
        others = np.any(shares != np.eye(len(shares)), axis=1)
        return np.asarray(others.reshape([-1 if each == axis else 1 for each in range(3)]))


def _spans(group: Group, axis: str) -> bool:
    return group.element != "flag" and group.values.shape[AXES[axis]] > 1


def exchanges() -> Iterator[Exchange]:
    """Every such exchange, the plainest first."""
    for order, how in ORDERS.items():
        for tensor, (_, axes) in TENSORS.items():
            if not (how.sums and tensor == "mask"):
                yield from (Exchange(tensor, axis, order) for axis in axes)


def exchange(each: Exchange) -> Variation:
    """The exchange as a variation of every call that has more than one of what is exchanged."""
    axis, taken = AXES[each.axis], each.how.taken

    def of_masks(_: Problem, group: Group) -> Group:
        return changed(group, taken(group.values, axis)) if _spans(group, each.axis) else group

    def of_heads(state: State) -> State:
        names = ("key", "value") if each.tensor == "key_value" else (each.tensor,)
        return state.but(**{name: taken(getattr(state, name), min(axis, 2)) for name in names})

    if each.tensor == "mask":
        return problem_row(DECISION, each.name, each.sentence, "", each_group(of_masks))
    if each.tensor in AFTER:
        step, field = AFTER[each.tensor]
        after = Step(DECISION, lambda state: state.but(**{field: taken(getattr(state, field), axis)}))
        return unbounded_row(
            DECISION, each.name, each.sentence, "", lambda steps, _: insert_after(steps, step, after), _more(each)
        )
    return Variation(DECISION, each.name, each.sentence, "", "heads", heads=of_heads, concerns=_more(each))


def _more(each: Exchange) -> Callable[[Problem], bool]:
    return lambda problem: each.shares(problem) is not None


FAMILY = Family(
    DECISION, "one", Exchange("key", "heads", "next").name, {each.name: partial(exchange, each) for each in exchanges()}
)
