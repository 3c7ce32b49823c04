"""What to change at the call site, for readers who move calls from one subject to another."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from conformance.deviations.catalogue import find
from conformance.deviations.names import slot_of
from conformance.diagnosis.explanation import CANONICAL, Way, short
from conformance.engine.slots import Slot
from conformance.spec.problem import AXES

# Decisions of which the remedy also leads back.
SYMMETRIC = (
    "polarity",
    "causal_alignment",
    "mask_axes",
    "arguments",
    "input_axes",
    "output_axes",
    "weight_orientation",
)

# What to change where the new side is the more careful one.
NOTHING = "nothing"

# Decisions about what stands where nobody attends, with the tensor that is meant.
PADDING = {"nonfinite_key": "keys", "nonfinite_value": "values"}

FULLY_MASKED_ROWS = "the rows of the output that attend no key"

# Role of an argument -> what a mask says in its stead, the keys that it ignores, the keys that it attends.
WRITTEN_OUT = {
    "causal": ("order", "after the query", "not after the query"),
    "window": ("window", "outside of it", "inside of it"),
}


@dataclass(frozen=True)
class Destination:
    """
    Where a call moves to.

    operator: "sdpa" or "mha". argument: that takes the mask which a decision is about; None where it is about none.
    additive: that takes numbers to add to the logits; None where nothing does.
    """

    operator: str
    argument: Slot | None = None
    additive: Slot | None = None


def change(here: Way, there: Way, to: Destination) -> str:
    """
    What to change at the call site when a call moves from one way to another; "" where nothing is known to help.

    The two are one decision; that of a mask argument bears the argument's name on either side.
    """
    family, _ = slot_of(here[0])
    if family in SYMMETRIC:
        return _in_both_conventions(here, there)
    if family in OF_THEIR_OWN:
        return OF_THEIR_OWN[family](here, there, to)
    if there[1] != CANONICAL:
        return find(*there).remedy
    remedy = find(*here).remedy if here[1] != CANONICAL else ""
    return f"no longer needed: {remedy}" if remedy else ""


def argument_changes(kind: str, pairs: Mapping[str, tuple[Slot | None, Slot | None]]) -> tuple[str, ...]:
    """
    What to change about the argument of one kind of mask: how it is shaped, and what it is combined with.

    pairs: for every kind, the argument of the old side and of the new one, None where a side has none.
    """
    here, there = pairs[kind]
    if here is None or there is None:
        return ()
    return tuple(
        filter(None, (_hint(here, there), _written_out(here, there), _shaped(here, there), _joined(kind, pairs)))
    )


def _written_out(here: Slot, there: Slot) -> str:
    """The causal flag or the window of the old side where the new one has none."""
    if here.role not in WRITTEN_OUT or there.role != "mask":
        return ""
    what, ignored, attended = WRITTEN_OUT[here.role]
    where = ignored if there.meaning("bool") == "ignore" else attended
    return f"write the {what} out for {there.name}: True where the key is {where}"


def _shaped(here: Slot, there: Slot) -> str:
    """The shape in which the new argument takes what the old one took, where it takes no shape of the old one."""
    forms = [form for form in here.axes if not any("*" in axis for axis in form)]
    if {here.role, there.role} != {"mask"} or not forms or not there.axes or set(forms) & set(there.axes):
        return ""
    old, new = min(forms, key=len), max(there.axes, key=len)
    if not set(old) <= set(new):
        return ""
    shape = (AXES[axis] if axis in old or axis not in there.broadcast else "1" for axis in new)
    return f"pass it as ({', '.join(shape)})"


def _joined(kind: str, pairs: Mapping[str, tuple[Slot | None, Slot | None]]) -> str:
    """What was given apart, and has one argument now: said of the later of the two."""
    here, there = pairs[kind]
    kinds = list(pairs)
    for earlier in kinds[: kinds.index(kind)]:
        other, same = pairs[earlier]
        if here and there and other and same and other.name != here.name and same.name == there.name:
            how = "|" if there.meaning("bool") == "ignore" else "&"
            numbers = ", numbers by +" if there.meaning("float") == "add" else ""
            return f"beside {other.name}, combine the two: booleans by {how}{numbers}"
    return ""


def _hint(here: Slot, there: Slot) -> str:
    """What to change where the causal flag of one of the two sides is only a hint; "" where both are alike."""
    if {here.role, there.role} != {"causal"} or here.hint == there.hint:
        return ""
    if here.hint:
        return f"{there.name}=True suffices: leave out the {' and '.join(here.requires)} that only repeats it"
    masks = " and ".join(there.requires)
    return f"pass the causal mask itself as {masks}; {there.name}=True beside it is only a hint that it is causal"


def _in_both_conventions(here: Way, there: Way) -> str:
    """The remedy that leads from one way to the other, for a mask argument from the old one to the new one."""
    decision, name = here if there[1] == CANONICAL else there
    remedy, slot = find(decision, name).remedy, slot_of(decision)[1]
    if slot is None or not remedy:
        return remedy
    old, new = _names(here, there)
    return f"{remedy.replace(slot, old)} as {new}"


def _names(here: Way, there: Way) -> tuple[str, str]:
    """The mask argument that a decision is about, on either side."""
    old, new = slot_of(here[0])[1], slot_of(there[0])[1]
    return old or new or "the mask", new or old or "the mask"


def _float_mask(here: Way, there: Way, to: Destination) -> str:
    """
    Between floats that are added and floats that stand for a boolean.

    What attends was 0 in floats that are added, and is not 0 where they are cast.
    """
    old, new = _names(here, there)
    if "subtracted" in (here[1], there[1]):
        return f"pass -{old} as {new}"
    added = here[1] == CANONICAL
    ignores = to.argument is not None and to.argument.meaning("bool") == "ignore"
    boolean = f"{old} {'==' if added != ignores else '!='} 0"
    if not added:
        return f"pass {boolean} as a boolean {new}"
    rest = f"pass other numbers as {to.additive.name}" if to.additive else "no argument takes other numbers"
    return f"where {old} holds 0 and -inf, pass {boolean} as {new}; {rest}"


def _number_mask(here: Way, there: Way, _: Destination) -> str:
    """Between integers that are added and integers of which zero ignores."""
    old, new = _names(here, there)
    if there[1] == CANONICAL:
        return f"where {old} was added, pass its numbers as floats"
    return f"pass {old} as floats, 0 where it is not zero and -inf where it is, as {new}"


def _padding(_: Way, there: Way, __: Destination) -> str:
    """What stands where nobody attends must be finite for those who let it through."""
    if there[1] == CANONICAL:
        return NOTHING
    tensor = PADDING[slot_of(there[0])[0]]
    return f"overwrite the {tensor} that nobody attends with finite numbers, such as 0, before the call"


def _fully_masked_row(here: Way, there: Way, to: Destination) -> str:
    """What rows without an attended key must be overwritten with to be what they were."""
    if here[1] == "nan":
        return NOTHING
    if here[1] == CANONICAL:
        zero = "the bias of the output projection (0 without one)" if to.operator == "mha" else "0"
        return f"overwrite {FULLY_MASKED_ROWS} with {zero}"
    was, now = short("fully_masked_row", here[1]), short("fully_masked_row", there[1])
    return f"{FULLY_MASKED_ROWS} were {was} and are {now} now: overwrite them where that was relied on"


# Decisions where both ways matter, or where the call moves to.
OF_THEIR_OWN: dict[str, Callable[[Way, Way, Destination], str]] = {
    "float_mask": _float_mask,
    "number_mask": _number_mask,
    "fully_masked_row": _fully_masked_row,
    **dict.fromkeys(PADDING, _padding),
}
