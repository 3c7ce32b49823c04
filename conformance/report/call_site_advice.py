"""What to change at the call site when calls move from one subject to another."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from conformance.deviations.catalogue import find
from conformance.deviations.names import slot_of
from conformance.diagnosis.explanation import CANONICAL, Way, short
from conformance.engine.adapter_facts import Slot
from conformance.spec.problem import AXES

# Decisions whose remedy also works in the opposite direction.
SYMMETRIC = (
    "polarity",
    "causal_alignment",
    "mask_axes",
    "arguments",
    "input_axes",
    "output_axes",
    "weight_orientation",
)

# The advice where the new side is the more careful one.
NOTHING = "nothing"

# Decisions about non-finite numbers at positions that no query attends, with the tensor concerned.
PADDING = {"nonfinite_key": "keys", "nonfinite_value": "values"}

FULLY_MASKED_ROWS = "the output rows of fully masked queries"

# Role of an argument -> name of the mask that replaces it, which keys that mask ignores, which keys it attends. NAME is
# the argument itself.
WRITTEN_OUT = {
    "causal": ("causal mask", "after the query", "at or before the query"),
    "window": ("window mask", "outside the window", "inside the window"),
    "lengths": ("padding mask", "not among the first NAME", "among the first NAME"),
}

# How a boolean mask is written where masks are added to the logits.
AS_FLOATS = "floats: 0 where they attend, -inf elsewhere"

# Roles of the arguments that describe a mask by its diagonals.
DIAGONAL = ("causal", "window")

# Alignment of a causal argument or window -> in words.
ALIGNED = {
    "top_left": "top left",
    "bottom_right": "bottom right",
    "past": "top left, shifted by the number of past keys",
}


@dataclass(frozen=True)
class Destination:
    """
    The subject that a call moves to.

    operator: "sdpa" or "mha". argument: the one that takes the mask which a decision is about; None if the decision is
    about no mask. additive: the argument that takes numbers to add to the logits; None if there is none.
    """

    operator: str
    argument: Slot | None = None
    additive: Slot | None = None


def change(here: Way, there: Way, to: Destination) -> str:
    """
    What to change at the call site when a call moves from one behaviour to another; "" if no remedy is known.

    Both ways belong to one decision; a decision about a mask argument has the name of that argument on either side.
    """
    family, _ = slot_of(here[0])
    if family in SYMMETRIC:
        return _in_both_conventions(here, there)
    if family in ADVICE_BY_DECISION:
        return ADVICE_BY_DECISION[family](here, there, to)
    if there[1] != CANONICAL:
        return find(*there).remedy
    remedy = find(*here).remedy if here[1] != CANONICAL else ""
    return f"no longer needed: {remedy}" if remedy else ""


def argument_changes(
    kind: str, pairs: Mapping[str, tuple[Slot | None, Slot | None]], array: Slot | None = None
) -> tuple[str, ...]:
    """
    What to change about the argument of one kind of mask: its name, its shape, and what it is combined with.

    pairs: for every kind, the argument of the old side and of the new one, None if a side has none. array: the argument
    of the new side that takes this kind as an array; None if there is none.
    """
    here, there = pairs[kind]
    if here is None or there is None:
        return ()
    found = (
        *(_hint(here, there), _written_out(here, there), _taken_out(here, there), _counted(here, there, array)),
        *(_described(here, there), _shaped(here, there), _combined(kind, pairs)),
        *(_aligned(here, there, array), _excluded(here, there, array), _shifted(here, there, array)),
    )
    return tuple(filter(None, found)) or tuple(filter(None, (_renamed(kind, here, there),)))


def _written_out(here: Slot, there: Slot) -> str:
    """Advice to pass a mask instead of a causal or window argument that the new side does not have; else ""."""
    if here.role not in WRITTEN_OUT or there.role != "mask":
        return ""
    what, ignored, attended = WRITTEN_OUT[here.role]
    name = f"pass the {what} explicitly as {there.title}"
    if _only_floats(there):
        return f"{name}: 0 where the key is {attended.replace('NAME', here.title)}, -inf elsewhere"
    where = ignored if there.meaning("bool") == "ignore" else attended
    return f"{name}: True where the key is {where.replace('NAME', here.title)}"


def _taken_out(here: Slot, there: Slot) -> str:
    """Advice to pass a causal or window argument instead of a mask, which the old side needs for it; else ""."""
    if here.role != "mask" or there.role not in DIAGONAL or there.hint:
        return ""
    only = ", if the window is equally wide on both sides" if there.symmetric else ""
    only = ", if the window has no limit on the right" if there.left_only else only
    name = f"{there.title} ({there.about})" if there.about else there.title
    return f"pass {name} instead of a {WRITTEN_OUT[there.role][0]} in {here.title}{only}"


def _counted(here: Slot, there: Slot, array: Slot | None) -> str:
    """Advice to count the attended keys where the new side takes their number and the old side a mask; else ""."""
    if here.role != "mask" or there.role != "lengths":
        return ""
    other = f"pass padding that is not at the end as a mask in {array.title}" if array else "it must be at the end"
    keys = "the number of keys that are not padding"
    how = f"instead of a mask, {there.title} takes {there.about}" if there.about else f"pass {keys} as {there.title}"
    return f"{how}; {other}"


def counts(slot: Slot) -> str:
    """What a window or a lengths argument takes, in words; "" for other arguments."""
    if slot.role == "window":
        sides = "left width" if slot.left_only else "left and right width"
        return slot.about or ("one width for both sides" if slot.symmetric else sides)
    return slot.about or ("the number of leading positions" if slot.role == "lengths" else "")


def _described(here: Slot, there: Slot) -> str:
    """What the new argument takes if a window or length is another number there; else ""."""
    about = bool(here.about or there.about) and here.role == there.role and counts(here) != counts(there)
    return f"{there.title} takes {counts(there)}" if about else ""


def _only_floats(slot: Slot) -> bool:
    """Whether a boolean mask must become floats that are added to the logits."""
    return slot.meaning("bool") is None and slot.meaning("float") == "add"


def _aligned(here: Slot, there: Slot, array: Slot | None) -> str:
    """Advice on a causal argument that another corner of the matrix aligns; "" if both sides use the same corner."""
    ends = [each.alignment == "bottom_right" for each in (here, there)]
    if {here.role, there.role} != {"causal"} or ends[0] == ends[1]:
        return ""
    old, new = (f"{each.title} aligns it {ALIGNED[each.alignment]}" for each in (here, there))
    return f"{_as_array('causal', array)} unless there are as many keys as queries: {old}, and {new}"


def _excluded(here: Slot, there: Slot, array: Slot | None) -> str:
    """Advice for a causal or window argument that only the new side does not take together with a mask; else ""."""
    if there.role not in DIAGONAL or not there.excludes or here.excludes:
        return ""
    others = " or ".join(there.excludes)
    return f"{_as_array(there.role, array)} if {others} is given: {there.title} excludes {others}"


def _shifted(here: Slot, there: Slot, array: Slot | None) -> str:
    """Advice for a causal or window argument that lengths shift on one of the two sides; "" if both sides agree."""
    mover = there if there.moved_by else here
    if bool(here.moved_by) == bool(there.moved_by) or mover.role not in DIAGONAL:
        return ""
    lengths = " or ".join(mover.moved_by)
    by = f"by {lengths} - seq_len_q in each batch element"
    shifts = f"it shifts the {WRITTEN_OUT[mover.role][0]} of {mover.title}"
    if mover is there:
        return f"{_as_array(mover.role, array)} if {lengths} is given: {shifts} {by}"
    return f"{_as_array(mover.role, array)}, shifted {by}, if {lengths} was given: {shifts}"


def _as_array(role: str, array: Slot | None) -> str:
    """Advice to pass a mask as an array instead of in an argument of this role."""
    what = WRITTEN_OUT[role][0]
    return f"pass the {what} in {array.title}" if array else f"no argument takes the {what}"


def _renamed(kind: str, here: Slot, there: Slot) -> str:
    """Advice to pass a mask under another name, inverted if True means the opposite there; "" if the name stays."""
    if {here.role, there.role} != {"mask"}:
        return ""
    if kind != "additive" and here.meaning("bool") in ("attend", "ignore") and _only_floats(there):
        return f"pass it as {there.title}, with booleans as {AS_FLOATS}"
    if here.name == there.name:
        return ""
    inverted = {here.meaning("bool"), there.meaning("bool")} == {"attend", "ignore"}
    return f"pass ~{here.title} as {there.title}, if it is boolean" if inverted else f"pass it as {there.title}"


def _shaped(here: Slot, there: Slot) -> str:
    """The shape that the new argument needs, if it accepts none of the old argument's shapes; else ""."""
    forms = [form for form in here.axes if not any("*" in axis for axis in form)]
    if {here.role, there.role} != {"mask"} or not forms or not there.axes or set(forms) & set(there.axes):
        return ""
    old, new = min(forms, key=len), max(there.axes, key=len)
    if not set(old) <= set(new):
        return ""
    shape = (AXES[axis] if axis in old or axis not in there.broadcast else "1" for axis in new)
    return f"pass it as ({', '.join(shape)})"


def _combined(kind: str, pairs: Mapping[str, tuple[Slot | None, Slot | None]]) -> str:
    """Advice to combine two masks that the new side takes in one argument; given for the later of the two."""
    here, there = pairs[kind]
    kinds = list(pairs)
    for earlier in kinds[: kinds.index(kind)]:
        other, target = pairs[earlier]
        if here and there and other and target and other.name != here.name and target.name == there.name:
            name = other.title if other.role == "mask" else f"the {WRITTEN_OUT[other.role][0]}"
            if _only_floats(there):
                return f"add it to {name}, with booleans as {AS_FLOATS}"
            how = "|" if there.meaning("bool") == "ignore" else "&"
            numbers = ", numbers by +" if there.meaning("float") == "add" else ""
            return f"combine it with {name}: booleans by {how}{numbers}"
    return ""


def _hint(here: Slot, there: Slot) -> str:
    """What to change if the causal argument is only a hint on one of the two sides; "" if both sides agree."""
    if {here.role, there.role} != {"causal"} or here.hint == there.hint:
        return ""
    if here.hint:
        return f"pass {there.title}=True alone: the {' and '.join(here.requires)} that repeats it is not needed"
    masks = " and ".join(there.requires)
    return f"pass the causal mask itself as {masks}; {there.title}=True is only a hint that this mask is causal"


def _in_both_conventions(here: Way, there: Way) -> str:
    """The remedy that converts one way into the other; for a mask argument, from the old argument to the new one."""
    decision, name = here if there[1] == CANONICAL else there
    remedy, slot = find(decision, name).remedy, slot_of(decision)[1]
    if slot is None or not remedy:
        return remedy
    old, new = _names(here, there)
    return f"{remedy.replace(slot, old)} as {new}"


def _names(here: Way, there: Way) -> tuple[str, str]:
    """The name of the mask argument that a decision is about, on either side."""
    old, new = slot_of(here[0])[1], slot_of(there[0])[1]
    return old or new or "the mask", new or old or "the mask"


def _float_mask(here: Way, there: Way, to: Destination) -> str:
    """
    Advice for a float mask that one side adds to the logits and the other side casts to bool.

    Added floats are 0 where a key is attended; cast floats are non-zero there.
    """
    old, new = _names(here, there)
    if "subtracted" in (here[1], there[1]):
        return f"pass -{old} as {new}"
    added = here[1] == CANONICAL
    ignores = to.argument is not None and to.argument.meaning("bool") == "ignore"
    boolean = f"{old} {'==' if added != ignores else '!='} 0"
    if not added:
        return f"pass {boolean} as a boolean {new}"
    rest = f"pass other numbers as {to.additive.name}" if to.additive else "no argument accepts other numbers"
    return f"if {old} holds only 0 and -inf, pass {boolean} as {new}; {rest}"


def _number_mask(here: Way, there: Way, _: Destination) -> str:
    """Advice for an integer mask that one side adds to the logits and in which zero means ignore on the other side."""
    old, new = _names(here, there)
    if there[1] == CANONICAL:
        return f"if {old} was added to the logits, pass its numbers as floats"
    return f"pass {old} as a float {new}: 0 where {old} is non-zero, -inf where it is zero"


def _padding(_: Way, there: Way, __: Destination) -> str:
    """Non-finite numbers at masked positions must be overwritten if the new side lets them reach the output."""
    if there[1] == CANONICAL:
        return NOTHING
    tensor = PADDING[slot_of(there[0])[0]]
    return f"overwrite {tensor} at masked positions with finite numbers, such as 0, before the call"


def _fully_masked_row(here: Way, there: Way, to: Destination) -> str:
    """What to overwrite the output of fully masked rows with, so that it stays what it was."""
    if here[1] == "nan":
        return NOTHING
    if here[1] == CANONICAL:
        zero = "the bias of the output projection (0 without one)" if to.operator == "mha" else "0"
        return f"overwrite {FULLY_MASKED_ROWS} with {zero}"
    was, now = short("fully_masked_row", here[1]), short("fully_masked_row", there[1])
    return f"{FULLY_MASKED_ROWS} were {was} and are now {now}: overwrite them if your code relies on the old values"


# Decisions whose advice depends on both ways or on the destination.
ADVICE_BY_DECISION: dict[str, Callable[[Way, Way, Destination], str]] = {
    "float_mask": _float_mask,
    "number_mask": _number_mask,
    "fully_masked_row": _fully_masked_row,
    **dict.fromkeys(PADDING, _padding),
}
