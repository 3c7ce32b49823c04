"""
Routing: which mask of a problem goes into which argument or flag of a subject.

Each mask goes to an argument of its own where the documented exclusions and requirements allow; what has none
is folded without loss into the widest argument that can express it; what nothing can express is declined.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from conformance.bridge.contract import MaskFacts
from conformance.bridge.tensor import Tensor
from conformance.engine.slots import Slot
from conformance.spec.masks import Inexpressible, as_bool, as_float, covers, fold, is_boolean, lay_out
from conformance.spec.problem import Array, Group, Problem
from conformance.spec.rounding import round_to, to_tensor

Slots = Mapping[str, Slot]


class Declined(Exception):  # noqa: N818 - an answer, not an error
    """A subject's arguments cannot express the call; the text says which mask, and why."""


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
    placed, hints = _place(problem, slots)
    return _finish(problem, slots, placed, hints)


def route_dense(problem: Problem, slots: Slots) -> Route | None:
    """
    Fold every mask into one argument; None where that is the ordinary route or cannot be done.

    Verbatim masks are never folded: calls that have one have no dense form.
    """
    if not problem.groups or any(group.verbatim for group in problem.groups):
        return None
    try:
        placed: dict[str, list[Group]] = {}
        _fold_leftovers(problem, slots, placed, list(problem.groups))
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


def _place(problem: Problem, slots: Slots) -> tuple[dict[str, list[Group]], tuple[str, ...]]:
    """Assign groups to slots natively, resolve exclusions and requirements, fold what is left."""
    placed: dict[str, list[Group]] = {}
    leftovers: list[Group] = []
    for group in problem.groups:
        slot = _own_slot(problem, slots, group, placed)
        if slot is None:
            leftovers.append(group)
        else:
            placed.setdefault(slot, []).append(group)
    hints = _take_hints(slots, placed, leftovers)
    _resolve_exclusions(slots, placed, leftovers)
    _resolve_requirements(slots, placed, leftovers)
    _fold_leftovers(problem, slots, placed, leftovers)
    return placed, hints


def _own_slot(problem: Problem, slots: Slots, group: Group, placed: Mapping[str, Sequence[Group]]) -> str | None:
    for slot in slots.values():
        if slot.role != "mask" and slot.name not in placed and _is_flag_for(problem, slot, group):
            return slot.name
    for slot in slots.values():
        taken = placed.get(slot.name, ())
        if slot.role == "mask" and group.kinds[0] in slot.takes and _expressible(problem, slot, [*taken, group]):
            return slot.name
    if group.verbatim:
        kinds = ", ".join(group.kinds)
        raise Declined(f"no argument documents a verbatim {group.element} mask of kind {kinds} and this shape")
    return None


def _is_flag_for(problem: Problem, slot: Slot, group: Group) -> bool:
    if group.verbatim or len(group.kinds) != 1 or slot.role != group.kinds[0]:
        return False
    if slot.role == "window":
        return True
    start = 0 if slot.alignment == "top_left" else problem.seq_len_k - problem.seq_len_q
    return group.offset == start


def _take_hints(slots: Slots, placed: dict[str, list[Group]], leftovers: list[Group]) -> tuple[str, ...]:
    """A hint never carries its mask: write the mask out, and remember the flag."""
    hints = tuple(name for name in placed if slots[name].hint)
    for name in hints:
        leftovers.extend(placed.pop(name))
    return hints


def _resolve_exclusions(slots: Slots, placed: dict[str, list[Group]], leftovers: list[Group]) -> None:
    for name in tuple(placed):
        for other in slots[name].excludes:
            if name in placed and other in placed:
                loser = min((name, other), key=lambda n: _reach(slots[n]))
                if any(group.verbatim for group in placed[loser]):
                    raise Declined(f"{name} and {other} exclude each other, and a verbatim mask is not folded")
                leftovers.extend(placed.pop(loser))


def _reach(slot: Slot) -> tuple[bool, int, bool]:
    """How much an argument can carry: a mask more than a flag, then by axes, then numbers more than booleans."""
    return slot.role == "mask", slot.width, slot.meaning("float") == "add"


def _resolve_requirements(slots: Slots, placed: dict[str, list[Group]], leftovers: list[Group]) -> None:
    for name in tuple(placed):
        missing = [other for other in slots[name].requires if other not in placed]
        if missing:
            if any(group.verbatim for group in placed[name]):
                raise Declined(f"{name} requires {missing[0]}, which this call does not fill")
            leftovers.extend(placed.pop(name))


def _fold_leftovers(problem: Problem, slots: Slots, placed: dict[str, list[Group]], leftovers: Sequence[Group]) -> None:
    """Fold what has no argument of its own into the widest mask argument that can express it."""
    if not leftovers:
        return
    masks = sorted((slot for slot in slots.values() if slot.role == "mask"), key=lambda slot: -slot.width)
    blocked = {other for name in placed for other in slots[name].excludes}
    for slot in masks:
        together = [*placed.get(slot.name, ()), *leftovers]
        if slot.name not in blocked and _expressible(problem, slot, together):
            placed[slot.name] = together
            return
    kinds = " and ".join(dict.fromkeys(kind for group in leftovers for kind in group.kinds))
    spans = " ".join(dict.fromkeys("bhqk"[i] for g in leftovers for i, n in enumerate(g.values.shape) if n > 1))
    verbatim = any(group.verbatim for members in placed.values() for group in members)
    beside = " beside a verbatim mask, which is never folded" if verbatim else " beside the others" if placed else ""
    raise Declined(
        f"no argument can express this mask ({kinds}) over {spans or 'no axis'}, "
        f"seq_len_q {problem.seq_len_q}, seq_len_k {problem.seq_len_k}{beside}"
    )


def _expressible(problem: Problem, slot: Slot, groups: Sequence[Group]) -> bool:
    if len(groups) > 1 and any(group.verbatim for group in groups):
        return False
    folded = fold(groups, slot.name)
    if folded.element == "float" and not np.array_equal(round_to(folded.values, problem.dtype), folded.values):
        return False  # the sum of two additive masks need not be a number of the dtype
    return _element(slot, folded) is not None and _form(slot, folded) is not None


def _form(slot: Slot, group: Group) -> tuple[str, ...] | None:
    """The narrowest axes of the argument that cover the mask."""
    return next((form for form in slot.axes if covers(form, group.values)), None)


def _element(slot: Slot, group: Group) -> str | None:
    """The element type to hand over: the mask's own where that is documented, else one without loss."""
    if group.verbatim:
        return group.element if slot.meaning(group.element) else None
    if group.element == "float":
        if slot.meaning("float") == "add":
            return "float"
        if not is_boolean(group):
            return None
    choices = [group.element, "bool", "int", "float"]
    written = {"bool": ("attend", "ignore"), "int": ("attend", "ignore"), "float": ("add", "attend")}
    return next((e for e in choices if slot.meaning(e) in written[e]), None)


def _finish(problem: Problem, slots: Slots, placed: Mapping[str, Sequence[Group]], hints: Sequence[str]) -> Route:
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


def _handed_over(slot: Slot, group: Group) -> Group:
    """The group in the element type in which this argument takes it; written out, it has no anchor of its own."""
    if slot.role != "mask":
        return replace(group, element="flag")
    group = replace(group, offset=None, window=None)
    element = _element(slot, group)
    if element is None:
        raise Declined(f"{slot.name} documents no {group.element} masks")
    if group.verbatim or element == group.element:
        return group
    if element == "float" and slot.meaning("float") == "add":
        return as_float(group)
    return replace(as_bool(group), element=element if element == "int" else "bool")


def _agree(slots: Slots, groups: dict[str, Group]) -> dict[str, Group]:
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


def _hinted(slots: Slots, placed: Mapping[str, Sequence[Group]], hints: Sequence[str]) -> dict[str, Group]:
    """Set a hint where the argument that it speaks of carries the causal mask and nothing else."""
    hinted = {}
    for name in hints:
        carriers = [placed.get(required, ()) for required in slots[name].requires]
        if carriers and all(len(members) == 1 and members[0].kinds == ("causal",) for members in carriers):
            hinted[name] = replace(carriers[0][0], slot=name, element="flag")
    return hinted


def _argument(problem: Problem, slot: Slot, group: Group) -> tuple[Any, tuple[str, ...]]:
    if slot.role == "causal":
        return True, ()
    if slot.role == "window":
        return group.window, ()
    form = _form(slot, group)
    if form is None:
        raise Declined(f"{slot.name} cannot carry a mask of this shape")
    try:
        array = lay_out(group.values, problem.logits_shape, form, slot.broadcast)
    except Inexpressible as error:
        raise Declined(str(error)) from error
    return _tensor(problem, slot, group, array), form


def _tensor(problem: Problem, slot: Slot, group: Group, array: Array) -> Tensor:
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


def _documented(slots: Slots, groups: Mapping[str, Group]) -> dict[str, str]:
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
