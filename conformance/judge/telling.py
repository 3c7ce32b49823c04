"""Sentences about the ways of a decision: what a subject does that takes it so."""

from conformance.deviations.catalogue import find
from conformance.deviations.names import CANONICAL_NAMES, SHORT, TOPICS, USUAL, slot_of
from conformance.judge.explanation import CANONICAL

UNSTEADY = {
    "nondeterministic": "returns different results for the same call",
    "order_dependent": "returns a different result for a call after other calls",
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
    if family in USUAL:
        return USUAL[family].replace("SLOT", slot or "SLOT")
    return f"takes {decision} as usual: {CANONICAL_NAMES.get(decision, CANONICAL)}"


def turned(decision: str, before: str, now: str) -> tuple[str, str] | None:
    """What the decision was and is, short: ("a fully masked row is zero", "NaN"); None where there are no names."""
    family, slot = slot_of(decision)
    names = [
        SHORT.get(f"{family}={CANONICAL if name == CANONICAL_NAMES.get(decision) else name}") for name in (now, before)
    ]
    if family not in TOPICS or None in names:
        return None
    return f"{TOPICS[family].replace('SLOT', slot or 'SLOT')} {names[0]}", str(names[1])


def short(decision: str, name: str) -> str:
    """A way in a few words, where there are any; else its name."""
    return SHORT.get(f"{slot_of(decision)[0]}={name}", name)
