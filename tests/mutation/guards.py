"""Whether a condition that the tool names is the one that is meant: alike in every call that can show it."""

from collections.abc import Sequence

from .mutants import Asked
from .scoring import Alike, Option


def alike_where_it_shows(asked: Sequence[Asked]) -> Alike:
    """
    The same deviations, under conditions that hold in the same of the calls that tell them from canonical.

    Of the calls of that subject: one whose calls all have a mask says no more of "with a mask".
    """

    def alike(named: Option, expected: Option, dense: bool) -> bool:  # noqa: FBT001 - a fact of the subject
        return named.keys == expected.keys and all(
            named.when.holds(each.facts, each.problem) == expected.when.holds(each.facts, each.problem)
            for each in asked
            if each.dense == dense and named.keys & each.told
        )

    return alike
