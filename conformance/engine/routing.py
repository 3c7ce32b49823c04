"""
Routing: a problem in the arguments of a subject, each mask in an argument or flag of its own where that is possible.

Each mask goes to an argument of its own where the documented exclusions and requirements allow; what has none
is folded without loss into the widest argument that can express it; what nothing can express is declined.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from conformance.bridge.contract import MaskFacts
from conformance.bridge.tensor import Tensor
from conformance.engine.mask_placing import (
    LENGTHS,
    Declined,
    Slots,
    element_of,
    fold_leftovers,
    form_of,
    lengths_of,
    place_masks,
)
from conformance.engine.slots import Slot
from conformance.spec.masks import Inexpressible, as_bool, as_float, fold, lay_out
from conformance.spec.problem import Array, MaskOperand, Problem
from conformance.spec.rounding import to_tensor

__all__ = ["Declined", "Route", "route", "route_dense"]

# What a call can be asked to use, in words.
ROLES = {"causal": "a causal flag", "window": "a window", "lengths": "lengths", "short": "a mask of fewer keys"}


@dataclass(frozen=True, eq=False)
class Route:
    """
    A problem in the arguments of one subject.

    problem: the same problem, with its masks grouped by argument. arguments: what the call carries. masks: the
    facts about them. axes: the form of each argument's array. dialect: how the documented reading of verbatim masks
    differs from canonical, as decision -> name.
    """

    problem: Problem
    arguments: Mapping[str, Any]
    masks: tuple[MaskFacts, ...]
    axes: Mapping[str, tuple[str, ...]]
    dialect: Mapping[str, str]

    def record(self) -> list[dict[str, Any]]:
        """For the run log: one entry for each argument that is used."""
        return [
            {
                "slot": mask.slot,
                "kinds": list(mask.kinds),
                "element": mask.element,
                "axes": list(self.axes.get(mask.slot, ())),
                "verbatim": mask.verbatim,
            }
            for mask in self.masks
        ]


def route(problem: Problem, slots: Slots) -> Route:
    """
    Put each mask of `problem` into its own argument where that is documented.

    Raises:
        Declined: some mask cannot be expressed.
    """
    placed, hints = place_masks(problem, slots)
    if lacking := [ROLES[role] for role in problem.native if role not in _used(problem, slots, placed)]:
        raise Declined(f"the call is asked as it stands, and no argument takes {' and '.join(lacking)}")
    return _finish(problem, slots, placed, hints)


def _used(problem: Problem, slots: Slots, placed: Mapping[str, Sequence[MaskOperand]]) -> set[str]:
    """Roles that are filled, and flags at their default, which the subject has; also whether a mask is shortened."""
    asked = {kind for group in problem.groups for kind in group.kinds}
    found = {slots[name].role for name in placed}
    found |= {slot.role for slot in slots.values() if slot.role in ("causal", "window") and slot.role not in asked}
    return found | {"short" for name, groups in placed.items() if slots[name].short and _left_out(groups)}


def _left_out(groups: Sequence[MaskOperand]) -> int:
    """How many keys, the last, the array of these masks need not have: one mask says so, and they are masked."""
    short = groups[0].short if len(groups) == 1 else 0
    last = groups[0].values[..., groups[0].values.shape[-1] - short :]
    masked = last == -np.inf if groups[0].element == "float" else last == 0
    return short if np.all(masked) else 0


def route_dense(problem: Problem, slots: Slots) -> Route | None:
    """
    Fold every mask into one argument; None where that is the ordinary route or cannot be done.

    Verbatim masks are never folded: calls that have one have no dense form.
    """
    if not problem.groups or problem.native or any(group.verbatim for group in problem.groups):
        return None
    try:
        placed: dict[str, list[MaskOperand]] = {}
        fold_leftovers(problem, slots, placed, list(problem.groups))
        dense = _finish(problem, slots, placed, ())
    except Declined:
        return None
    try:
        native = route(problem, slots)
    except Declined:
        return dense
    return None if _same(dense, native) else dense


def _same(one: Route, other: Route) -> bool:
    return {(m.slot, m.element) for m in one.masks} == {(m.slot, m.element) for m in other.masks}


def _finish(problem: Problem, slots: Slots, placed: Mapping[str, Sequence[MaskOperand]], hints: Sequence[str]) -> Route:
    groups = {name: _handed_over(slots[name], fold(members, name)) for name, members in placed.items()}
    groups = _agree(slots, groups)
    groups |= _hinted(slots, placed, hints)
    forms: dict[str, tuple[str, ...]] = {}
    arguments = {}
    ordered = [name for name in slots if name in groups]
    for name in ordered:
        arguments[name], forms[name] = _argument(problem, slots[name], groups[name])
    return Route(
        problem=problem.but(groups=tuple(groups[name] for name in ordered)),
        arguments=arguments,
        masks=tuple(
            MaskFacts(name, groups[name].kinds, groups[name].element, groups[name].verbatim) for name in ordered
        ),
        axes=forms,
        dialect=_documented(slots, groups),
    )


def _handed_over(slot: Slot, group: MaskOperand) -> MaskOperand:
    """The group in the element type in which this argument takes it; written out, it has no anchor of its own."""
    if slot.role != "mask":
        return replace(as_bool(group), element="flag")
    group = replace(group, offset=None, window=None, moved=None)
    element = element_of(slot, group)
    if element is None:
        raise Declined(f"{slot.name} documents no {group.element} masks")
    if group.verbatim or element == group.element:
        return group
    if element == "float" and slot.meaning("float") == "add":
        return as_float(group)
    return replace(as_bool(group), element=element if element == "int" else "bool")


def _agree(slots: Slots, groups: dict[str, MaskOperand]) -> dict[str, MaskOperand]:
    """Arguments that must have the same element type are all handed over as numbers if one of them is."""
    agreed = dict(groups)
    for name, group in groups.items():
        for other in slots[name].same_element_as:
            if other in groups and groups[other].element != group.element:
                for each in (name, other):
                    if agreed[each].verbatim or slots[each].meaning("float") != "add":
                        raise Declined(f"{name} and {other} must have the same element type")
                    agreed[each] = replace(as_float(agreed[each]), slot=each)
    return agreed


def _hinted(slots: Slots, placed: Mapping[str, Sequence[MaskOperand]], hints: Sequence[str]) -> dict[str, MaskOperand]:
    """Set a hint where the argument that it speaks of carries the causal mask and nothing else."""
    hinted = {}
    for name in hints:
        carriers = [placed.get(required, ()) for required in slots[name].requires]
        if carriers and all(len(members) == 1 and members[0].kinds == ("causal",) for members in carriers):
            hinted[name] = replace(carriers[0][0], slot=name, element="flag")
    return hinted


def _argument(problem: Problem, slot: Slot, group: MaskOperand) -> tuple[Any, tuple[str, ...]]:
    if slot.role == "causal":
        return True, ()
    if slot.role == "window":
        if group.moved is not None:
            return group.moved, ()
        return _sides(group, problem.past if slot.alignment == "past" else 0), ()
    if slot.role == LENGTHS:
        return Tensor.of(lengths_of(problem, slot, group)), slot.axes[0]
    form = form_of(slot, group)
    if form is None:
        raise Declined(f"{slot.name} cannot carry a mask of this shape")
    try:
        array = lay_out(group.values, problem.logits_shape, form, slot.broadcast)
    except Inexpressible as error:
        raise Declined(str(error)) from error
    if slot.short and (short := _left_out([group])):
        array = array[..., :-short]
    return _tensor(problem, slot, group, array), form


def _sides(group: MaskOperand, past: int) -> tuple[int | None, int | None]:
    """How many keys to either side, counted from where the argument counts: by the query's place after a past."""
    left, right = group.window or (None, None)
    return (None if left is None else left + past), (None if right is None else right - past)


def _tensor(problem: Problem, slot: Slot, group: MaskOperand, array: Array) -> Tensor:
    """Write the canonical reading in the polarity that the argument documents; verbatim masks as they are."""
    if group.element == "float":
        return to_tensor(array, problem.dtype)
    ignores = slot.meaning(group.element) == "ignore" and not group.verbatim
    dtype = np.bool_ if group.element == "bool" else np.int32
    if group.verbatim:
        return Tensor.of(array.astype(dtype))
    if slot.meaning(group.element) == "attend" or ignores:
        return Tensor.of(((array == 0) if ignores else (array != 0)).astype(dtype))
    return Tensor.of(array.astype(dtype))


def _documented(slots: Slots, groups: Mapping[str, MaskOperand]) -> dict[str, str]:
    """How the documented reading of verbatim masks differs from the canonical one."""
    names = {
        ("bool", "ignore"): ("polarity", "ignore"),
        ("int", "ignore"): ("polarity", "ignore"),
        ("int", "add"): ("number_mask", "added"),
        ("float", "attend"): ("float_mask", "cast_to_bool"),
    }
    dialect = {}
    for name, group in groups.items():
        meaning = slots[name].meaning(group.element) if group.verbatim else None
        if meaning and (row := names.get((group.element, meaning))):
            dialect[f"{row[0]}[{name}]"] = row[1]
    return dialect
