"""A call with one mistake in its arrays or its choice of arguments, made last: facts are those of the valid call."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from conformance.bridge.contract import Call
from conformance.bridge.tensor import Tensor
from conformance.engine.placing import Declined, Slots
from conformance.engine.routing import route
from conformance.spec.problem import Array, Problem

Change = Callable[[Array, int], Array]
"""A change of an array along one of its axes."""


def _grown(array: Array, axis: int) -> Array:
    """One position more: the last once again."""
    return np.concatenate([array, np.take(array, [-1], axis=axis)], axis=axis)


def _shrunk(array: Array, axis: int) -> Array:
    """The last position taken away."""
    return np.take(array, range(array.shape[axis] - 1), axis=axis)


MASKS: Mapping[str, tuple[str, Change]] = {
    "mask_keys": ("k", _grown),
    "mask_queries": ("q", _grown),
    "mask_items": ("b", _shrunk),
}
"""The axis of the mask, and what is done along it."""


def mistaken(call: Call, axes: Mapping[str, tuple[str, ...]], mistake: str | None) -> Call:
    """
    The call with a mistake of `spec.refusals`; axes: the form of each mask argument.

    Raises:
        Declined: no argument carries a mask in which the mistake can be made.
    """
    if mistake is None:
        return call
    if mistake in MASKS:
        letter, change = MASKS[mistake]
        return replace(call, arguments=_masks(call.arguments, axes, letter, change))
    if mistake == "num_heads":
        sizes = call.facts.sizes
        return replace(call, facts=replace(call.facts, sizes={**sizes, "num_heads": _not_dividing(sizes)}))
    changed: dict[str, Any] = {}
    if mistake == "value_positions":
        changed["value"] = _changed(call.value, _shrunk, -2)
    elif mistake == "key_items":
        changed |= {name: _changed(getattr(call, name), _shrunk, 0) for name in ("key", "value")}
    else:
        name = mistake.removesuffix("_width")
        changed[name] = _changed(getattr(call, name), _grown, -1)
    return replace(call, **changed)


ROUTED = ("two_masks", "lone_flag")
"""Made in the choice of arguments, not in an array."""


def misrouted(problem: Problem, slots: Slots, arguments: Mapping[str, Any], mistake: str) -> Mapping[str, Any]:
    """
    Arguments of which two exclude each other, or a flag without what it requires; `arguments` are the valid ones.

    Raises:
        Declined: the documentation of the subject knows no such mistake, or the masks need no two such arguments.
    """
    if mistake == "lone_flag":
        left_out = {other for name in arguments for other in slots[name].requires}
        if not left_out:
            raise Declined("no argument of this call requires another one: the mistake cannot be made")
        return {name: argument for name, argument in arguments.items() if name not in left_out}
    free = {name: replace(slot, excludes=()) for name, slot in slots.items()}
    both = route(problem, free).arguments
    if not any(other in both for name in both for other in slots[name].excludes):
        raise Declined("no two arguments of this call exclude each other: the mistake cannot be made")
    return both


def _not_dividing(sizes: Mapping[str, int]) -> int:
    """The smallest larger number of heads that does not divide the width of all heads."""
    width = sizes["num_heads"] * sizes["head_dim"]
    return next(number for number in range(sizes["num_heads"] + 1, width + 2) if width % number)


def _masks(
    arguments: Mapping[str, Any], axes: Mapping[str, tuple[str, ...]], letter: str, change: Change
) -> dict[str, Any]:
    """Every mask that spans the axis, changed along it."""
    made = dict(arguments)
    for name, form in axes.items():
        argument = arguments[name]
        spanned = [letter in axis.split("*") for axis in form]
        if not isinstance(argument, Tensor) or argument.bits.ndim != len(form) or not any(spanned):
            continue
        if argument.shape[spanned.index(True)] > 1:
            made[name] = _changed(argument, change, spanned.index(True))
    if all(made[name] is arguments[name] for name in arguments):
        raise Declined(f"no argument takes a mask over {letter} as it is: the mistake cannot be made")
    return made


def _changed(tensor: Tensor, change: Change, axis: int) -> Tensor:
    return Tensor(tensor.dtype, np.ascontiguousarray(change(tensor.bits, axis)))
