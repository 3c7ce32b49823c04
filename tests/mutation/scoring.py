"""
Compare what the tool reports for a mutant or a bug with what is right.

right: the first cause of every finding is an expected one. tie: an expected cause is among those that the finding lists
as ambiguous. unexplained: rejected, and no cause is named. wrong: a finding has no expected cause. survived: conforms.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from conformance.diagnosis.conditions import Condition
from conformance.engine.logged_cell import LoggedCell
from conformance.engine.runlog import LOG
from conformance.report import Run
from conformance.report.findings import rejected_cells

OUTCOMES = ("right", "tie", "unexplained", "wrong", "survived")

# Minimum share of what is killed that is right or a tie.
RIGHT_OR_TIE = 0.9

# Maximum share of what is killed that is wrong.
WRONG = 0.02


@dataclass(frozen=True)
class Option:
    """One way to name a cause: deviations `decision=name` taken together, or an arithmetic, and their condition."""

    keys: frozenset[str]
    when: Condition


@dataclass(frozen=True)
class Named:
    """
    One finding.

    options: the named option, then its ties. count: how many verdicts it explains. dense: whether it is about the
    subject that takes all masks in one argument.
    """

    options: tuple[Option, ...]
    count: int
    dense: bool = False


@dataclass(frozen=True)
class Said:
    """What a run reports for one subject: whether it conforms, the causes, and the kinds of unexplained rejections."""

    conforms: bool
    named: tuple[Named, ...]
    others: tuple[str, ...]


class Alike(Protocol):
    """Tells whether a named option matches an expected one, for the subject or for its dense form."""

    def __call__(self, named: Option, expected: Option, *, dense: bool) -> bool:
        """Compare the two; dense: whether the finding is about the dense form."""
        ...


def same(named: Option, expected: Option, **_: bool) -> bool:
    """Whether two options have the same deviations under the same condition."""
    return named == expected


def outcome(said: Said, expected: Sequence[Option], kinds: Iterable[str] = (), alike: Alike = same) -> str:
    """
    Return one of OUTCOMES; of several findings the worst counts.

    expected: the options that are right. kinds: the kinds of rejection that are right without a cause.
    """
    if said.conforms:
        return "survived"
    if not said.named:
        return "right" if set(kinds) & set(said.others) else "unexplained"
    ranks = [_rank(each, expected, alike) for each in said.named]
    return max(ranks, key=OUTCOMES.index)


def _rank(named: Named, expected: Sequence[Option], alike: Alike) -> str:
    right = [any(alike(option, each, dense=named.dense) for each in expected) for option in named.options]
    return "right" if right[0] else "tie" if any(right) else "wrong"


@dataclass(frozen=True)
class Score:
    """The number of results for each outcome."""

    counts: Counter[str]

    @property
    def total(self) -> int:
        """The number of results."""
        return self.counts.total()

    def faults(self) -> list[str]:
        """Return what is below the bar, in words."""
        killed = self.total - self.counts["survived"]
        named = self.counts["right"] + self.counts["tie"]
        found = []
        if self.counts["survived"]:
            found.append(f"{self.counts['survived']} of {self.total} survived; none may")
        if named < RIGHT_OR_TIE * killed:
            found.append(f"{named} of {killed} named right or in a tie: {named / killed:.0%}; at least 90 % must be")
        if self.counts["wrong"] > WRONG * killed:
            found.append(f"{self.counts['wrong']} of {killed} named wrong; at most 2 % may be")
        return found


def score(outcomes: Iterable[str]) -> Score:
    """Count outcomes."""
    return Score(Counter(outcomes))


def said_of(run: Run) -> Said:
    """
    Read a run of one subject and its dense form: the diagnoses, or without any the explanation of each cell.

    As in the report, causes with several deviations are separated, and accepted ones are left out.
    """
    log = (run.folder / LOG).read_text(encoding="utf-8").splitlines()
    diagnoses = [record for line in log if (record := json.loads(line))["type"] == "diagnosis"]
    causes = [(each["subject"], cause) for each in diagnoses for cause in _causes(each)]
    rejected = rejected_cells(run)
    if not diagnoses:
        causes = [(cell.subject, cause) for cell in rejected if (cause := _of_cell(cell))]
    explained = {(case, subject) for subject, cause in causes for case in cause["cells"]}
    others = (cell for cell in rejected if cell.key not in explained)
    kinds = tuple(dict.fromkeys(kind for cell in others for kind in _kinds(cell)))
    return Said(run.conforms, tuple(_named(cause, subject) for subject, cause in causes), kinds)


def _causes(diagnosis: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return [each for each in diagnosis.get("separated", ()) if not each.get("accepted")] or diagnosis["causes"]


def _of_cell(cell: LoggedCell) -> dict[str, Any]:
    """The cause of one cell, in the form of a diagnosis; empty if nothing explains it."""
    if cell.explanation is None:
        return {}
    ties = [{"decisions": dict([key.split("=")]), "when": {}} for key in cell.ties]
    decisions = {cell.explanation.decision: cell.explanation.name}
    return {"decisions": decisions, "when": {}, "cells": [cell.case], "ties": ties}


def _named(cause: Mapping[str, Any], subject: str) -> Named:
    options = tuple(_option(each) for each in (cause, *cause["ties"]))
    return Named(options, len(cause["cells"]), subject.endswith("dense]"))


def _option(cause: Mapping[str, Any]) -> Option:
    keys = {f"{decision}={name}" for decision, name in cause.get("decisions", {}).items()}
    return Option(frozenset(keys or {cause["arithmetic"]}), Condition(**cause["when"]))


def _kinds(cell: LoggedCell) -> tuple[str, ...]:
    """The verdict, and the class of the failure if there is one."""
    return tuple(kind for kind in (cell.verdict, cell.fail_class) if kind)
