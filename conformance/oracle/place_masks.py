"""
Variations in which places that have a name, of a query and a key each, are hidden or shown whatever masks say.

Which places makes several hundred of them. So they are found by name, and looked for only where nothing else explains
what fails.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from conformance.oracle.named_places import Places, named_places
from conformance.oracle.other_tails import TAIL
from conformance.oracle.variation import Family, Variation, problem_row
from conformance.spec.problem import Group, Problem

DECISION = "place_mask"

EFFECTS: Mapping[str, str] = {
    "hidden": "does not attend {places}",
    "shown": "attends {places}, masked or not",
    "shown_by_flags": "attends {places}, whatever a flag says",
}
"""Name -> what is done with places, in words."""


@dataclass(frozen=True)
class PlaceMask:
    """effect: one of EFFECTS. where: places by their name, and which these are."""

    effect: str
    where: str
    which: Places

    @property
    def name(self) -> str:
        """As it is written after `place_mask=`."""
        return f"{self.effect}_{self.where.replace(chr(39), '').replace(',', '').replace(' ', '_')}"

    @property
    def sentence(self) -> str:
        """What it does, after "it"."""
        return EFFECTS[self.effect].format(places=self.where)


def place_masks() -> Iterator[PlaceMask]:
    """Every one, the plainest first."""
    for where, which in named_places():
        yield from (PlaceMask(effect, where, which) for effect in EFFECTS)


def place_mask(each: PlaceMask) -> Variation:
    """The places as a variation of every call in which that is another mask."""

    def masked(problem: Problem) -> Problem:
        attended = problem.attended()
        places = each.which(np.broadcast_to(attended, problem.logits_shape))
        if each.effect == "hidden":
            if not np.any(attended & places):
                return problem
            kept = ~places[(None,) * (4 - places.ndim)]
            return problem.but(groups=(*problem.groups, Group(TAIL, (TAIL,), "bool", kept)))
        if not np.any(~attended & places):
            return problem
        changed = tuple(_shown(group, places, flags=each.effect == "shown_by_flags") for group in problem.groups)
        same = all(one is other for one, other in zip(changed, problem.groups, strict=True))
        return problem if same else problem.but(groups=changed)

    return problem_row(DECISION, each.name, each.sentence, "", masked)


def _shown(group: Group, places: np.ndarray, *, flags: bool) -> Group:
    """The group with these places attended, or as it is."""
    is_flag = group.element == "flag"
    if flags and not is_flag:
        return group
    if group.element == "float":
        return replace(group, values=np.where(places & (group.values == -np.inf), 0.0, group.values))
    return replace(group, element="bool", values=(group.values != 0) | places, offset=None, window=None)


FAMILY = Family(
    DECISION,
    "one",
    "hidden_the_last_key",
    {each.name: partial(place_mask, each) for each in place_masks()},
)
