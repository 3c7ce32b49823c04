"""Which few causes explain many cells: of several that explain a cell, the one that explains most others as well."""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)


def fewest(candidates: Mapping[Key, Sequence[str]]) -> dict[Key, str]:
    """
    Choose one cause for every cell, so that few causes suffice (greedy set cover).

    candidates: for each cell what explains it, in order of preference. The cause that explains most of the cells that
    are left is taken next; of equal ones, the one that is preferred more often, then the first. Cells without a
    candidate are left out.
    """
    left = {key: causes for key, causes in candidates.items() if causes}
    chosen: dict[Key, str] = {}
    while left:
        reach = Counter(cause for causes in left.values() for cause in dict.fromkeys(causes))
        first = Counter(causes[0] for causes in left.values())
        best = max(reach, key=lambda cause: (reach[cause], first[cause]))
        explained = [key for key, causes in left.items() if best in causes]
        chosen |= dict.fromkeys(explained, best)
        for key in explained:
            del left[key]
    return chosen
