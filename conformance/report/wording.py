"""What to change at the call site, for readers who move calls from one subject to another."""

from conformance.judge.diagnose import CANONICAL, Way
from conformance.oracle.variation import slot_of
from conformance.oracle.variations import find

SYMMETRIC = (
    "polarity",
    "causal_alignment",
    "mask_axes",
    "arguments",
    "input_axes",
    "output_axes",
    "weight_orientation",
)
"""Decisions of which the remedy also leads back."""

BACK = {
    "float_mask": "where {slot} was 0 or 1, pass a boolean mask: {slot} != 0 attends",
    "number_mask": "where {slot} was added, pass its numbers as floats",
    "fully_masked_row": "fully masked rows are zero now: mind what relied on their values",
    "nonfinite_key": "",
    "nonfinite_value": "",
}
"""What to do on the way back to canonical; "" where what helped before does no harm."""


def change(here: Way, there: Way) -> str:
    """
    What to change at the call site when a call moves from one way to another; "" where nothing is known to help.

    The two are one decision; that of a mask argument bears the argument's name on either side.
    """
    family, slot = slot_of(here[0])
    if family in SYMMETRIC:
        return _both_ways(here, there)
    if there[1] != CANONICAL:
        return find(*there).remedy
    if family in BACK:
        return BACK[family].format(slot=slot)
    remedy = find(*here).remedy if here[1] != CANONICAL else ""
    return f"leave out what helped before: {remedy}" if remedy else ""


def _both_ways(here: Way, there: Way) -> str:
    """The remedy that leads from one way to the other, for a mask argument from the old one to the new one."""
    decision, name = here if there[1] == CANONICAL else there
    remedy, slot = find(decision, name).remedy, slot_of(decision)[1]
    if slot is None or not remedy:
        return remedy
    old, new = slot_of(here[0])[1] or slot, slot_of(there[0])[1] or slot
    return f"{remedy.replace(slot, old)} as {new}"
