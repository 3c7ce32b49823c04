"""Diagnoses why a subject fails: the fewest causes, over all its cells, that no conforming cell contradicts."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, tee
from math import inf
from typing import Any

from conformance.deviations.names import KERNEL_BITS, USUAL_BITS, prior, slot_of
from conformance.diagnosis.candidates import (
    MAX_SEARCHED_CELLS,
    Candidate,
    Cause,
    arithmetic,
    different,
    further,
    is_plain,
    most_informative,
    numbers,
    pairs,
    singles,
)
from conformance.diagnosis.condition_fit import Guards
from conformance.diagnosis.conditions import Condition, condition_text
from conformance.diagnosis.evidence import Change, Evidence
from conformance.diagnosis.explanation import CANONICAL, UNEXPLAINED, Explanation, Way, explanation_of, plain_ways
from conformance.diagnosis.localisation import Localisation
from conformance.diagnosis.rounded_evidence import Rounding, rounded, rounding
from conformance.diagnosis.search import Search, fitted
from conformance.diagnosis.separation import explains

# Minimum share of the otherwise unexplained failures that a cause must explain where it would show. A cause that leaves
# many of them is more likely a coincidence: of 288 planted bugs, no cause below 0.6 was right.
MIN_SHARE = 0.6

# Minimum share of all failures without a cause that a cause must explain, wherever it would show.
MIN_SHARE_ANYWHERE = 0.05

# Number of plain calls, the simplest ones, in which any cause is searched before other calls are searched.
MAX_PLAIN = 3
# Maximum number of plain calls, per failing one, that conform although all calls show a mistake. For example, a scale
# does not matter if all logits are equal.
MAX_RIGHT = 0.1

# Maximum number of searches for one more deviation beside those that were found: first for a second, then for a third.
MAX_FURTHER = 2


def causes_that_stand(
    causes: Sequence[Cause], unexplained: Sequence[Evidence], non_reproducible: Sequence[Evidence] = ()
) -> tuple[list[Cause], list[Evidence]]:
    """
    Drop causes that fit by chance; return the other causes, in order, and the unexplained cells, the simplest first.

    A function with an unnamed error can look like a named deviation in a call or two of hundreds: for example if a
    dimension is 1, or a mask hides little. A condition that excludes all other calls is then found as well. The same
    happens with a function whose other replies are non-reproducible: what is left in a buffer can be NaN each time.
    """
    kept, remaining = list(causes), list(unexplained)
    for cause in sorted(causes, key=lambda cause: len(cause.cells)):
        if _is_chance(cause, [*remaining, *non_reproducible]):
            kept.remove(cause)
            remaining = sorted((*remaining, *cause.cells), key=lambda cell: cell.simplicity)
    return kept, remaining


def _is_chance(cause: Cause, remaining: Sequence[Evidence]) -> bool:
    """
    Whether the cause explains too few of the remaining cells that would show it, under whatever condition.

    A cause that needs a condition is contradicted somewhere, so for it all remaining cells count.
    """
    if len(cause.cells) < MIN_SHARE_ANYWHERE * len(remaining):
        return True
    limit = len(cause.cells) * (1.0 - MIN_SHARE) / MIN_SHARE
    if len(remaining) <= limit:
        return False
    return bool(cause.guards[0].words) or sum(_shows(cause, cell) for cell in remaining) > limit


def _shows(cause: Cause, cell: Evidence) -> bool:
    """Whether a cell would show the cause: the answer differs, or the arithmetic is coarser than declared."""
    if (coarser := cause.candidate.arithmetic) is None:
        return cell.contradicts(cause.candidate.change)
    return coarser.of(cell.profile) is not None


@dataclass(frozen=True)
class Diagnosis:
    """
    The causes in the order in which they were found, the unexplained failing cells, and their localisation.

    separated: the same causes with one deviation each, if that is the shorter description; else (). A cell may be among
    the cells of several of them. judged: the number of cells, the conforming ones included.
    """

    causes: tuple[Cause, ...] = ()
    unexplained: tuple[Evidence, ...] = ()
    where: Localisation = field(default_factory=Localisation)
    separated: tuple[Cause, ...] = ()
    judged: int = 0

    @property
    def has_unknown_mistake(self) -> bool:
        """Whether most cells are unexplained."""
        return 2 * len(self.unexplained) > self.judged

    @property
    def bits(self) -> float:
        """The cost of the causes and of the unexplained cells."""
        causes = sum(each.candidate.bits + each.condition_bits for each in self.separated or self.causes)
        return causes + UNEXPLAINED * len(self.unexplained)

    @property
    def shown_everywhere(self) -> Change:
        """The deviations of all causes, if they have no condition and no failing cell is without a cause; else ()."""
        if self.unexplained or any(cause.guards[0].words for cause in self.causes):
            return ()
        return tuple(dict.fromkeys(way for cause in self.causes for way in cause.candidate.change))


NO_DIAGNOSIS = Diagnosis()


def diagnose(
    cells: Sequence[Evidence],
    non_reproducible: Sequence[Evidence] = (),
    other: Diagnosis = NO_DIAGNOSIS,
    evident: Change = (),
) -> Diagnosis:
    """
    Find the causes of the failing cells among all judged cells of one subject.

    non_reproducible: cells whose reply differs each time, or has a wrong form; no cause explains them. other: the
    diagnosis of the same implementation, called in another form. Its causes are tried first, and other causes only for
    the cells that are left. If most of its cells are unexplained, cells that should show the same unknown mistake are
    not searched. Its unexplained cells count against causes that may be coincidence. evident: deviations that earlier
    calls showed together; nothing else is searched if they explain every failing cell.
    """
    search = partial(_searched, non_reproducible=non_reproducible, other=other, evident=evident)
    found = search(cells)
    return (_in_coarser_arithmetic(found, cells, other, search) if found.unexplained else None) or found


def _searched(
    cells: Sequence[Evidence], non_reproducible: Sequence[Evidence], other: Diagnosis, evident: Change
) -> Diagnosis:
    search = Search(cells, unknown=other.unexplained if other.has_unknown_mistake else ())
    search.confirm(other.causes)
    search.extend()
    search.confirm_together(evident)
    search.unknown = (*search.unknown, *_unknown_mistake(search))
    seen = [Candidate((way,)) for cell in search.searched_cells() for way in cell.found]
    _take_plain(search, seen)
    search.combine_open()
    search.take([*singles(_different(search.searched_cells())), *numbers(search.searched_cells())], alone=True)
    search.combine_open()
    if search.can_pay(KERNEL_BITS):
        search.take(fitted(search.searched_cells(), search.conforming_cells()))
    if search.can_pay(USUAL_BITS):
        search.take(pairs(search.searched_cells(), search.causes))
    for _ in range(MAX_FURTHER):
        search.combine_open()
        if not (search.causes and search.can_pay(USUAL_BITS)):
            break
        before = search.changes()
        search.take(further(search.searched_cells(), before))
        if search.changes() == before:
            break
    search.take(seen)
    search.take(arithmetic(search.searched_cells(), search.conforming_cells()))
    search.merge()
    search.combine_open()
    others = (*non_reproducible, *other.unexplained)
    causes, unexplained = causes_that_stand(search.causes, search.open_cells(), others)
    where, separated = search.where(unexplained), search.separated(causes)
    return Diagnosis(tuple(causes), tuple(unexplained), where, separated, len(cells))


def _in_coarser_arithmetic(
    found: Diagnosis, cells: Sequence[Evidence], other: Diagnosis, search: Callable[[Sequence[Evidence]], Diagnosis]
) -> Diagnosis | None:
    """
    The diagnosis under coarser arithmetic that calls show, if it explains most of the cells that have no cause.

    found: the diagnosis under the declared arithmetic. other: as for `diagnose`. search: diagnoses cells.
    """
    known = (*found.causes, *other.causes, *other.separated)
    if not (arithmetic := rounding(cells, found.unexplained, known)):
        return None
    under = dict(rounded(cells, arithmetic))
    again = search([cell for cell in under.values() if cell is not None])
    if not again.causes or len(again.unexplained) > (1.0 - MIN_SHARE) * len(found.unexplained):
        return None
    changes: dict[Evidence, Change] = {}
    for cause in again.causes:
        changes |= {cell: (*changes.get(cell, ()), *cause.candidate.change) for cell in cause.cells}
    coarser = {cell: changed for cell, changed in under.items() if cell.actual is not None and changed is not cell}
    alone = [cell for cell, changed in coarser.items() if changed is None or changed.actual is None]
    beside = {cell: changes[changed] for cell, changed in coarser.items() if changed in changes}
    shown = [*alone, *(cell for cell, change in beside.items() if not explains(cell, change))]
    causes, separated = (tuple(_roundings(each, cells, arithmetic, other)) for each in (alone, shown))
    every = (*(again.separated or again.causes), *separated)
    return replace(again, causes=(*again.causes, *causes), separated=every, judged=len(cells))


def _roundings(
    shown: Sequence[Evidence], cells: Sequence[Evidence], arithmetic: Rounding, other: Diagnosis
) -> Iterator[Cause]:
    """A cause for each arithmetic that some of these cells show, with its condition, or that of the other diagnosis."""
    told = {cause.candidate.arithmetic: cause for cause in other.separated or other.causes}
    number = {cell: n for n, cell in enumerate(cells)}
    for each in dict.fromkeys(arithmetic[cell.facts.dtype] for cell in shown):
        own = [cell for cell in shown if arithmetic[cell.facts.dtype] is each]
        against = [n for n, cell in enumerate(cells) if cell.actual is None and each.contradicts(cell)]
        fit = Guards(cells).search([number[cell] for cell in own], against)
        guards, bits = (fit.guards, fit.bits) if len(fit.shows) == len(own) else ((Condition(),), 0.0)
        if each in told and all(map(told[each].holds, own)):
            guards, bits = told[each].guards, 0.0
        by_size = tuple(sorted(own, key=lambda cell: cell.simplicity))
        yield Cause(Candidate(arithmetic=each), guards, by_size, condition_bits=bits)


def _unknown_mistake(search: Search) -> list[Evidence]:
    """
    The failing plain calls, if nearly all plain calls fail and nothing is known that explains one of them.

    They show a mistake without a name. It shows in all other calls as well, and hides other mistakes. Only the simplest
    calls are searched, and all answers are cached.
    """
    plain = [cell for cell in search.open_cells() if is_plain(cell)]
    if not plain or sum(map(is_plain, search.conforming_cells())) > MAX_RIGHT * len(plain):
        return []
    simplest = plain[:MAX_PLAIN]
    explaining = chain(
        (way for cell in plain for way in cell.found),
        singles(simplest, plain_ways),
        numbers(simplest),
        singles(simplest),
        pairs(simplest, ()),
        arithmetic(search.open_cells(), search.conforming_cells()),  # a few calls do not determine it
    )
    return plain if next(explaining, None) is None else []


def _different(cells: Sequence[Evidence]) -> list[Evidence]:
    """The simplest cells, and a few with each combination of mask arguments: there may be several mistakes."""
    return list(dict.fromkeys([*cells[:MAX_SEARCHED_CELLS], *most_informative(cells)]))


def first_look(cells: Sequence[Evidence]) -> tuple[Cause, ...]:
    """
    The causes among everyday mistakes and deviations of frameworks, and pairs of them, as `diagnose` finds them.

    If they leave more than half of the failing cells open, single deviations of kernels and rare ones are tried.
    """
    search = Search(cells)
    failing = len(search.open_cells())
    _take_plain(search, [])
    search.combine_open()
    if 2 * len(search.open_cells()) > failing:
        search.take(singles(search.searched_cells()), alone=True)
    if search.can_pay(USUAL_BITS):
        search.take(pairs(search.open_cells(), search.causes, plain_ways))
    return tuple(search.causes)


def _take_plain(search: Search, seen: Iterable[Candidate]) -> None:
    """Take causes among `seen`, everyday deviations and fitted numbers. seen: ways found when cells were judged."""
    cells = search.searched_cells()
    named = [*seen, *singles(cells[:MAX_SEARCHED_CELLS], plain_ways)]
    limit = search.enough(named)
    if limit == inf:
        # Where a number is fitted, deviations with a name are tried as well: the simplest cells may show neither.
        named += singles(most_informative(cells), plain_ways)
        limit = search.enough(named)
    search.take([*named, *numbers(cells, limit, partial(search.cheapest, different(named)))], alone=True)


# Whether a deviation is accepted unless something else is declared.
Accepts = Callable[[Way], bool]


def record_of(
    diagnosis: Diagnosis, others: Iterable[Evidence] = (), accepts: Accepts = lambda _: False
) -> dict[str, Any]:
    """
    The record for the run log.

    others: cells that were not judged, the simplest first. The record names the first of them that distinguishes two
    ties. accepts: an accepted deviation is marked if it has no condition and all its cells fail for other causes too.
    """
    (later,) = tee(others, 1)  # its copies start at the first cell, and keep what one of them has reached
    left = diagnosis.unexplained
    record = {
        "causes": [_cause(cause, later, left) for cause in diagnosis.causes],
        "unexplained": [cell.case for cell in left],
    }
    if diagnosis.separated:
        accepted = _accepted(diagnosis.separated, accepts)
        record["separated"] = [
            _cause(cause, later, left) | ({"accepted": True} if cause in accepted else {})
            for cause in diagnosis.separated
        ]
    return record | ({"unexplained_where": diagnosis.where.words} if diagnosis.where.words else {})


def _accepted(causes: Sequence[Cause], accepts: Accepts) -> list[Cause]:
    """The causes that are accepted deviations, have no condition, and only show in cells of causes that are not."""
    open_ways = [cause for cause in causes if cause.candidate.change and all(map(accepts, cause.candidate.change))]
    failing = {cell for cause in causes if cause not in open_ways for cell in cause.cells}
    return [cause for cause in open_ways if not cause.guards[0].words and failing.issuperset(cause.cells)]


def _cause(cause: Cause, others: Iterator[Evidence], unexplained: Sequence[Evidence]) -> dict[str, Any]:
    record: dict[str, Any] = {
        **_named(cause.candidate, cause.guards, cause.cells),
        "cells": [cell.case for cell in cause.cells],
        "ties": [_tie(cause, tie, others) for tie in cause.ties],
    }
    if len(cause.guards) > 1:
        record["other_conditions"] = [guard.words for guard in cause.guards[1:]]
    # Coarser arithmetic has no change: it can, but need not, show in a call.
    fail_otherwise = sum(cause.holds(cell) and cell.contradicts(cause.candidate.change) for cell in unexplained)
    return record | ({"fail_otherwise": fail_otherwise} if fail_otherwise else {})


def _tie(cause: Cause, tie: Cause, others: Iterator[Evidence]) -> dict[str, Any]:
    named = _named(tie.candidate, tie.guards, cause.cells)
    separating = next((cell.case for cell in copy(others) if _distinguished(cell, cause, tie)), None)
    return named if separating is None else {**named, "separated_by": separating}


def _distinguished(cell: Evidence, one: Cause, other: Cause) -> bool:
    """Whether a cell would distinguish two causes."""
    first, second = (_in(cell, each) for each in (one, other))
    if first.change == second.change:
        return False
    return cell.distinguishes(first.change, second.change)


def _in(cell: Evidence, cause: Cause) -> Candidate:
    return cause.candidate if cause.holds(cell) else Candidate()


def _named(candidate: Candidate, guards: tuple[Condition, ...], cells: Sequence[Evidence]) -> dict[str, Any]:
    named: dict[str, Any] = {"decisions": dict(candidate.change)}
    if candidate.arithmetic is not None:
        named = {"arithmetic": candidate.arithmetic.name, "profile": dict(candidate.arithmetic.fields)}
        sentence, remedy = (
            f"rounds like code that {candidate.arithmetic.sentence}: coarser than its arithmetic profile",
            candidate.arithmetic.remedy,
        )
    else:
        # Mistakes first, then what straightforward code does beside any mistake.
        in_order = sorted(candidate.change, key=lambda way: prior(*way) == USUAL_BITS)
        declared = {decision: name for cell in cells for decision, name in cell.declared.dialect.items()}
        told = [(decision, name) for decision, name in in_order if name != CANONICAL or decision in declared]
        found = [explanation_of(way, declared) for way in told]
        sentence = ", and ".join(each.sentence for each in found)
        remedies = (_remedy(each, cells) for each in found)
        remedy = "; ".join(dict.fromkeys(each for each in remedies if each))
    named |= {"sentence": sentence, "remedy": remedy, "when": guards[0].record()}
    return named | ({"condition": condition_text(guards)} if guards[0].words else {})


def _remedy(explanation: Explanation, cells: Sequence[Evidence]) -> str:
    """The remedy of a deviation; `~` inverts a boolean mask, and 1 - mask an integer one."""
    slot = slot_of(explanation.decision)[1]
    elements = {mask.element for cell in cells for mask in cell.facts.masks if mask.slot == slot}
    return explanation.remedy.replace(f"~{slot}", f"1 - {slot}") if elements == {"int"} else explanation.remedy
