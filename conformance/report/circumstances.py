"""Names in words the calls to which a statement about behaviour is limited."""

from collections.abc import Collection, Sequence

from conformance.diagnosis.behaviour_profile import Line, Observation
from conformance.engine.adapter_facts import CHOICES

# A property of a call, as an observation names it -> in words.
PROPERTIES = {
    "three tensors": "with three tensors as query, key and value",
    "key is value": "with one tensor as key and value",
    "one tensor": "with one tensor as query, key and value",
    "with weights": "with weights",
    "without weights": "without weights",
    "no mask": "without a mask",
    "as many keys as queries": "with as many keys as queries",
    "different numbers of keys and queries": "with different numbers of keys and queries",
    **{dtype: f"in {dtype}" for dtype in CHOICES["DTYPES"]},
    **{operator: f"of {operator}" for operator in CHOICES["OPERATORS"]},
}

SOME_CALLS = "in some calls"


def calls(circumstances: Sequence[str], others: Sequence[str] = ()) -> str:
    """
    The calls of these circumstances, such as "in calls with a bool mask, a flag, or both"; "" for all calls.

    A circumstance lists its properties with commas; "A and B" means that the call has exactly these masks. others: the
    circumstances of which the statement is not true; if one of them has A and B, then A alone is "only A".
    """
    if not all(circumstances):
        return ""
    combined = frozenset().union(*(_masks(part) for each in others for part in each.split(", ") if " and " in part))
    if not any(each in PROPERTIES or ", " in each for each in circumstances):
        return f"in calls with {_listed([_masks(each) for each in circumstances], combined)}"
    alternatives = (" and ".join(_property(part, combined) for part in each.split(", ")) for each in circumstances)
    return f"in calls {', or '.join(alternatives)}"


def limit(line: Line, case: str) -> str:
    """The calls to which the behaviour that a case shows is limited; "" if all calls show the same behaviour."""
    shown = observation(line, case)
    if shown.varies:
        return SOME_CALLS
    alike: list[str] = []
    others: list[str] = []
    for each in line.observations:
        (alike if each.observed[0] == shown.observed[0] else others).extend(each.circumstance.split("; "))
    return calls(alike, others) if others else ""


def observation(line: Line, case: str) -> Observation:
    """The observation that a case belongs to; the case shows the decision."""
    return next(each for each in line.observations if case in each.cases)


def _masks(text: str) -> frozenset[str]:
    return frozenset(text.split(" and "))


def _listed(masks: Sequence[frozenset[str]], combined: frozenset[str]) -> str:
    """Alternatives in words; one, the other, and their combination are "one, the other, or both"."""
    single = sorted(mask for each in masks if len(each) == 1 for mask in each)
    if sorted(map(len, masks)) == [1, 1, 2] and frozenset(single) in masks:
        return f"{', '.join(map(_with_article, single))}, or both"
    if len(single) < len(masks):
        return ", or ".join(_joined(each, combined) for each in masks)
    *first, last = (_joined((each,), combined) for each in single)
    return f"{', '.join(first)} or {last}" if first else last


def _property(text: str, combined: frozenset[str]) -> str:
    return PROPERTIES.get(text) or f"with {_joined(_masks(text), combined)}"


def _joined(masks: Collection[str], combined: frozenset[str]) -> str:
    """Masks that a call has together; one that other calls have together with more is "only" this one."""
    only = "only " if len(masks) == 1 and not combined.isdisjoint(masks) else ""
    return only + " and ".join(map(_with_article, sorted(masks)))


def _with_article(mask: str) -> str:
    """A kind of mask with its article; the name of an argument as it is."""
    if not mask.endswith(" mask") and mask != "flag":
        return mask
    return f"an {mask}" if mask[0] in "aeiou" else f"a {mask}"
