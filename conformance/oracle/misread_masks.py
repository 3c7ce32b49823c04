"""What a mask argument can be misread as: variations that are made for the name of an argument."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from conformance.oracle.variation import Variation
from conformance.spec.problem import Group, Problem


def _on_slot(slot: str, change: Callable[[Problem, Group], Group | None]) -> Callable[[Problem], Problem]:
    """Change the group in `slot` (None removes it); the identity where the call does not use that argument."""

    def apply(problem: Problem) -> Problem:
        groups = []
        for group in problem.groups:
            changed = change(problem, group) if group.slot == slot else group
            if changed is not None:
                groups.append(changed)
        same = len(groups) == len(problem.groups) and all(a is b for a, b in zip(groups, problem.groups, strict=True))
        return problem if same else problem.but(groups=tuple(groups))

    return apply


def _inverted(_: Problem, group: Group) -> Group:
    if group.element in ("float", "flag"):
        return group
    return replace(group, element="bool", values=group.values == 0)


def _float_as_bool(_: Problem, group: Group) -> Group:
    if group.element != "float":
        return group
    return replace(group, element="bool", values=group.values != 0)


def _number_added(_: Problem, group: Group) -> Group:
    if group.element not in ("int", "bool") or not group.verbatim:
        return group
    return replace(group, element="float", values=group.values.astype(np.float64))


def _ignored(_: Problem, __: Group) -> None:
    return None


def _ignored_beside_others(problem: Problem, group: Group) -> Group | None:
    return None if len(problem.groups) > 1 else group


def _transposed(problem: Problem, group: Group) -> Group:
    if problem.seq_len_q != problem.seq_len_k or group.values.shape[-2] == 1:
        return group
    return replace(group, values=group.values.swapaxes(-1, -2))


def _first_item(_: Problem, group: Group) -> Group:
    return replace(group, values=group.values[:1]) if group.values.shape[0] > 1 else group


def slot_variations(slot: str) -> tuple[Variation, ...]:
    """Every way in which the argument `slot` of a call can be misread."""

    def row(family: str, name: str, sentence: str, remedy: str, change: Callable[..., Group | None]) -> Variation:
        return Variation(f"{family}[{slot}]", name, sentence, remedy, "problem", problem=_on_slot(slot, change))

    return (
        row("polarity", "ignore", f"reads True in {slot} as: ignore this key", f"pass ~{slot}", _inverted),
        row(
            "float_mask",
            "cast_to_bool",
            f"casts a float {slot} to bool, so that 0 ignores and anything else attends",
            f"pass a boolean {slot}",
            _float_as_bool,
        ),
        row(
            "number_mask",
            "added",
            f"adds the numbers of an integer or boolean {slot} to the logits",
            f"pass {slot} as 0 and -inf",
            _number_added,
        ),
        row("use", "ignored", f"ignores {slot}", f"do not rely on {slot}", _ignored),
        row(
            "use",
            "ignored_beside_others",
            f"ignores {slot} when another mask is given",
            "fold all masks into one",
            _ignored_beside_others,
        ),
        row(
            "mask_axes",
            "transposed",
            f"transposes {slot} when it is square",
            f"transpose {slot}",
            _transposed,
        ),
        row(
            "mask_axes",
            "first_item",
            f"applies {slot} of the first item of the batch to every item",
            "call once per item",
            _first_item,
        ),
    )
