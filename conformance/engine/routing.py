"""
Routing: writes a problem as the arguments of a subject.

Each mask gets its own argument if the documented exclusions and requirements allow it. A mask without its own argument
is folded without loss into the widest argument that can express it. A call with a mask that no argument can express is
declined.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from conformance.bridge.contract import MaskFacts
from conformance.bridge.tensor import Tensor
from conformance.engine.adapter_facts import Slot
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
from conformance.spec.masks import Inexpressible, as_bool, as_float, fold, lay_out
from conformance.spec.problem import AXES, Array, MaskOperand, Problem
from conformance.spec.rounding import to_tensor

__all__ = ["Declined", "Route", "route", "route_dense"]

# Arguments that a case can require, in words.
ROLES = {
    "causal": "a causal argument",
    "window": "a window argument",
    "lengths": "lengths",
    "short": "a mask of fewer keys",
}


@dataclass(frozen=True, eq=False)
class Route:
    """
    A problem as the arguments of one subject.

    problem: the same problem, with its masks grouped by argument. arguments: the mask arguments of the call. masks:
    the facts about them, without those that mask nothing and are given because the argument needs one. axes: the form
    of each argument's array. dialect: how the documented meaning of verbatim masks deviates from canonical, as
    decision -> name.
    """

    problem: Problem
    arguments: Mapping[str, Any]
    masks: tuple[MaskFacts, ...]
    axes: Mapping[str, tuple[str, ...]]
    dialect: Mapping[str, str]

    def record(self) -> list[dict[str, Any]]:
        """The record for the run log: one entry for each argument that is used."""
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
    Route a problem, with each mask in its own argument if the framework documents one.

    Raises:
        Declined: a mask cannot be expressed, or the subject lacks an argument that the case requires.
    """
    placed, hints = place_masks(problem, slots)
    if lacking := [ROLES[role] for role in problem.native if role not in _used(problem, slots, placed)]:
        raise Declined(f"the case requires {' and '.join(lacking)}, and the subject has no such argument")
    return _finish(problem, slots, placed, hints)


def _used(problem: Problem, slots: Slots, placed: Mapping[str, Sequence[MaskOperand]]) -> set[str]:
    """The roles of used arguments and of causal and window arguments at their default, and "short" for a short mask."""
    kinds = {kind for operand in problem.mask_operands for kind in operand.kinds}
    used = {slots[name].role for name in placed}
    used |= {slot.role for slot in slots.values() if slot.role in ("causal", "window") and slot.role not in kinds}
    return used | {
        "short" for name, mask_operands in placed.items() if slots[name].short and _omitted_keys(mask_operands)
    }


def _omitted_keys(mask_operands: Sequence[MaskOperand]) -> int:
    """How many of the last keys a short mask may omit from its array: they are masked. 0 if several masks share it."""
    short = mask_operands[0].short if len(mask_operands) == 1 else 0
    last = mask_operands[0].values[..., mask_operands[0].values.shape[-1] - short :]
    masked = last == -np.inf if mask_operands[0].element == "float" else last == 0
    return short if np.all(masked) else 0


def route_dense(problem: Problem, slots: Slots) -> Route | None:
    """
    Fold every mask into one argument; None if that is impossible or the same as the ordinary route.

    Verbatim masks are never folded, so a call with one has no dense form.
    """
    if not problem.mask_operands or problem.native or any(operand.verbatim for operand in problem.mask_operands):
        return None
    try:
        placed: dict[str, list[MaskOperand]] = {}
        fold_leftovers(problem, slots, placed, list(problem.mask_operands))
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
    whole = _masking_nothing(problem, slots, placed)
    placed = {**placed, **whole}
    mask_operands = {name: _converted(slots[name], fold(members, name)) for name, members in placed.items()}
    mask_operands = _agree(slots, mask_operands)
    mask_operands |= _hinted(slots, placed, hints)
    mask_operands = {name: _as_documented(slots[name], each) for name, each in mask_operands.items()}
    forms: dict[str, tuple[str, ...]] = {}
    arguments = {}
    ordered = [name for name in slots if name in mask_operands]
    for name in ordered:
        arguments[name], forms[name] = _argument(problem, slots[name], mask_operands[name])
    return Route(
        problem=problem.but(mask_operands=tuple(mask_operands[name] for name in ordered)),
        arguments=arguments,
        masks=tuple(
            MaskFacts(name, mask_operands[name].kinds, mask_operands[name].element, mask_operands[name].verbatim)
            for name in ordered
            if name not in whole
        ),
        axes=forms,
        dialect=_documented(slots, mask_operands),
    )


def _masking_nothing(problem: Problem, slots: Slots, given: Collection[str]) -> dict[str, list[MaskOperand]]:
    """Masks that mask nothing, for arguments that need one in every call (`always`) and have none."""
    free = (slot for slot in slots.values() if slot.name not in given and not set(slot.excludes) & set(given))
    return {slot.name: [_whole(problem, slot)] for slot in free if slot.always}


def _whole(problem: Problem, slot: Slot) -> MaskOperand:
    """A mask with all axes of an argument, except the heads, that masks nothing; numbers to add are zeros."""
    named = {part for axis in slot.axes[0] for part in axis.split("*")} - {"h"}
    shape = [size if axis in named else 1 for axis, size in zip(AXES, problem.logits_shape, strict=True)]
    kind = "attention" if "attention" in slot.takes else slot.takes[0]
    if kind == "additive":
        return MaskOperand(slot.name, (kind,), "float", np.zeros(shape))
    return MaskOperand(slot.name, (kind,), "bool", np.ones(shape, dtype=bool))


def _converted(slot: Slot, operand: MaskOperand) -> MaskOperand:
    """The mask operand in the element type that this argument takes; an explicit mask has no offset or window."""
    if slot.role != "mask":
        return replace(as_bool(operand), element="flag")
    operand = replace(operand, offset=None, window=None, moved=None)
    element = element_of(slot, operand)
    if element is None:
        raise Declined(f"{slot.name} does not document {operand.element} masks")
    if operand.verbatim or element == operand.element:
        return operand
    if element == "float" and slot.meaning("float") == "add":
        return as_float(operand)
    return replace(as_bool(operand), element=element if element == "int" else "bool")


def _agree(slots: Slots, mask_operands: dict[str, MaskOperand]) -> dict[str, MaskOperand]:
    """Arguments that must have the same element type are all converted to numbers if one of them has numbers."""
    agreed = dict(mask_operands)
    for name, operand in mask_operands.items():
        for other in slots[name].same_element_as:
            if other in mask_operands and mask_operands[other].element != operand.element:
                for each in (name, other):
                    if agreed[each].verbatim or slots[each].meaning("float") != "add":
                        raise Declined(f"{name} and {other} must have the same element type")
                    agreed[each] = replace(as_float(agreed[each]), slot=each)
    return agreed


def _as_documented(slot: Slot, operand: MaskOperand) -> MaskOperand:
    """The same mask, to be inverted if the argument documents True = ignore; a verbatim mask is passed unchanged."""
    return replace(operand, inverted=slot.meaning(operand.element) == "ignore" and not operand.verbatim)


def _hinted(slots: Slots, placed: Mapping[str, Sequence[MaskOperand]], hints: Sequence[str]) -> dict[str, MaskOperand]:
    """The hints to set: those whose required argument has the causal mask and nothing else."""
    hinted = {}
    for name in hints:
        carriers = [placed.get(required, ()) for required in slots[name].requires]
        if carriers and all(len(members) == 1 and members[0].kinds == ("causal",) for members in carriers):
            hinted[name] = replace(carriers[0][0], slot=name, element="flag")
    return hinted


def _argument(problem: Problem, slot: Slot, operand: MaskOperand) -> tuple[Any, tuple[str, ...]]:
    if slot.role == "causal":
        return True, ()
    if slot.role == "window":
        if operand.moved is not None:
            return operand.moved, ()
        return _sides(operand, problem.past if slot.alignment == "past" else 0), ()
    if slot.role == LENGTHS:
        return Tensor.of(lengths_of(problem, slot, operand)), slot.axes[0]
    form = form_of(slot, operand)
    if form is None:
        raise Declined(f"{slot.name} does not accept a mask of this shape")
    try:
        array = lay_out(operand.values, problem.logits_shape, form, slot.broadcast)
    except Inexpressible as error:
        raise Declined(str(error)) from error
    if slot.short and (short := _omitted_keys([operand])):
        array = array[..., :-short]
    return _tensor(problem, slot, operand, array), form


def _sides(operand: MaskOperand, past: int) -> tuple[int | None, int | None]:
    """The numbers of keys to the left and right, as the argument counts them; with a past, relative to its end."""
    left, right = operand.window or (None, None)
    return (None if left is None else left + past), (None if right is None else right - past)


def _tensor(problem: Problem, slot: Slot, operand: MaskOperand, array: Array) -> Tensor:
    """The array in the polarity that the argument documents; a verbatim mask is unchanged."""
    if operand.element == "float":
        return to_tensor(array, problem.dtype)
    dtype = np.bool_ if operand.element == "bool" else np.int32
    if operand.inverted:
        array = array == 0
    elif not operand.verbatim and slot.meaning(operand.element) == "attend":
        array = array != 0
    return Tensor.of(array.astype(dtype))


def _documented(slots: Slots, mask_operands: Mapping[str, MaskOperand]) -> dict[str, str]:
    """How the documented meaning of verbatim masks deviates from canonical, as decision -> name."""
    names = {
        ("bool", "ignore"): ("polarity", "ignore"),
        ("int", "ignore"): ("polarity", "ignore"),
        ("int", "add"): ("number_mask", "added"),
        ("float", "attend"): ("float_mask", "cast_to_bool"),
    }
    dialect = {}
    for name, operand in mask_operands.items():
        meaning = slots[name].meaning(operand.element) if operand.verbatim else None
        if meaning and (row := names.get((operand.element, meaning))):
            dialect[f"{row[0]}[{name}]"] = row[1]
    return dialect
