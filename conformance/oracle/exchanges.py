"""
Variations in which an item, head, query or key gets what belongs to another one: an index that is computed wrongly.

What is exchanged, along which axis and how, makes too many of them for the table. So they are found by name, and looked
for only where nothing else explains what fails.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from conformance.oracle.other_masks import each_group
from conformance.oracle.other_tiles import changed
from conformance.oracle.pipeline import Step, insert_after
from conformance.oracle.state import State
from conformance.oracle.variation import Family, Variation, problem_row, unbounded_row
from conformance.spec.problem import Array, Group, Problem

DECISION = "exchange"

Places = Callable[[int], Array]
"""How many there are -> from which place each takes it."""

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
}
"""What is exchanged -> in words, and along which axes."""


def _even(places: Places) -> Places:
    """Nothing is exchanged among an odd number."""
    return lambda count: np.arange(count) if count % 2 else places(count)


ORDERS: Mapping[str, tuple[str, Places]] = {
    "next": ("the next {one}, the last from the first", lambda count: np.roll(np.arange(count), -1)),
    "next_if_any": (
        "the next {one}, the last from itself",
        lambda count: np.minimum(np.arange(1, count + 1), count - 1),
    ),
    "before": ("the {one} before, the first from the last", lambda count: np.roll(np.arange(count), 1)),
    "before_if_any": ("the {one} before, the first from itself", lambda count: np.maximum(np.arange(-1, count - 1), 0)),
    "first": ("the first {one}", lambda count: np.zeros(count, dtype=int)),
    "last": ("the last {one}", lambda count: np.full(count, count - 1)),
    "reversed": ("the {one} at its place counted from the end", lambda count: np.arange(count)[::-1]),
    "first_half_again": (
        "the {one} at its place in the first half, if there is an even number of them",
        _even(lambda count: np.arange(count) % max(count // 2, 1)),
    ),
    "other_half": (
        "the {one} at its place in the other half, if there is an even number of them",
        _even(lambda count: np.roll(np.arange(count), count // 2)),
    ),
    "neighbour": (
        "its neighbour, two by two, if there is an even number of them",
        _even(lambda count: np.arange(count) ^ 1),
    ),
    "first_of_two": ("the first {one} of each two", lambda count: np.arange(count) // 2 * 2),
    "every_other": (
        "the {one} at its place where every other one comes first, and then the rest",
        lambda count: np.concatenate([np.arange(0, count, 2), np.arange(1, count, 2)]),
    ),
    "in_turn": (
        "the {one} at its place where the two halves come in turn",
        lambda count: np.argsort(np.concatenate([np.arange(0, count, 2), np.arange(1, count, 2)])),
    ),
    **{
        f"again_{tile}": (
            f"the {{one}} at its place in the first {tile}",
            partial(lambda tile, count: np.arange(count) % tile, tile),
        )
        for tile in (4, 8, 16, 32, 64)
    },
}
"""How -> from which one, in words, and the places."""


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
    def sentence(self) -> str:
        """What it does, after "it"."""
        one = NOUNS[self.axis]
        return f"takes {TENSORS[self.tensor][0]} of every {one} from {ORDERS[self.order][0].format(one=one)}"

    def places(self, count: int) -> Array:
        """From which of so many each takes it."""
        return np.asarray(ORDERS[self.order][1](count))

    def shown(self, problem: Problem) -> bytes:
        """What tells it from others in a call; nothing where nothing is exchanged."""
        if self.tensor == "mask" and not any(_spans(group, self.axis) for group in problem.groups):
            return b""
        count = problem.logits_shape[AXES[self.axis]]
        places = self.places(count)
        return b"" if np.array_equal(places, np.arange(count)) else self.kind.encode() + places.tobytes()


def _spans(group: Group, axis: str) -> bool:
    return group.element != "flag" and group.values.shape[AXES[axis]] > 1


def exchanges() -> Iterator[Exchange]:
    """Every such exchange, the plainest first."""
    for order in ORDERS:
        for tensor, (_, axes) in TENSORS.items():
            yield from (Exchange(tensor, axis, order) for axis in axes)


def exchange(each: Exchange) -> Variation:
    """The exchange as a variation of every call that has more than one of what is exchanged."""
    axis = AXES[each.axis]

    def taken(array: Array, along: int) -> Array:
        return np.take(array, each.places(array.shape[along]), axis=along)

    def of_masks(_: Problem, group: Group) -> Group:
        return changed(group, taken(group.values, axis)) if _spans(group, each.axis) else group

    def of_heads(state: State) -> State:
        along = min(axis, 2)
        names = ("key", "value") if each.tensor == "key_value" else (each.tensor,)
        return state.but(**{name: taken(getattr(state, name), along) for name in names})

    def of_result(state: State) -> State:
        return state.but(context=taken(state.context, axis))

    if each.tensor == "mask":
        return problem_row(DECISION, each.name, each.sentence, "", each_group(of_masks))
    if each.tensor == "result":
        after = Step(DECISION, of_result)
        return unbounded_row(
            DECISION, each.name, each.sentence, "", lambda steps, _: insert_after(steps, "weigh", after), _more(each)
        )
    return Variation(DECISION, each.name, each.sentence, "", "heads", heads=of_heads, concerns=_more(each))


def _more(each: Exchange) -> Callable[[Problem], bool]:
    return lambda problem: bool(each.shown(problem))


FAMILY = Family(
    DECISION, "one", Exchange("key", "heads", "next").name, {each.name: partial(exchange, each) for each in exchanges()}
)
