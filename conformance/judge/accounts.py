"""A diagnosis in words, as the run log keeps it: what a cause does, when, what helps, and what it is not told from."""

from collections.abc import Iterable, Iterator
from typing import Any

from conformance.judge.candidates import Candidate, Cause
from conformance.judge.conditions import Condition, condition_text
from conformance.judge.evidence import Evidence
from conformance.judge.explanation import explanation_of
from conformance.judge.joint import Diagnosis


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
    separating = next((cell.case for cell in others if _apart(cell, cause, tie)), None)
    return named if separating is None else {**named, "separated_by": separating}


def _apart(cell: Evidence, one: Cause, other: Cause) -> bool:
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
