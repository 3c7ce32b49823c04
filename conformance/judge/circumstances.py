"""On what it can depend how a decision is taken: what calls are like, and the fewest such words that divide them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations

from conformance.deviations.names import slot_of
from conformance.judge.reading import Probe, Reading

DEEPEST = 3
"""How many circumstances are combined before a decision is said to vary."""

ALIASES = {"none": "three tensors", "kv": "key is value", "qkv": "one tensor"}

Circumstance = Callable[[Probe, str], str]
"""What a call is like, for a decision: in words."""


def _element(probe: Probe, decision: str) -> str:
    _, slot = slot_of(decision)
    elements = {mask.element for mask in probe.facts.masks if slot in (None, mask.slot)}
    words = [f"{element} mask" if element != "flag" else "flag" for element in sorted(elements)]
    return " and ".join(words) or "no mask"


def _outputs(probe: Probe, _: str) -> str:
    return "with weights" if set(probe.facts.outputs) - {"output"} else "without weights"


def _slots(probe: Probe, _: str) -> str:
    return " and ".join(mask.slot for mask in probe.facts.masks) or "no mask"


def _square(probe: Probe, _: str) -> str:
    sizes = probe.facts.sizes
    return (
        "as many keys as queries" if sizes["seq_len_q"] == sizes["seq_len_k"] else "other lengths of keys and queries"
    )


CIRCUMSTANCES: tuple[Circumstance, ...] = (
    _element,
    _outputs,
    lambda probe, _: probe.facts.dtype,
    lambda probe, _: ALIASES[probe.facts.alias],
    _slots,
    lambda probe, _: probe.facts.operator,
    _square,
)
"""The first that suffice are named."""


def divided(
    readings: Sequence[Reading], decision: str, suits: Callable[[Sequence[Reading]], bool]
) -> Mapping[str, tuple[Reading, ...]] | None:
    """
    The readings by circumstance, such that each part suits; of as few circumstances as possible, in few parts.

    "" is the circumstance of all; None where nothing suits.
    """
    for depth in range(DEEPEST + 1):
        found = [_parts(readings, decision, chosen) for chosen in combinations(CIRCUMSTANCES, depth)]
        fitting = [parts for parts in found if all(suits(part) for part in parts.values())]
        if fitting:
            return min(fitting, key=len)
    return None


def _parts(
    readings: Iterable[Reading], decision: str, chosen: Iterable[Circumstance]
) -> dict[str, tuple[Reading, ...]]:
    parts: dict[str, tuple[Reading, ...]] = {}
    for reading in readings:
        words = ", ".join(dict.fromkeys(about(reading.probe, decision) for about in chosen))
        parts[words] = (*parts.get(words, ()), reading)
    return parts
