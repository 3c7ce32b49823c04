"""Why a subject fails, over all of its cells: as few causes as possible, that no conforming cell contradicts."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from conformance.deviations.catalogue import FITTED
from conformance.deviations.names import KERNEL_BITS, USUAL_BITS
from conformance.diagnosis.candidates import MAX_SEARCHED_CELLS, Candidate, Cause, arithmetic, numbers, pairs, singles
from conformance.diagnosis.conditions import Condition, condition_text
from conformance.diagnosis.cost import SECOND_DEVIATION
from conformance.diagnosis.evidence import Evidence
from conformance.diagnosis.explanation import explanation_of, plain_ways
from conformance.diagnosis.localisation import Localisation
from conformance.diagnosis.search import Search, fitted

# A cause explains so much at least of what fails where it would show, and that nothing else explains.
MIN_SHARE = 0.25

# It explains so much at least of everything that fails without a cause, wherever it would show.
MIN_SHARE_ANYWHERE = 0.05

# So much where its condition is vague: one is found for any few calls.
MIN_SHARE_VAGUE = 0.5


# A condition is vague where more than so many fit.
MAX_CONDITIONS = 3


def causes_that_stand(
    causes: Sequence[Cause], unexplained: Sequence[Evidence], non_reproducible: Sequence[Evidence] = ()
) -> tuple[list[Cause], list[Evidence]]:
    """
    The causes that stand, in their order, and what is unexplained without the others, the simplest first.

    A function that is wrong in a way without a name is, in a call or two of hundreds, like one with a name: where a
    dimension is 1, say, or a mask hides little. A condition that keeps all else out is then found as well. So it is
    with one whose other replies are `unsteady`: what is left in a buffer can be NaN each time.
    """
    kept, left = list(causes), list(unexplained)
    for cause in sorted(causes, key=lambda cause: len(cause.cells)):
        if _is_chance(cause, [*left, *non_reproducible]):
            kept.remove(cause)
            left = sorted((*left, *cause.cells), key=lambda cell: (cell.simplicity, cell.case))
    return kept, left


def _is_chance(cause: Cause, left: Sequence[Evidence]) -> bool:
    """
    Whether many more of the cells that are left would show it than it explains, be its condition as it may.

    One that needs a condition is contradicted somewhere: there all that is left counts.
    """
    if len(cause.cells) < MIN_SHARE_ANYWHERE * len(left):
        return True
    share = MIN_SHARE_VAGUE if _is_vague(cause) else MIN_SHARE
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
    return len(cause.guards) > MAX_CONDITIONS or (of_hundreds and bool(cause.guards[0].words))


def _shows(cause: Cause, cell: Evidence) -> bool:
    """Whether the cause would be another answer, or arithmetic is coarser there: a wide bound covers something."""
    if (coarser := cause.candidate.arithmetic) is None:
        return cell.contradicts(cause.candidate.change)
    return coarser.of(cell.profile) is not None


@dataclass(frozen=True)
class Diagnosis:
    """Causes in the order in which they were found, the failing cells that nothing explains, and where those lie."""

    causes: tuple[Cause, ...]
    unexplained: tuple[Evidence, ...]
    where: Localisation = field(default_factory=Localisation)


def diagnose(
    cells: Sequence[Evidence], non_reproducible: Sequence[Evidence] = (), suspects: Sequence[Cause] = ()
) -> Diagnosis:
    """
    Look for the causes of the failing cells among all judged cells of one subject.

    unsteady: cells with another reply each time, or of another form, which nothing explains. suspects: causes of the
    same implementation, called in another form; where they do, none else is looked for.
    """
    search = Search(cells)
    search.confirm(suspects)
    seen = [Candidate((way,)) for cell in search.open_cells() for way in cell.found]
    _take_plain(search, seen)
    search.take([*singles(search.open_cells()[:MAX_SEARCHED_CELLS]), *numbers(search.open_cells())], alone=True)
    if search.can_pay(KERNEL_BITS):
        search.take(fitted(search.open_cells(), search.conforming_cells()))
    if search.can_pay(USUAL_BITS + SECOND_DEVIATION):
        search.take(pairs(search.open_cells(), [cause.candidate.change for cause in search.causes]))
    search.take(seen)
    search.take(arithmetic(search.open_cells(), search.conforming_cells()))
    search.merge()
    search.unite()
    causes, unexplained = causes_that_stand(search.causes, search.open_cells(), non_reproducible)
    return Diagnosis(tuple(causes), tuple(unexplained), search.where(unexplained))


def first_look(cells: Sequence[Evidence]) -> tuple[Cause, ...]:
    """The causes that people take every day, or frameworks: where `diagnose` begins."""
    search = Search(cells)
    _take_plain(search, [])
    return tuple(search.causes)


def _take_plain(search: Search, seen: Iterable[Candidate]) -> None:
    """Take what cells were seen to be explained by, plain decisions, and those that are taken by a number."""
    simplest = search.open_cells()[:MAX_SEARCHED_CELLS]
    search.take([*seen, *singles(simplest, plain_ways), *numbers(search.open_cells())], alone=True)


def record_of(diagnosis: Diagnosis, others: Iterable[Evidence] = ()) -> dict[str, Any]:
    """
    What the run log says.

    others: cells that were not judged, the simplest first; of these the first that tells two ties apart is named.
    """
    asked = Later(others)
    record = {
        "causes": [_cause(cause, asked) for cause in diagnosis.causes],
        "unexplained": [cell.case for cell in diagnosis.unexplained],
    }
    return record | ({"unexplained_where": diagnosis.where.words} if diagnosis.where.words else {})


class Later:
    """Cells that are made when they are wanted, and kept."""

    def __init__(self, cells: Iterable[Evidence]) -> None:
        """Take the cells without making one."""
        self._left = iter(cells)
        self._made: list[Evidence] = []

    def __iter__(self) -> Iterator[Evidence]:
        """Go through the cells, as far as it takes."""
        yield from self._made
        for cell in self._left:
            self._made.append(cell)
            yield cell


def _cause(cause: Cause, others: Iterable[Evidence]) -> dict[str, Any]:
    record = {
        **_named(cause.candidate, cause.guards, cause.cells[0]),
        "cells": [cell.case for cell in cause.cells],
        "ties": [_tie(cause, tie, others) for tie in cause.ties],
    }
    if len(cause.guards) > 1:
        record["other_conditions"] = [guard.words for guard in cause.guards[1:]]
    return record


def _tie(cause: Cause, tie: Cause, others: Iterable[Evidence]) -> dict[str, Any]:
    named = _named(tie.candidate, tie.guards, cause.cells[0])
    separating = next((cell.case for cell in others if _distinguished(cell, cause, tie)), None)
    return named if separating is None else {**named, "separated_by": separating}


def _distinguished(cell: Evidence, one: Cause, other: Cause) -> bool:
    """Whether a cell would tell which of two causes it is."""
    here, there = (_in(cell, each) for each in (one, other))
    if here.change == there.change:
        return False
    return cell.tells_apart(here.change, there.change)


def _in(cell: Evidence, cause: Cause) -> Candidate:
    return cause.candidate if cause.guards[0].holds(cell.facts, cell.problem) else Candidate()


def _named(candidate: Candidate, guards: tuple[Condition, ...], cell: Evidence) -> dict[str, Any]:
    named: dict[str, Any] = {"decisions": dict(candidate.change)}
    if candidate.arithmetic is not None:
        named = {"arithmetic": candidate.arithmetic.name, "profile": dict(candidate.arithmetic.fields)}
        sentence, remedy = f"would conform if it {candidate.arithmetic.sentence}", candidate.arithmetic.remedy
    else:
        said = [explanation_of(way, cell.problem, cell.declared.dialect) for way in candidate.change]
        sentence = ", and ".join(each.sentence for each in said if each is not None)
        remedy = "; ".join(dict.fromkeys(each.remedy for each in said if each is not None and each.remedy))
    named |= {"sentence": sentence, "remedy": remedy, "when": guards[0].record()}
    return named | ({"condition": condition_text(guards)} if guards[0].words else {})
