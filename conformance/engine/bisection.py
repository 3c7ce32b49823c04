"""Finding the first of many releases that differs from those before it, in as few trials as there are halvings."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

State = Literal["before", "after", "skip"]
"""Like the first release, like the last one, or not to be judged."""


@dataclass(frozen=True)
class Border:
    """
    Between which two releases something changed.

    last, first: the last release like the one before, the first like the one after. skipped: releases between the two
    that could not be judged: any of them may be the first.
    """

    last: str
    first: str
    skipped: tuple[str, ...]


def bisect(releases: Sequence[str], state: Callable[[str], State]) -> Border:
    """
    Search the releases from the first, which is as before, to the last, which is not.

    `state` is asked for those between, at most once each: about log2 of their number, and more where some are skipped.
    """
    low, high = 0, len(releases) - 1
    skipped: set[int] = set()
    while open_ones := [place for place in range(low + 1, high) if place not in skipped]:
        middle = min(open_ones, key=lambda place: abs(2 * place - low - high))
        found = state(releases[middle])
        if found == "skip":
            skipped.add(middle)
        elif found == "before":
            low = middle
        else:
            high = middle
    return Border(releases[low], releases[high], tuple(releases[place] for place in range(low + 1, high)))
