"""A judged cell whose record waits for the second look, and the record after it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from conformance.bounds.outputs import UnderivedBound
from conformance.bridge.contract import Declaration
from conformance.bridge.tensor import Tensor
from conformance.diagnosis import attention_matrix
from conformance.diagnosis.explanation import Explanation, taking
from conformance.diagnosis.judgement import Judgement
from conformance.diagnosis.weight_facts import weight_facts
from conformance.engine.cells import Cell
from conformance.engine.job import Outcome
from conformance.engine.judging import Judge, Judged, judgement_record
from conformance.engine.runlog import Record
from conformance.spec.problem import Array, Problem
from conformance.verdicts.compare import NON_REPRODUCIBLE, Repetition, Reply, budgets, repetition
from conformance.verdicts.expectation import compare_all
from conformance.verdicts.invariants import Invariant, RelatedReply, Relation, relate
from conformance.verdicts.verdict import CONFORMING, OF_NUMBERS

# What the gate would add to the record of a cell, not counted: `known`.
Accepts = Callable[[Judged], Mapping[str, Any]]


@dataclass(eq=False)
class PendingCell:
    """
    A cell, its outcome, its verdict and its record so far.

    problem: before routing. red: the gate does not accept the cell. again, alone: outcomes of the same call, in the
    same worker and in a new one. related: outcomes of changed calls. read: outcomes of the calls that read the
    attention matrix; not_read: why there are none. changed: a wrong reply to a changed call, of a cell that conforms
    itself. elsewhere: the class of another cell of the subject, if that one is non-reproducible.
    """

    cell: Cell
    outcome: Outcome
    judged: Judged
    record: Record
    problem: Problem
    red: bool
    again: list[Outcome] = field(default_factory=list)
    alone: list[Outcome] = field(default_factory=list)
    related: list[tuple[Invariant, Cell, Outcome]] = field(default_factory=list)
    read: list[tuple[attention_matrix.Piece, Cell, Outcome]] = field(default_factory=list)
    not_read: str = ""
    changed: Judged | None = None
    elsewhere: str = ""

    @property
    def size(self) -> int:
        """How many logits the call has."""
        return prod(self.judged.problem.logits_shape)

    @property
    def kind(self) -> tuple[str, ...]:
        """Verdict, class and explanation: cells that agree in these probably have one cause."""
        explained = self.record.get("explanation", {})
        said = (explained.get("decision"), explained.get("name"))
        return tuple(str(each or "") for each in (self.judged.verdict, self.record.get("class"), *said))

    @property
    def theme(self) -> str:
        """The first word of the suite if the case has a mask, else ""."""
        return self.cell.case.suite.partition("/")[0] if self.cell.case.masks else ""

    def relates(self, invariant: Invariant, cell: Cell) -> Callable[[Outcome], None]:
        """Return a function that takes the outcome of a changed call."""
        return lambda outcome: self.related.append((invariant, cell, outcome))

    def reads(self, piece: attention_matrix.Piece, cell: Cell) -> Callable[[Outcome], None]:
        """Return a function that takes the outcome of a call that reads part of the attention matrix."""
        return lambda outcome: self.read.append((piece, cell, outcome))

    @property
    def repetition(self) -> Repetition | None:
        """The comparison of all replies to the same call, or None if the call was not repeated."""
        again, alone = (
            [_reply(each) for each in some if each.status != "not_run"] for some in (self.again, self.alone)
        )
        if not again and not alone:
            return None
        return repetition(_reply(self.outcome), again, alone)

    @property
    def non_reproducible(self) -> str:
        """The class of the cell if a repeated call had another reply, else ""."""
        found = self.repetition
        return found.found if found is not None and found.found in NON_REPRODUCIBLE else ""

    @property
    def is_non_reproducible(self) -> bool:
        """Whether a repeated call had another reply."""
        return bool(self.non_reproducible)

    def settle(self, judge: Judge, accepts: Accepts) -> tuple[Record, dict[str, Array]]:
        """Return the record with everything that the second look found, and the arrays to show."""
        arrays = self.judged.arrays
        if (found := self.repetition) is not None:
            self.record["repeats"] = found.record()
            if self.is_non_reproducible:
                self._settle_non_reproducible(found)
        if relations := list(self._relations(judge, accepts)):
            self.record["invariants"] = [each.record() for each, _ in relations]
            broken = [(each, changed) for each, changed in relations if each.found == "broken"]
            if broken and self.judged.verdict in CONFORMING:
                self._settle_broken(broken, judge)
        if self.read or self.not_read:
            pattern = self._pattern(judge)
            self.record["pattern"] = _pattern_record(pattern, len(self.read), self.not_read)
            arrays |= pattern
            if (odd := self._odd(arrays)) is not None:
                self.record["pattern"]["odd"] = list(odd)
        return self.record, arrays

    @property
    def is_unexplained(self) -> bool:
        """Whether the numbers are wrong and no single deviation explains them."""
        return self.record.get("class") in OF_NUMBERS and "explanation" not in self.record

    def _odd(self, arrays: Mapping[str, Array]) -> tuple[str, ...] | None:
        """Facts about the effective weights, or about the returned ones if only these are wrong; None if unknown."""
        if self.is_non_reproducible or not self.is_unexplained or self.judged.declared is None:
            return None
        wrong = {each["output"] for each in self.record["outputs"] if each["verdict"] == "fail"}
        name = "pattern" if "output" in wrong else "weights"
        sides = [arrays.get(f"{name}.{side}", np.empty(0)) for side in ("expected", "actual", "tolerance")]
        problem, dialect = self.judged.problem, self.judged.declared.dialect
        if any(side.shape != problem.logits_shape for side in sides):
            return None
        expected, actual, tolerance = sides
        output = self._wrong_output() if name == "pattern" and problem.operator == "sdpa" else None
        return weight_facts(problem, expected, actual, tolerance, dialect, output)

    def _wrong_output(self) -> tuple[Array, Array] | None:
        """The returned output and its tolerance, or None if it has another shape or is not finite."""
        declared = self.judged.declared
        assert declared is not None  # noqa: S101 - the caller has checked it
        actual, tolerance = self.judged.actual["output"].float64(), declared.bounds["output"].tolerance
        return (actual, tolerance) if actual.shape == tolerance.shape and np.isfinite(actual).all() else None

    def _settle_non_reproducible(self, found: Repetition) -> None:
        """Let the cell fail without an explanation: nothing follows from one of several replies."""
        for name in ("explanation", "ties", "searched"):
            self.record.pop(name, None)
        if self.judged.verdict != "error":
            self.record |= {"verdict": "fail", "class": found.found}
        self.record["reason"] = f"{found.reason}; {self.record.get('reason', '')}".removesuffix("; ")

    def _fitting(self, changed: Judgement | None, judge: Judge) -> list[Explanation]:
        """The explanations of the reply to a changed call that the reply to the unchanged call fits, too."""
        declared, profile = self.judged.declared, self.judged.profile
        if changed is None or changed.explanation is None or declared is None or profile is None:
            return []
        found = []
        for each in (changed.explanation, *changed.ties):
            try:
                expected = judge.expectation(
                    self.cell.case.id, self.judged.problem, taking(declared.dialect, each.way), profile
                )
            except UnderivedBound:
                continue
            if all(c.verdict != "fail" for c in compare_all(expected, self.judged.actual, profile)):
                found.append(each)
        return found

    def _settle_broken(self, broken: list[tuple[Relation, Judged | None]], judge: Judge) -> None:
        """Let the cell fail with the broken invariants, and with the explanation of the changed call if any."""
        said = "; ".join(f"{each.name}: it {each.sentence}: {each.where}" for each, _ in broken)
        if self.elsewhere:  # if one call has two replies, replies to two calls cannot be compared
            self.record |= {"verdict": "fail", "class": self.elsewhere, "reason": said}
            return
        self.record |= {"verdict": "fail", "class": "invariant", "reason": said}
        wrong = [each for _, each in broken if each is not None and each.verdict not in CONFORMING]
        explained = [each for each in wrong if each.judgement is not None and each.judgement.explanation is not None]
        fitting = [(each, ways) for each in explained if (ways := self._fitting(each.judgement, judge))]
        for each, (first, *ties) in fitting[:1]:
            self.record |= {"class": judgement_record(each)["class"], "explanation": first.record()}
            self.record["ties"] = [f"{tie.decision}={tie.name}" for tie in ties]
        self.changed = next((replace(each, case=self.judged.case) for each in (*explained, *wrong)), None)

    def _relations(self, judge: Judge, accepts: Accepts) -> Iterator[tuple[Relation, Judged | None]]:
        """Every relation, with the judged reply to the changed call if the relation is broken."""
        for invariant, cell, outcome in self.related:
            if outcome.status in (
                "not_run",
                "unsupported",
                "crash",
                "timeout",
            ):  # a lost process says nothing about a reply
                continue
            if outcome.declaration is None or outcome.status != "reply":
                yield Relation(invariant.name, "broken", invariant.sentence, f"no reply: {outcome.reason}"), None
                continue
            found = self._relation(judge, invariant, cell, outcome.declaration, outcome.outputs)
            if found is None or found.found != "broken":
                yield found or Relation(invariant.name, "not asked"), None
                continue
            changed = judge.judge(cell, outcome.declaration, outcome.outputs, self.judged.versions)
            changed = replace(changed, case=self.judged.case, machine=self.judged.machine)
            known = accepts(changed).get("known")
            yield replace(found, found="known") if known else found, judge.explained(changed, known)

    def _relation(
        self, judge: Judge, invariant: Invariant, cell: Cell, declaration: Declaration, actual: Mapping[str, Tensor]
    ) -> Relation | None:
        """The relation between the two replies, or None if the declaration cannot be judged."""
        if self.judged.declared is None:
            return None
        try:
            expected = judge.declared(cell, declaration)
        except (UnderivedBound, KeyError):
            return None
        first = RelatedReply(self.judged.problem, self.judged.declared, self.judged.actual)
        return relate(invariant, first, RelatedReply(cell.route.problem, expected, actual))

    def _pattern(self, judge: Judge) -> dict[str, Array]:
        """Expected and effective attention matrix with tolerance; empty if not read, or if a part has no reply."""
        if not self.read:
            return {}
        sides: dict[str, list[tuple[attention_matrix.Piece, Array]]] = {"expected": [], "actual": [], "tolerance": []}
        for piece, cell, outcome in self.read:
            if outcome.declaration is None or outcome.status != "reply" or self.not_read:
                self.not_read = self.not_read or f"a call for it has no reply: {outcome.reason}"
                return {}
            expected = judge.declared(cell, outcome.declaration)
            sides["expected"].append((piece, expected.reply["output"].values))
            sides["tolerance"].append((piece, expected.bounds["output"].tolerance))
            sides["actual"].append((piece, outcome.outputs["output"].float64()))
        joined = {name: attention_matrix.joined(self.judged.problem, read) for name, read in sides.items()}
        if any(array is None for array in joined.values()):
            self.not_read = "the output has another shape than expected"
            return {}
        return {f"pattern.{name}": array for name, array in joined.items() if array is not None}


def _reply(outcome: Outcome) -> Reply:
    return outcome.outputs if outcome.status == "reply" else None


def _pattern_record(pattern: Mapping[str, Array], calls: int, not_read: str) -> Record:
    if not pattern:
        return {"not_read": not_read, "calls": calls}
    expected, actual, tolerance = (pattern[f"pattern.{name}"] for name in ("expected", "actual", "tolerance"))
    used = budgets(abs(actual - expected), tolerance)
    return {"calls": calls, "beyond": int((~(used <= 1.0)).sum()), "elements": int(used.size)}
