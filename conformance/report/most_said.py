"""What is true of most calls that have been read."""

import re
from collections.abc import Iterable, Sequence

FIGURES = re.compile(r"\d+ of \d+|-?\d+\.\d+(?:e-?\d+)?|1/\d+")
"""They depend on the sizes of a call: what differs in them alone is the same."""


def most_said(read: Iterable[Sequence[str]]) -> tuple[str, int]:
    """
    The phrase that most calls have, with the figures of each, and how many have it; "" where no phrase is in most.

    read: of each call that has been read all that is certain, the plainest first.
    """
    calls = [{FIGURES.sub("#", phrase): phrase for phrase in reversed(phrases)} for phrases in read]
    ranks = [{said: rank for rank, said in enumerate(reversed(call))} for call in calls]
    common = {said: [call[said] for call in calls if said in call] for call in calls for said in call}
    often = [said for said, phrases in common.items() if 2 * len(phrases) > len(calls)]
    if not often:
        return "", 0
    best = min(often, key=lambda said: (-len(common[said]), sum(rank.get(said, 0) for rank in ranks)))
    figures = zip(*(FIGURES.findall(phrase) for phrase in common[best]), strict=True)
    filled = iter([" or ".join(dict.fromkeys(each)) for each in figures])
    return FIGURES.sub(lambda _: next(filled), common[best][0]), len(common[best])
