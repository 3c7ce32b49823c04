"""The replies of one subject, each read under what explains it: its declaration, or as few other ways as possible."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from conformance.deviations.deviation import Dialect
from conformance.judge.causes import fewest
from conformance.judge.explanation import Way, taking
from conformance.judge.reading import Probe, Reading, agrees, alternatives, read

SEEN = ("fully_masked_row", "nonfinite_key", "nonfinite_value")
"""Decisions that a reply shows by itself."""

CONCLUDED = "mask_fill"
"""A decision that is concluded from those of SEEN, unless something else shows it."""

Explanations = Mapping[Way, Dialect]
"""A way that is taken otherwise than declared -> the dialect under which the reply then lies within its bound."""


def readings(probes: Sequence[Probe]) -> tuple[Reading, ...]:
    """
    Read every reply, in order.

    A reply that is not as declared is explained by one way; where none does, by one more beside a way that explains
    another reply; else by nothing.
    """
    agreeing = {n: read(probe, probe.dialect) for n, probe in enumerate(probes) if agrees(probe, probe.dialect)}
    against = Counter(
        (decision, name)
        for reading in agreeing.values()
        for decision, names in reading.refuted.items()
        for name in names
    )
    open_ = {n: explanations(p, [p.dialect]) for n, p in enumerate(probes) if n not in agreeing}
    seen = dict.fromkeys(_chosen(open_, against).values())
    for n, found in open_.items():
        if not found:
            open_[n] = explanations(probes[n], [taking(probes[n].dialect, way) for way in seen])
    chosen = _chosen(open_, against)
    explained = {n: _read(probes[n], found, chosen.get(n), against) for n, found in open_.items()}
    both = agreeing | explained
    return tuple(both[n] for n in range(len(probes)))


def explanations(probe: Probe, bases: Iterable[Dialect]) -> Explanations:
    """Every way that explains the reply when it is added to one of `bases`."""
    found: dict[Way, Dialect] = {}
    for base in bases:
        for way in alternatives(probe, base):
            dialect = taking(base, way)
            if way not in found and agrees(probe, dialect):
                found[way] = dialect
    return found


def _read(probe: Probe, found: Explanations, cause: Way | None, against: Mapping[Way, int]) -> Reading:
    """Read a reply under its cause; ways that more of the other replies refute are no explanation beside it."""
    if cause is None:
        return Reading(probe, None)
    return read(probe, found[cause], (way for way in found if against.get(way, 0) <= against.get(cause, 0)))


def _chosen(open_: Mapping[int, Explanations], against: Mapping[Way, int]) -> dict[int, Way]:
    """For each reply the way that explains most of them, of those that are likely."""
    ways = {"=".join(way): way for found in open_.values() for way in found}
    needed = {way for found in open_.values() if not any(map(_is_seen, found)) for way in found}
    ordered = {n: ["=".join(way) for way in _likely(found, against, needed)] for n, found in open_.items()}
    return {n: ways[key] for n, key in fewest(ordered).items()}


def _likely(found: Explanations, against: Mapping[Way, int], needed: Collection[Way]) -> list[Way]:
    """
    The ways of SEEN, and those that fewest other replies refute.

    A fill, which would do what is seen, counts only where it is needed for a reply that shows none of SEEN.
    """
    least = min((against.get(way, 0) for way in found), default=0)
    seen = [way for way in found if _is_seen(way)]
    others = [way for way in found if not _is_seen(way) and against.get(way, 0) == least]
    return seen + [way for way in others if not seen or way[0] != CONCLUDED or way in needed]


def _is_seen(way: Way) -> bool:
    return way[0] in SEEN
