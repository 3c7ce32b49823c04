"""
The cells of an implementation that makes mistakes in coarser arithmetic than it declares, under that arithmetic.

Under the declared bounds no deviation explains such a cell, since the roundings remain. The arithmetic shows in calls
without a mask: alone, or beside the deviation under which their replies are nearest.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from conformance.bounds.outputs import UnderivedBound
from conformance.bridge.profile import Profile
from conformance.deviations.catalogue import evaluate
from conformance.diagnosis.candidates import MAX_MEASURED, Cause, is_plain, nearest, nearest_numbers
from conformance.diagnosis.coarser_arithmetic import CoarserArithmetic, tightest
from conformance.diagnosis.evidence import Change, Evidence, Remembered
from conformance.diagnosis.explanation import plain_ways
from conformance.spec.rounding import largest
from conformance.verdicts.expectation import compare_all, expect

# Maximum error under a deviation beside which arithmetic is measured, in errors under the declared dialect.
MAX_ROUNDED_ERROR = 0.2

# Dtype of calls -> the arithmetic in which they are computed.
Rounding = Mapping[str, CoarserArithmetic]


def rounding(cells: Sequence[Evidence], unexplained: Sequence[Evidence], causes: Iterable[Cause]) -> Rounding:
    """
    The coarser arithmetic of each dtype, as far as it can be determined.

    It is measured only for the dtypes of unexplained cells. If it can be determined for none of them, the result is {}.

    cells: all of the subject. causes: those that were found; some may be coarser arithmetic.
    """
    known = {
        cell.facts.dtype: cause.candidate.arithmetic
        for cause in causes
        if cause.candidate.arithmetic is not None
        for cell in cause.cells
    }
    by_size = sorted(cells, key=lambda cell: cell.simplicity)
    dtypes = dict.fromkeys(cell.facts.dtype for cell in unexplained)
    found = {dtype: known.get(dtype) or _measured([c for c in by_size if c.facts.dtype == dtype]) for dtype in dtypes}
    measured = {dtype: arithmetic for dtype, arithmetic in found.items() if arithmetic is not None}
    return {**known, **measured} if measured else {}


def _measured(cells: Sequence[Evidence]) -> CoarserArithmetic | None:
    """
    The arithmetic that the simplest failing calls without a mask show, alone or beside a deviation.

    Calls that require something, such as grouped heads, come last: they may show a mistake about that.
    """
    found = [cell for cell in cells if cell.actual is not None and is_plain(cell, half=True)]
    plain = sorted(found, key=lambda cell: bool(cell.facts.requirements))[:MAX_MEASURED]
    if not plain:
        return None
    conforming = [cell for cell in cells if cell.actual is None]
    if alone := tightest(plain, conforming):
        return alone[0]
    suspect, every = plain[0].suspect(), plain_ways(plain[0].problem, plain[0].declared.dialect)
    for way in chain(nearest(suspect, every, MAX_ROUNDED_ERROR), nearest_numbers(suspect, MAX_ROUNDED_ERROR)):
        if beside := tightest([*_declaring((way,), plain)], conforming):
            return beside[0]
    return None


def _declaring(change: Change, cells: Iterable[Evidence]) -> Iterator[Evidence]:
    """The cells as if the change were declared, if it has a bound and they fail nevertheless."""
    for cell in cells:
        try:
            declared = expect(cell.problem, cell.under(change), cell.profile)
        except UnderivedBound:
            continue
        changed = replace(cell, declared=declared, found=(), of_call=Remembered(), of_reply=Remembered())
        if _fails(changed):
            yield changed


def rounded(cells: Iterable[Evidence], arithmetic: Rounding) -> Iterator[tuple[Evidence, Evidence | None]]:
    """
    Each cell, and the same cell under the arithmetic of its dtype: it conforms if the arithmetic explains it.

    It is None if the arithmetic overflows, so that the reply shows nothing else.
    """
    for cell in cells:
        coarser = arithmetic.get(cell.facts.dtype)
        yield cell, (cell if coarser is None else _under(cell, coarser))


def _under(cell: Evidence, coarser: CoarserArithmetic) -> Evidence | None:
    profile = coarser.of(cell.profile)
    if profile is None:
        return cell
    if _overflows(cell, profile):
        return None
    try:
        declared = expect(cell.problem, cell.declared.dialect, profile)
    except UnderivedBound:
        return cell
    changed = replace(cell, declared=declared, profile=profile, found=(), of_call=Remembered(), of_reply=Remembered())
    return changed if _fails(changed) else replace(changed, actual=None)


def _overflows(cell: Evidence, profile: Profile) -> bool:
    """Whether a reply is not finite, and a logit, even a masked one, overflows the dtype in which logits are stored."""
    if cell.actual is None or all(np.isfinite(each.float64()).all() for each in cell.actual.values()):
        return False
    logits = np.abs(evaluate(cell.problem.but(mask_operands=()), {}, profile.score).state.logits)
    return bool(np.max(logits, initial=0.0, where=np.isfinite(logits)) > largest(profile.score))


def _fails(cell: Evidence) -> bool:
    actual = cell.actual
    return actual is not None and any(
        each.verdict == "fail" for each in compare_all(cell.declared, actual, cell.profile)
    )
