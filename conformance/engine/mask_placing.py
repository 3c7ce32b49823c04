"""Decides which argument takes which mask: its own argument, lengths, or another mask that it is folded into."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from conformance.engine.adapter_facts import Slot
from conformance.spec.masks import as_bool, covers, fold, is_boolean, spanned
from conformance.spec.problem import Array, MaskOperand, Problem
from conformance.spec.rounding import round_to

# The role of a lengths argument; its only form is [b, k] or [b, q].
LENGTHS = "lengths"


def lengths_of(problem: Problem, slot: Slot, operand: MaskOperand) -> Array | None:
    """The lengths equivalent to a mask, shape (batch,), int32; None if there are none."""
    axis = slot.axes[0][1]
    if operand.verbatim or not is_boolean(operand) or not set(spanned(operand.values)) <= {"b", axis}:
        return None
    size = problem.seq_len_k if axis == "k" else problem.seq_len_q
    attended = np.broadcast_to(as_bool(operand).values.reshape(operand.values.shape[0], -1), (problem.batch, size))
    lengths = attended.sum(axis=1)
    return lengths.astype(np.int32) if np.array_equal(attended, _prefixes(lengths, size)) else None


def in_parts(problem: Problem, slots: Mapping[str, Slot]) -> Iterator[MaskOperand]:
    """
    The masks of a problem; a mask over queries and keys is split in two if there is an argument for each part.

    A batch element whose mask attends nowhere has no attended key and no attended query. A part that masks nothing
    needs no argument.
    """
    forms = {slot.axes for slot in slots.values()}
    splits = {(("b", "q"),), (("b", "k"),)} <= forms
    for operand in problem.mask_operands:
        parts = _separately(operand) if splits else None
        yield from parts or (operand,)


def _separately(operand: MaskOperand) -> tuple[MaskOperand, ...] | None:
    """The mask split by query and by key if it is the product of two prefixes, without parts that mask nothing."""
    if operand.verbatim or operand.kinds != ("attention",) or not is_boolean(operand):
        return None
    if not {"q", "k"} <= set(spanned(operand.values)) <= {"b", "q", "k"}:
        return None
    attended = as_bool(operand).values
    by_query, by_key = (np.asarray(attended.any(axis=axis, keepdims=True)) for axis in (3, 2))
    for part in (by_query, by_key):
        flat = part.reshape(part.shape[0], -1)
        if not np.array_equal(flat, _prefixes(flat.sum(axis=1), flat.shape[1])):
            return None
    if not np.array_equal(by_query & by_key, attended):
        return None
    parts = (
        replace(operand, element="bool", values=by_query),
        replace(operand, kinds=("key_padding",), element="bool", values=by_key),
    )
    return tuple(part for part in parts if not part.values.all()) or None


def _prefixes(lengths: Array, size: int) -> Array:
    """True at the first lengths[b] of `size` positions, shape (batch, size)."""
    return np.arange(size) < lengths[:, None]


Slots = Mapping[str, Slot]


class Declined(Exception):  # noqa: N818 - a reply, not an error
    """The arguments of a subject cannot express the call; the text names the mask and the reason."""


def place_masks(problem: Problem, slots: Slots) -> tuple[dict[str, list[MaskOperand]], tuple[str, ...]]:
    """Assign masks to slots, resolve exclusions and requirements, fold the rest; return slot -> masks and hints."""
    placed: dict[str, list[MaskOperand]] = {}
    leftovers: list[MaskOperand] = []
    for operand in in_parts(problem, slots):
        slot = _own_slot(problem, slots, operand, placed)
        if slot is None:
            leftovers.append(operand)
        else:
            placed.setdefault(slot, []).append(operand)
    hints = _take_hints(slots, placed, leftovers)
    _resolve_moved(slots, placed, leftovers)
    _resolve_exclusions(slots, placed, leftovers)
    _resolve_requirements(slots, placed, leftovers)
    fold_leftovers(problem, slots, placed, leftovers)
    return placed, hints


def _own_slot(
    problem: Problem, slots: Slots, operand: MaskOperand, placed: Mapping[str, Sequence[MaskOperand]]
) -> str | None:
    for slot in slots.values():
        if slot.role != "mask" and slot.name not in placed and _is_argument_for(problem, slot, operand):
            return slot.name
    free_first = sorted(slots.values(), key=lambda slot: slot.name in placed)
    for slot in free_first:
        taken = placed.get(slot.name, ())
        if slot.role == "mask" and operand.kinds[0] in slot.takes and expressible(problem, slot, [*taken, operand]):
            return slot.name
    kinds = ", ".join(operand.kinds)
    if operand.attached:
        raise Declined(f"no tensor carries an attached mask of kind {kinds} and this shape")
    if operand.verbatim:
        raise Declined(
            f"no argument is documented to take a verbatim {operand.element} mask of kind {kinds} and this shape"
        )
    return None


def _is_argument_for(problem: Problem, slot: Slot, operand: MaskOperand) -> bool:
    if operand.attached or "past" in (slot.without if problem.past else slot.only_with):
        return False
    if operand.moved is not None:
        return bool(slot.moved_by) and slot.role == operand.kinds[0]
    if slot.role == LENGTHS:
        return operand.kinds[0] in slot.takes and lengths_of(problem, slot, operand) is not None
    if operand.verbatim or len(operand.kinds) != 1 or slot.role != operand.kinds[0]:
        return False
    if slot.role == "window":
        left, right = operand.window or (None, None)
        return (left == right or not slot.symmetric) and (right is None or not slot.left_only)
    starts = {"top_left": 0, "bottom_right": problem.seq_len_k - problem.seq_len_q, "past": problem.past}
    return operand.offset == starts[slot.alignment]


def _take_hints(slots: Slots, placed: dict[str, list[MaskOperand]], leftovers: list[MaskOperand]) -> tuple[str, ...]:
    """The hints among the placed slots; a hint does not carry its mask, so the mask becomes a leftover."""
    hints = tuple(name for name in placed if slots[name].hint)
    for name in hints:
        leftovers.extend(placed.pop(name))
    return hints


def _resolve_moved(slots: Slots, placed: dict[str, list[MaskOperand]], leftovers: list[MaskOperand]) -> None:
    """Unplace a causal mask that lengths would move but must not, or that must be moved but no lengths are given."""
    for name in tuple(placed):
        moves = any(other in placed for other in slots[name].moved_by)
        if slots[name].moved_by and any((operand.moved is not None) != moves for operand in placed[name]):
            leftovers.extend(placed.pop(name))


def _resolve_exclusions(slots: Slots, placed: dict[str, list[MaskOperand]], leftovers: list[MaskOperand]) -> None:
    for name in tuple(placed):
        for other in slots[name].excludes:
            if name in placed and other in placed:
                loser = min((name, other), key=lambda n: _reach(slots[n]))
                if any(operand.verbatim for operand in placed[loser]):
                    raise Declined(f"{name} and {other} exclude each other, and a verbatim mask is never merged")
                leftovers.extend(placed.pop(loser))


def _reach(slot: Slot) -> tuple[bool, int, bool]:
    """A sort key for how much an argument can express: masks above flags, then by axes, then numbers above booleans."""
    return slot.role == "mask", slot.width, slot.meaning("float") == "add"


def _resolve_requirements(slots: Slots, placed: dict[str, list[MaskOperand]], leftovers: list[MaskOperand]) -> None:
    for name in tuple(placed):
        missing = [other for other in slots[name].requires if other not in placed]
        if missing:
            if any(operand.verbatim for operand in placed[name]):
                raise Declined(f"{name} requires {missing[0]}, which this call does not fill")
            leftovers.extend(placed.pop(name))


def fold_leftovers(
    problem: Problem, slots: Slots, placed: dict[str, list[MaskOperand]], leftovers: Sequence[MaskOperand]
) -> None:
    """Fold masks without their own argument into the widest mask argument that can express them."""
    if not leftovers:
        return
    masks = sorted((slot for slot in slots.values() if slot.role == "mask"), key=lambda slot: -slot.width)
    blocked = {other for name in placed for other in slots[name].excludes}
    for slot in masks:
        together = [*placed.get(slot.name, ()), *leftovers]
        if slot.name not in blocked and expressible(problem, slot, together):
            placed[slot.name] = together
            return
    kinds = " and ".join(dict.fromkeys(_kind(operand, kind) for operand in leftovers for kind in operand.kinds))
    spans = " ".join(dict.fromkeys("bhqk"[i] for g in leftovers for i, n in enumerate(g.values.shape) if n > 1))
    verbatim = any(operand.verbatim for members in placed.values() for operand in members)
    also = " in addition to a verbatim mask, which is never merged" if verbatim else ""
    also = also or (" in addition to the other masks" if placed else "")
    raise Declined(
        f"no argument can express this mask ({kinds}) over {spans or 'no axis'}, "
        f"seq_len_q {problem.seq_len_q}, seq_len_k {problem.seq_len_k}{also}"
    )


def _kind(operand: MaskOperand, kind: str) -> str:
    """A kind of mask in words; of a window also its sides, because some arguments take only certain ones."""
    if kind != "window" or operand.window is None:
        return kind
    left, right = ("unlimited" if side is None else side for side in operand.window)
    return f"window, left {left}, right {right}"


def expressible(problem: Problem, slot: Slot, mask_operands: Sequence[MaskOperand]) -> bool:
    """Whether an argument can carry these masks folded into one, without changing the meaning of any."""
    if any(operand.attached != slot.attached for operand in mask_operands):
        return False
    if len(mask_operands) > 1 and any(operand.verbatim for operand in mask_operands):
        return False
    folded = fold(mask_operands, slot.name)
    if folded.element == "float" and not np.array_equal(round_to(folded.values, problem.dtype), folded.values):
        return False  # the sum of two additive masks need not be a number of the dtype
    return element_of(slot, folded) is not None and form_of(slot, folded) is not None


def form_of(slot: Slot, operand: MaskOperand) -> tuple[str, ...] | None:
    """The narrowest form of the argument that covers the axes of the mask; None if there is none."""
    return next((form for form in slot.axes if covers(form, operand.values)), None)


def element_of(slot: Slot, operand: MaskOperand) -> str | None:
    """The element type to pass: the mask's own if it is documented, else one without loss; None if there is none."""
    if operand.verbatim:
        return operand.element if slot.meaning(operand.element) else None
    if operand.element == "float":
        if slot.meaning("float") == "add":
            return "float"
        if not is_boolean(operand):
            return None
    choices = [operand.element, "bool", "int", "float"]
    written = {"bool": ("attend", "ignore"), "int": ("attend", "ignore"), "float": ("add",)}
    return next((e for e in choices if slot.meaning(e) in written[e]), None)
