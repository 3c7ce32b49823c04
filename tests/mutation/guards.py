"""Whether a condition that the tool names is the one that is meant: alike in every call that can show it."""

from collections.abc import Sequence

from .mutants import Asked
from .scoring import Alike, Option


def alike_where_it_shows(asked: Sequence[Asked]) -> Alike:
    """The same variations, under conditions that hold in the same of the calls that tell them from canonical."""

    def alike(named: Option, expected: Option) -> bool:
        return named.keys == expected.keys and all(
            named.when.holds(each.facts, each.problem) == expected.when.holds(each.facts, each.problem)
            for each in asked
            if named.keys & each.told
        )

    return alike
