"""Diagnosis of a run: failing cells of a subject are kept until they are explained together."""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from conformance.bridge.contract import Facts
from conformance.diagnosis.condition_fit import condition_of
from conformance.diagnosis.diagnosis import NO_DIAGNOSIS, Accepts, Diagnosis, diagnose, record_of
from conformance.diagnosis.evidence import Change, Evidence, Shared
from conformance.engine.adapters import Subject
from conformance.engine.cells import Cell, make_cell
from conformance.engine.judging import Judged, KeptTraceback
from conformance.engine.logged_cell import JudgedCell
from conformance.engine.runlog import Record
from conformance.spec.case import Case
from conformance.spec.materialise import materialise
from conformance.spec.problem import Problem
from conformance.verdicts.expectation import expect
from conformance.verdicts.verdict import CONFORMING, LOST, root

# The class of a cell that conforms, while its reply and the reply to a changed call contradict each other.
OF_CHANGED_CALLS = "invariant"

# Returns every case, also those that were not chosen. Called only if two causes are alike.
Cases = Callable[[], Iterable[Case]]


@dataclass(frozen=True)
class AnsweredCall:
    """A call that had a reply, for the condition under which others raise an exception."""

    cell: Cell

    @property
    def facts(self) -> Facts:
        """What the call was, in words that conditions use."""
        return self.cell.call.facts

    @property
    def problem(self) -> Problem:
        """What was asked, with the masks in the arguments that carried them."""
        return self.cell.route.problem


class SubjectDiagnosis:
    """
    The failing cells of a run, by subject.

    A failure that a known deviation accepts is explained by it: it is neither searched nor used as evidence. Conforming
    cells are not kept. They are evidence only if the subject fails in other calls, and are then recalled from the log.
    """

    def __init__(self, cases: Cases, accepts: Accepts = lambda _: False, evident: Change = ()) -> None:
        """
        Start empty.

        cases: returns every case. accepts: whether a deviation is accepted beside another cause. evident: deviations of
        the subjects that earlier calls showed together.
        """
        self._cases, self._accepts, self._evident = cases, accepts, evident
        self._tracebacks: dict[str, str] = {}
        self._shared: Shared = {}
        self._seen: dict[str, list[Evidence]] = {}
        self._asked: dict[str, set[str]] = {}
        self._non_reproducible: dict[str, list[Evidence]] = {}
        self._lost: dict[str, list[Judged]] = {}
        self._answered: dict[str, list[AnsweredCall | Judged]] = {}

    @property
    def faults(self) -> dict[str, str]:
        """Subject -> the sentence that a search for its causes ended in an exception of ours."""
        return {
            name: f"{name}: the search for causes ended in an internal error ({text.splitlines()[-1]}), so causes may "
            "be missing; please report it with the traceback in run.jsonl"
            for name, text in self._tracebacks.items()
        }

    def add(self, judged: Judged, *, known: bool, non_reproducible: bool) -> None:
        """
        Keep a cell that fails and is not accepted; and of an exception, the call that raised it.

        known: a known deviation accepts the cell. non_reproducible: it had another reply each time: no cause is
        searched for it.
        """
        self._asked.setdefault(judged.subject, set()).add(judged.case)
        if judged.fault:
            self._tracebacks.setdefault(judged.subject, judged.fault)
        if judged.declared is None and judged.verdict in LOST and not known:
            self._lost.setdefault(judged.subject, []).append(judged)
        evidence = _evidence(judged)
        if evidence is None or known or (evidence.actual is None and not non_reproducible):
            return
        kept = evidence.sharing(self._shared)
        (self._non_reproducible if non_reproducible else self._seen).setdefault(judged.subject, []).append(kept)

    def failing(self, names: Collection[str]) -> set[str]:
        """Those of the subjects that have failures or exceptions to explain."""
        return {*self._seen, *self._lost}.intersection(names)

    def recalls(self, cell: JudgedCell) -> bool:
        """Whether a cell of this run is of a call with a reply that `add` did not keep."""
        fails = cell.verdict == "fail" and cell.fail_class != OF_CHANGED_CALLS
        return cell.budget is not None and (not fails or cell.known is not None)

    def recall(self, subject: str, case: str, evidence: Evidence | None, answered: AnsweredCall | None = None) -> None:
        """Keep a cell that was judged before. evidence: what it says, if anything; answered: that it had a reply."""
        self._asked.setdefault(subject, set()).add(case)
        if evidence is not None:
            self._seen.setdefault(subject, []).append(evidence.sharing(self._shared))
        if answered is not None:
            self._answered.setdefault(subject, []).append(answered)

    def records(self, subjects: Mapping[str, Subject], names: Collection[str]) -> Iterator[Record]:
        """
        One record for each named subject with failures or exceptions. What was kept of the subjects is dropped.

        The causes of a subject are tried first on its dense form. Failures of the subject without a cause count against
        causes of the dense form that may be coincidence.
        """
        forms: dict[str, Diagnosis] = {}
        known = [name for name in self._asked if name in names]
        for name in sorted(known, key=lambda name: subjects[name].dense):
            yield from self._record(name, subjects[name], forms)
        for name in known:
            for kept in (self._seen, self._non_reproducible, self._lost, self._answered):
                kept.pop(name, None)

    def _record(self, name: str, subject: Subject, forms: dict[str, Diagnosis]) -> Iterator[Record]:
        cells = self._seen.get(name, [])
        failing = sum(cell.actual is not None for cell in cells)
        if failing or name in self._lost or name in self._tracebacks:
            started = time.thread_time()
            found: dict[str, Any] = {"causes": [], "unexplained": []}
            with KeptTraceback() as kept:
                found |= self._causes(subject, cells, forms) if failing else {}
                found["errors"] = list(self._errors(name))
            if kept.text:
                self._tracebacks.setdefault(name, kept.text)
            if name in self._tracebacks:
                found["fault"] = self._tracebacks[name]
            seconds = time.thread_time() - started
            yield {"type": "diagnosis", "subject": name, "failures": failing, **found, "seconds": seconds}

    def _causes(self, subject: Subject, cells: Sequence[Evidence], forms: dict[str, Diagnosis]) -> dict[str, Any]:
        """The causes of the failures of a subject, for the log."""
        form = replace(subject, dense=False).name
        non_reproducible = self._non_reproducible.get(subject.name, ())
        diagnosis = diagnose(cells, non_reproducible, forms.get(form, NO_DIAGNOSIS), self._evident)
        forms.setdefault(form, diagnosis)
        return record_of(diagnosis, self._others(subject, cells), self._accepts)

    def _errors(self, name: str) -> Iterator[dict[str, Any]]:
        """The exceptions of a subject by their root, with the condition that only these calls meet."""
        roots: dict[str, list[Judged]] = {}
        for judged in self._lost.get(name, ()):
            roots.setdefault(root(judged.message), []).append(judged)
        answered = self._answered.get(name, [])
        for lost in roots.values():
            condition = condition_of(lost, answered)
            yield {"cells": [each.case for each in lost]} | ({"condition": condition} if condition else {})

    def _others(self, subject: Subject, cells: Iterable[Evidence]) -> Iterator[Evidence]:
        """Calls that were not made, the smallest first, with what the subject declares for similar calls."""
        asked = self._asked[subject.name]
        declared = {(cell.facts.operator, cell.facts.dtype): cell for cell in cells}
        left = [case for case in self._cases() if case.id not in asked and (case.operator, case.dtype) in declared]
        for case in sorted(left, key=lambda case: prod(case.axes.values())):
            alike, cell = declared[case.operator, case.dtype], make_cell(case, materialise(case), subject)
            if isinstance(cell, Cell):
                dialect = {**cell.route.dialect, **alike.declared.dialect}
                problem = cell.route.problem
                declares = expect(problem, dialect, alike.profile)
                yield Evidence(cell.case.id, cell.call.facts, problem, declares, alike.profile)


def _evidence(judged: Judged) -> Evidence | None:
    """The evidence in a judged cell, or None if it says nothing about the subject's numbers."""
    found, declared, profile = judged.judgement, judged.declared, judged.profile
    if found is None or declared is None or profile is None:
        return None
    cell = Evidence(judged.case, judged.facts, judged.problem, declared, profile)
    if judged.verdict in CONFORMING:
        return cell
    if judged.verdict != "fail":
        return None
    ways = (found.explanation, *found.ties) if found.explanation else ()
    return cell.failing(judged.actual, tuple(each.way for each in ways))
