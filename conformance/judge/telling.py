"""Sentences about the ways of a decision: what a subject does that takes it so."""

from conformance.deviations.catalogue import find
from conformance.deviations.names import CANONICAL_NAMES, slot_of
from conformance.judge.explanation import CANONICAL

SENTENCES = {
    "polarity": "reads True in {slot} as: attend this key",
    "float_mask": "adds a float {slot} to the logits",
    "number_mask": "reads what is not zero in {slot} as: attend this key",
    "penalty": "hides what {slot} masks altogether",
    "use": "uses {slot} in every call",
    "mask_axes": "reads the axes of {slot} as they are given",
    "attention_axis": "attends over the positions",
    "head_split": "splits the heads consecutively",
    "scale": "scales the logits by 1/sqrt(head_dim), or as it is told",
    "softmax_axis": "normalises over the keys",
    "causal_alignment": "aligns the causal flag to the first key",
    "causal_with_past": "shifts the causal flag by the length of the past",
    "window_with_past": "shifts the window by the length of the past",
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

TOPICS = {
    "fully_masked_row": "a fully masked row is",
    "causal_alignment": "the causal flag is aligned to",
    "grouped_heads": "key and value heads are shared",
    "polarity": "True in {slot} means",
    "use": "{slot} is",
}
"""How to begin a sentence about two ways of one decision, where each has a short name."""

SHORT = {
    ("fully_masked_row", CANONICAL): "zero",
    ("fully_masked_row", "nan"): "NaN",
    ("fully_masked_row", "uniform"): "the mean of V",
    ("fully_masked_row", "unmasked"): "what it is without the mask",
    ("fully_masked_row", "uniform_unpadded"): "the mean of the V that are not padded",
    ("causal_alignment", CANONICAL): "the first key",
    ("causal_alignment", "bottom_right"): "the last key",
    ("grouped_heads", CANONICAL): "consecutively (repeat)",
    ("grouped_heads", "tile"): "in turn (tile)",
    ("polarity", CANONICAL): "attend",
    ("polarity", "ignore"): "ignore",
    ("use", CANONICAL): "used",
    ("use", "ignored"): "ignored",
    ("use", "ignored_beside_others"): "ignored when another mask is given",
    ("use", "ignored_with_weights"): "ignored when weights are asked for",
}
"""Ways by short names that follow the topic."""

UNSTEADY = {
    "nondeterministic": "answers the very same call in different ways",
    "order_dependent": "answers a call in another way after other calls",
}
"""What is told by repetition, by the class of a fail; no decision explains it."""


def sentence(decision: str, name: str) -> str:
    """
    What a subject does that takes a decision in this way, to be read after "it".

    Raises:
        KeyError: the table of deviations has no such row.
    """
    family, slot = slot_of(decision)
    if name != CANONICAL and name != CANONICAL_NAMES.get(decision):
        return find(decision, name).sentence
    if family in SENTENCES:
        return SENTENCES[family].format(slot=slot)
    return f"takes {decision} as usual: {CANONICAL_NAMES.get(decision, CANONICAL)}"


def turned(decision: str, before: str, now: str) -> tuple[str, str] | None:
    """What the decision was and is, short: ("a fully masked row is zero", "NaN"); None where there are no names."""
    family, slot = slot_of(decision)
    names = [
        SHORT.get((family, CANONICAL if name == CANONICAL_NAMES.get(decision) else name)) for name in (now, before)
    ]
    if family not in TOPICS or None in names:
        return None
    return f"{TOPICS[family].format(slot=slot)} {names[0]}", str(names[1])


def short(decision: str, name: str) -> str:
    """A way in a few words, where there are any; else its name."""
    return SHORT.get((slot_of(decision)[0], name), name)
