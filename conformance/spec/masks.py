"""
The algebra of masks: reading and writing conventions, combination, and layout on the axes of an argument.

Conventions are pairs of element type and meaning: what True or a non-zero integer says (attend, ignore), and whether
floats are added to the logits or read as booleans.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from conformance.spec.problem import AXES, Array, Group

KINDS = ("key_padding", "attention", "causal", "window", "additive")
CONVENTIONS = (
    ("bool", "attend"),
    ("bool", "ignore"),
    ("int", "attend"),
    ("int", "ignore"),
    ("float", "add"),
    ("float", "attend"),
)
"""Every element type and meaning that can carry a boolean mask without loss."""


class Inexpressible(ValueError):  # noqa: N818 - an answer, not an error
    """A mask cannot be written in the asked form without changing what it means."""


def is_boolean(group: Group) -> bool:
    """Whether the group only allows or forbids: no finite number is added."""
    if group.element != "float":
        return True
    return bool(np.all((group.values == 0) | (group.values == -np.inf)))


def as_bool(group: Group) -> Group:
    """
    The same mask as booleans, True = attend.

    Raises:
        Inexpressible: it adds finite numbers.
    """
    if group.element == "bool":
        return group
    if not is_boolean(group):
        raise Inexpressible("a mask that adds finite numbers to the logits cannot be written as booleans")
    values = group.values == 0 if group.element == "float" else group.values != 0
    return replace(group, element="bool", values=values)


def as_float(group: Group) -> Group:
    """The same mask as numbers added to the logits: 0 = attend, -inf = not."""
    if group.element == "float":
        return group
    return replace(group, element="float", values=np.where(group.values != 0, 0.0, -np.inf))


def write(allowed: Array, element: str, meaning: str) -> Array:
    """
    Write booleans (True = attend) in one of CONVENTIONS: bool, int64 0/1, or float64.

    Raises:
        Inexpressible: there is no such convention.
    """
    if (element, meaning) not in CONVENTIONS:
        raise Inexpressible(f"no convention writes a boolean mask as {element} read as {meaning!r}")
    if meaning == "add":
        return np.where(allowed, 0.0, -np.inf)
    values = ~allowed if meaning == "ignore" else allowed
    return values.astype({"bool": np.bool_, "int": np.int64, "float": np.float64}[element])


def read(array: Array, element: str, meaning: str) -> Array:
    """The inverse of `write`: what is attended, as booleans."""
    if (element, meaning) not in CONVENTIONS:
        raise Inexpressible(f"no convention reads {element} as {meaning!r}")
    if meaning == "add":
        return np.asarray(array != -np.inf)
    return np.asarray(array == 0 if meaning == "ignore" else array != 0)


def fold(groups: Sequence[Group], slot: str) -> Group:
    """
    One group that means what all of them mean together: AND of booleans, plus the sum of what is added.

    It is boolean where all are boolean (in the element type that they share, else bool), float otherwise.
    """
    if len(groups) == 1:
        return replace(groups[0], slot=slot)
    kinds = tuple(dict.fromkeys(kind for group in groups for kind in group.kinds))
    elements = {group.element for group in groups}
    if elements <= {"bool", "int"}:
        values = groups[0].values != 0
        for group in groups[1:]:
            values = values & (group.values != 0)
        return Group(slot, kinds, elements.pop() if len(elements) == 1 else "bool", values)
    if all(is_boolean(group) for group in groups) and elements != {"float"}:
        return fold([as_bool(group) for group in groups], slot)
    added = [as_float(group).values for group in groups]
    return Group(slot, kinds, "float", np.asarray(sum(added[1:], start=added[0])))


def spanned(values: Array) -> tuple[str, ...]:
    """The axes on which a mask varies, i.e. those that are not of size one."""
    return tuple(axis for axis, size in zip(AXES, values.shape, strict=True) if size > 1)


def covers(axes: Sequence[str], values: Array) -> bool:
    """Whether an argument with `axes` (names of AXES, `b*h`, `1`) can carry `values` (4-D)."""
    named = {part for axis in axes for part in axis.split("*")}
    return set(spanned(values)) <= named


def lay_out(
    values: Array, sizes: tuple[int, int, int, int], axes: Sequence[str], broadcast: Sequence[str] = ()
) -> Array:
    """
    Give 4-D `values` the shape of an argument.

    axes: of the argument, in order; `b*h` is batch and heads folded, batch-major; `1` an axis of size one. An axis
    that the mask does not span is written out, or left at size one if it is in `broadcast`.

    Raises:
        Inexpressible: the mask spans an axis that the argument lacks.
    """
    if not covers(axes, values):
        raise Inexpressible(f"a mask over {' '.join(spanned(values))} does not fit an argument over {' '.join(axes)}")
    named = [part for axis in axes for part in axis.split("*")]
    full = tuple(
        1 if axis not in named or (axis in broadcast and values.shape[i] == 1) else sizes[i]
        for i, axis in enumerate(AXES)
    )
    lengths = dict(zip(AXES, full, strict=True)) | {"1": 1}
    shape = [int(np.prod([lengths[part] for part in axis.split("*")])) for axis in axes]
    return np.broadcast_to(values, full).reshape(shape)
