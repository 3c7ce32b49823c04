"""Ways in which each of several has what is made from others: by an index computed wrongly, by a sum that is kept."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from conformance.spec.problem import Array

Places = Callable[[int], Array]
"""How many there are -> from which place each takes it."""


@dataclass(frozen=True)
class Order:
    """
    How what each has is made from what all have.

    words: which one is taken, with {one} for what there are several of. taken: an array and an axis -> the array with
    others along that axis. sums: whether it adds up what must be numbers.
    """

    words: str
    taken: Callable[[Array, int], Array]
    sums: bool = False

    def shares(self, count: int) -> Array:
        """What each, a row, has of each, a column: of so many."""
        return self.taken(np.eye(count), 0)


def _from(places: Places, words: str) -> Order:
    return Order(
        "takes {what} of every {one} from " + words,
        lambda array, axis: np.take(array, places(array.shape[axis]), axis=axis),
    )


def _even(places: Places) -> Places:
    """Nothing is exchanged among an odd number."""
    return lambda count: np.arange(count) if count % 2 else places(count)


def _again(tile: int, count: int) -> Array:
    return np.arange(count) % tile


def _mean(array: Array, axis: int) -> Array:
    return np.broadcast_to(array.mean(axis=axis, keepdims=True), array.shape)


def _sum(array: Array, axis: int) -> Array:
    return np.broadcast_to(array.sum(axis=axis, keepdims=True), array.shape)


def _with_the_one_before(array: Array, axis: int) -> Array:
    before = np.roll(array, 1, axis=axis)
    first = np.arange(array.shape[axis]).reshape([-1 if each == axis else 1 for each in range(array.ndim)]) == 0
    return np.asarray(array + np.where(first, 0.0, before))


ORDERS: Mapping[str, Order] = {
    "next": _from(lambda count: np.roll(np.arange(count), -1), "the next {one}, the last from the first"),
    "next_if_any": _from(
        lambda count: np.minimum(np.arange(1, count + 1), count - 1), "the next {one}, the last from itself"
    ),
    "before": _from(lambda count: np.roll(np.arange(count), 1), "the {one} before, the first from the last"),
    "before_if_any": _from(
        lambda count: np.maximum(np.arange(-1, count - 1), 0), "the {one} before, the first from itself"
    ),
    "first": _from(lambda count: np.zeros(count, dtype=int), "the first {one}"),
    "last": _from(lambda count: np.full(count, count - 1), "the last {one}"),
    "reversed": _from(lambda count: np.arange(count)[::-1], "the {one} at its place counted from the end"),
    "first_half_again": _from(
        _even(lambda count: np.arange(count) % max(count // 2, 1)),
        "the {one} at its place in the first half, if there is an even number of them",
    ),
    "other_half": _from(
        _even(lambda count: np.roll(np.arange(count), count // 2)),
        "the {one} at its place in the other half, if there is an even number of them",
    ),
    "neighbour": _from(
        _even(lambda count: np.arange(count) ^ 1), "its neighbour, two by two, if there is an even number of them"
    ),
    "first_of_two": _from(lambda count: np.arange(count) // 2 * 2, "the first {one} of each two"),
    "every_other": _from(
        lambda count: np.concatenate([np.arange(0, count, 2), np.arange(1, count, 2)]),
        "the {one} at its place where every other one comes first, and then the rest",
    ),
    "in_turn": _from(
        lambda count: np.argsort(np.concatenate([np.arange(0, count, 2), np.arange(1, count, 2)])),
        "the {one} at its place where the two halves come in turn",
    ),
    **{
        f"again_{tile}": _from(partial(_again, tile), f"the {{one}} at its place in the first {tile}")
        for tile in (4, 8, 16, 32, 64)
    },
    "summed_so_far": Order("adds to {what} of every {one} those of all before it", np.cumsum, sums=True),
    "with_the_one_before": Order(
        "adds to {what} of every {one} those of the one before it", _with_the_one_before, sums=True
    ),
    "mean": Order("takes for {what} of every {one} the mean of all", _mean, sums=True),
    "sum": Order("takes for {what} of every {one} the sum of all", _sum, sums=True),
}
"""Name -> how it is done, the plainest first."""
