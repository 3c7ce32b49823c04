"""Which causes stand, seen from what is left over: one that explains little where much else fails is chance."""

from collections.abc import Sequence

from conformance.deviations.catalogue import FITTED
from conformance.judge.candidates import Cause
from conformance.judge.evidence import Evidence

SHARE = 0.25
"""A cause explains so much at least of what fails where it would show, and that nothing else explains."""

RARE = 0.05
"""It explains so much at least of everything that fails without a cause, wherever it would show."""

VAGUE = 0.5
"""So much where its condition is vague: one is found for any few calls."""


MANY = 3
"""A condition is vague where more than so many fit."""


def standing(
    causes: Sequence[Cause], unexplained: Sequence[Evidence], unsteady: Sequence[Evidence] = ()
) -> tuple[list[Cause], list[Evidence]]:
    """
    The causes that stand, in their order, and what is unexplained without the others, the simplest first.

    A function that is wrong in a way without a name is, in a call or two of hundreds, like one with a name: where a
    dimension is 1, say, or a mask hides little. A condition that keeps all else out is then found as well. So it is
    with one whose other replies are `unsteady`: what is left in a buffer can be NaN each time.
    """
    kept, left = list(causes), list(unexplained)
    for cause in sorted(causes, key=lambda cause: len(cause.cells)):
        if _is_chance(cause, [*left, *unsteady]):
            kept.remove(cause)
            left = sorted((*left, *cause.cells), key=lambda cell: (cell.simplicity, cell.case))
    return kept, left


def _is_chance(cause: Cause, left: Sequence[Evidence]) -> bool:
    """
    Whether many more of the cells that are left would show it than it explains, be its condition as it may.

    One that needs a condition is contradicted somewhere: there all that is left counts.
    """
    if len(cause.cells) < RARE * len(left):
        return True
    share = VAGUE if _is_vague(cause) else SHARE
    most = len(cause.cells) * (1.0 - share) / share
    if len(left) <= most:
        return False
    return bool(cause.guards[0].words) or sum(_shows(cause, cell) for cell in left) > most


def _is_vague(cause: Cause) -> bool:
    """
    Whether its condition could be another one, or it is one of hundreds and needs any: whatever fails has such.

    Of hundreds are a fitted loop, two decisions at once, and arithmetic: its errors look like any small ones.
    """
    change = cause.candidate.change
    of_hundreds = len(change) != 1 or change[0][0] in FITTED
    return len(cause.guards) > MANY or (of_hundreds and bool(cause.guards[0].words))


def _shows(cause: Cause, cell: Evidence) -> bool:
    """Whether the cause would be another answer, or arithmetic is coarser there: a wide bound covers something."""
    if (coarser := cause.candidate.arithmetic) is None:
        return cell.contradicts(cause.candidate.change)
    return coarser.of(cell.profile) is not None
