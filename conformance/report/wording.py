"""Sentences about the ways of a decision, for readers who move calls from one subject to another."""

from conformance.judge.reading import CANONICAL, Way
from conformance.oracle.variation import slot_of
from conformance.oracle.variations import CANONICAL_NAMES, find

SENTENCES = {
    "polarity": "reads True in {slot} as: attend this key",
    "float_mask": "adds a float {slot} to the logits",
    "number_mask": "reads what is not zero in {slot} as: attend this key",
    "use": "uses {slot} in every call",
    "mask_axes": "reads the axes of {slot} as they are given",
    "causal_alignment": "aligns the causal flag to the first key",
    "fully_masked_row": "returns zeros for a fully masked row",
    "mask_fill": "hides masked keys altogether",
    "result_dtype": "returns the dtype of the input",
    "returned_weights": "returns weights per head, after the softmax",
    "grouped_heads": "shares key and value heads consecutively (repeat)",
    "window_edges": "counts both ends into a window",
    "mask_combination": "attends where every mask allows it",
    "nonfinite_value": "keeps non-finite values at masked positions from the output",
    "nonfinite_key": "keeps non-finite keys at masked positions from the output",
}
"""What canonical does, after "it"; the ways beside it have sentences of their own."""

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


def sentence(decision: str, name: str) -> str:
    """What a subject does that takes a decision in this way."""
    if name != CANONICAL:
        return find(decision, name).sentence
    family, slot = slot_of(decision)
    if family in SENTENCES:
        return SENTENCES[family].format(slot=slot)
    return f"takes {decision} as usual: {CANONICAL_NAMES.get(decision, CANONICAL)}"


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
