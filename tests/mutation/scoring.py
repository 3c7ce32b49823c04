"""
What the tool said of a mutant or a bug, held against what is right.

right: every cause that it names is one of ours, first. tie: ours is among those that it says it cannot tell apart from
the first. unexplained: it rejects, and names nothing. wrong: it names a cause that is not ours, and ours is no tie.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from conformance.diagnosis.conditions import Condition
from conformance.engine.records import LoggedCell
from conformance.engine.runlog import LOG
from conformance.report import Run
from conformance.report.findings import rejected_cells

OUTCOMES = ("right", "tie", "unexplained", "wrong", "survived")

# The least share of what is killed that is named right, or in a stated tie.
RIGHT_OR_TIE = 0.9

# The largest share that is named wrong.
WRONG = 0.02


@dataclass(frozen=True)
class Option:
    """One way of naming a cause: the deviations `decision=name` that are taken at once, and where."""

    keys: frozenset[str]
    when: Condition


@dataclass(frozen=True)
class Named:
    """
    One finding: the option that is named, then those that are as good; how many verdicts it explains.

    dense: it is about the subject that takes all masks in one argument.
    """

    options: tuple[Option, ...]
    count: int
    dense: bool = False


@dataclass(frozen=True)
class Said:
    """What a run says of one subject: whether it conforms, the causes, and what else was rejected, by kind."""

    conforms: bool
    named: tuple[Named, ...]
    others: tuple[str, ...]


class Alike(Protocol):
    """Whether a named option is an expected one, in the subject or in its dense form."""

    def __call__(self, named: Option, expected: Option, *, dense: bool) -> bool:
        """Compare the two; dense: the finding is about the dense form."""
        ...


def same(named: Option, expected: Option, **_: bool) -> bool:
    """The same deviations under the same condition."""
    return named == expected


def outcome(said: Said, expected: Sequence[Option], kinds: Iterable[str] = (), alike: Alike = same) -> str:
    """
    One of OUTCOMES.

    expected: each option is right. kinds: so is a rejection of such a kind without a cause.
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
    """How many came out how."""

    counts: Counter[str]

    @property
    def total(self) -> int:
        """How many were tried."""
        return self.counts.total()

    def faults(self) -> list[str]:
        """What is below the bar, in words."""
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
    Read a run of one subject, in both forms of its masks: its diagnoses, or what explains its cells one by one.

    As the report has it: causes with several deviations are separated, and accepted ones are left out.
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
    """The cause of one cell, in the form of a diagnosis; empty where nothing explains it."""
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
    """Verdict, class, and where it was told by repetition, how."""
    return tuple(kind for kind in (cell.verdict, cell.fail_class) if kind)
