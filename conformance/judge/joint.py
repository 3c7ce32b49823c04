"""
Why a subject fails, over all of its cells: as few causes as possible, that no conforming cell contradicts.

Single decisions that were seen when cells were judged come first, then those of a few more cells, then pairs, then
coarser arithmetic. A cause that conforming cells contradict needs a guard: the smallest condition that keeps them out.
What explains little where much stays unexplained is chance, and is not told.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from conformance.deviations.names import KERNEL_BITS, USUAL_BITS
from conformance.judge.bits import BESIDE
from conformance.judge.candidates import (
    SEARCHED,
    Candidate,
    Cause,
    arithmetic,
    numbers,
    pairs,
    singles,
)
from conformance.judge.chance import standing
from conformance.judge.evidence import Evidence
from conformance.judge.explanation import plain_ways
from conformance.judge.fitted import fitted
from conformance.judge.search import Search
from conformance.judge.whereabouts import Whereabouts


@dataclass(frozen=True)
class Diagnosis:
    """Causes in the order in which they were found, the failing cells that nothing explains, and where those lie."""

    causes: tuple[Cause, ...]
    unexplained: tuple[Evidence, ...]
    where: Whereabouts = field(default_factory=Whereabouts)


def diagnose(cells: Sequence[Evidence], unsteady: Sequence[Evidence] = (), suspects: Sequence[Cause] = ()) -> Diagnosis:
    """
    Look for the causes of the failing cells among all judged cells of one subject.

    unsteady: cells with another reply each time, or of another form, which nothing explains. suspects: causes of the
    same implementation, called in another form; where they do, none else is looked for.
    """
    search = Search(cells)
    search.confirm(suspects)
    seen = [Candidate((way,)) for cell in search.open_cells() for way in cell.found]
    _take_plain(search, seen)
    search.take([*singles(search.open_cells()[:SEARCHED]), *numbers(search.open_cells())], alone=True)
    if search.can_pay(KERNEL_BITS):
        search.take(fitted(search.open_cells(), search.conforming_cells()))
    if search.can_pay(USUAL_BITS + BESIDE):
        search.take(pairs(search.open_cells(), [cause.candidate.change for cause in search.causes]))
    search.take(seen)
    search.take(arithmetic(search.open_cells(), search.conforming_cells()))
    search.merge()
    search.unite()
    causes, unexplained = standing(search.causes, search.open_cells(), unsteady)
    return Diagnosis(tuple(causes), tuple(unexplained), search.where(unexplained))


def first_look(cells: Sequence[Evidence]) -> tuple[Cause, ...]:
    """The causes that people take every day, or frameworks: where `diagnose` begins."""
    search = Search(cells)
    _take_plain(search, [])
    return tuple(search.causes)


def _take_plain(search: Search, seen: Iterable[Candidate]) -> None:
    """Take what cells were seen to be explained by, plain decisions, and those that are taken by a number."""
    simplest = search.open_cells()[:SEARCHED]
    search.take([*seen, *singles(simplest, plain_ways), *numbers(search.open_cells())], alone=True)
