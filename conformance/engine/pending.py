"""A judged cell that waits for the second look, and what the second look found."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import prod

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
from conformance.engine.judging import Judge, Judged
from conformance.engine.logged_cell import LoggedKnown, LoggedPattern, LoggedRelation, LoggedRepetition, Reviewed
from conformance.spec.problem import Array, Problem
from conformance.verdicts.compare import NON_REPRODUCIBLE, Repetition, Reply, elements_beyond, repetition
from conformance.verdicts.expectation import compare_all
from conformance.verdicts.invariants import Invariant, RelatedReply, Relation, relate
from conformance.verdicts.verdict import CONFORMING, OF_NUMBERS, is_green

# The known deviation that would accept a changed call, which is not counted.
Accepts = Callable[[Judged], LoggedKnown | None]


@dataclass(frozen=True, eq=False)
class SecondLookResult:
    """
    A cell after its second look, or without one.

    judged: the verdict that counts. arrays: to show, by name. repeats, invariants, pattern: as in `LoggedCell`.
    """

    judged: Judged
    arrays: Mapping[str, Array]
    repeats: LoggedRepetition = field(default_factory=LoggedRepetition)
    invariants: tuple[LoggedRelation, ...] | None = None
    pattern: LoggedPattern = field(default_factory=LoggedPattern)


@dataclass(eq=False)
class PendingCell:
    """
    A cell, its outcome and its verdict so far.

    reviewed: what the gate says of it. problem: before routing. compiles: whether it was the first call of its
    signature. seconds: CPU time of the judgement. again, alone: outcomes of the same call, in the same worker and in a
    new one. related: outcomes of changed calls. read: outcomes of the calls that read the attention matrix; not_read:
    why there are none. changed: a wrong reply to a changed call, of a cell that conforms itself. elsewhere: the class
    of another cell of the subject, if that one is non-reproducible.
    """

    cell: Cell
    outcome: Outcome
    judged: Judged
    reviewed: Reviewed
    problem: Problem
    compiles: bool
    seconds: float
    again: list[Outcome] = field(default_factory=list)
    alone: list[Outcome] = field(default_factory=list)
    related: list[tuple[Invariant, Cell, Outcome]] = field(default_factory=list)
    read: list[tuple[attention_matrix.Piece, Cell, Outcome]] = field(default_factory=list)
    not_read: str = ""
    changed: Judged | None = None
    elsewhere: str = ""

    @property
    def red(self) -> bool:
        """Whether the gate rejects the cell."""
        judgement = self.judged.judgement
        uncalibrated = judgement is not None and judgement.uncalibrated
        return not is_green(self.judged.verdict, known=self.reviewed.known is not None, uncalibrated=uncalibrated)

    @property
    def size(self) -> int:
        """How many logits the call has."""
        return prod(self.judged.problem.logits_shape)

    @property
    def kind(self) -> tuple[str, ...]:
        """Verdict, class and explanation: cells that agree in these probably have one cause."""
        found = self.judged.explanation
        said = (found.decision, found.name) if found is not None else ("", "")
        return (self.judged.verdict, self.judged.fail_class, *said)

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

    def settle(self, judge: Judge, accepts: Accepts) -> SecondLookResult:
        """Return the cell with everything that the second look found."""
        judged = self.judged
        found = self.repetition
        if found is not None and self.is_non_reproducible:
            judged = _non_reproducible(judged, found)
        relations = list(self._relations(judge, accepts))
        broken = [(each, changed) for each, changed in relations if each.found == "broken"]
        if broken and self.judged.verdict in CONFORMING:
            judged = self._broken(judged, broken, judge)
        arrays = {**self.judged.arrays, **(read := self._pattern(judge))}
        return SecondLookResult(
            judged,
            arrays,
            _logged_repetition(found),
            tuple(map(_logged_relation, (each for each, _ in relations))) or None,
            self._logged_pattern(read, self._odd(judged, arrays)),
        )

    @property
    def is_unexplained(self) -> bool:
        """Whether the numbers are wrong and no single deviation explains them."""
        return _is_unexplained(self.judged)

    def _logged_pattern(self, read: Mapping[str, Array], odd: tuple[str, ...] | None) -> LoggedPattern:
        """How many weights are beyond their bound, or why they were not read. odd: facts about them."""
        if not read:
            if not self.read and not self.not_read:
                return LoggedPattern()
            return _with_odd(LoggedPattern(calls=len(self.read), not_read=self.not_read), odd)
        expected, actual, tolerance = (read[f"pattern.{name}"] for name in ("expected", "actual", "tolerance"))
        beyond = elements_beyond(expected, actual, tolerance)
        return _with_odd(LoggedPattern(calls=len(self.read), beyond=beyond, elements=int(expected.size)), odd)

    def _odd(self, judged: Judged, arrays: Mapping[str, Array]) -> tuple[str, ...] | None:
        """Facts about the effective weights, or about the returned ones if only these are wrong; None if unknown."""
        if (
            self.is_non_reproducible
            or not _is_unexplained(judged)
            or judged.declared is None
            or judged.judgement is None
        ):
            return None
        wrong = {each.output for each in judged.judgement.outputs if each.verdict == "fail"}
        name = "pattern" if "output" in wrong else "weights"
        sides = [arrays.get(f"{name}.{side}", np.empty(0)) for side in ("expected", "actual", "tolerance")]
        problem, dialect = judged.problem, judged.declared.dialect
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

    def _broken(self, judged: Judged, broken: list[tuple[Relation, Judged | None]], judge: Judge) -> Judged:
        """A fail with the broken invariants, and with the explanation of the changed call if any."""
        said = "; ".join(f"{each.name}: it {each.sentence}: {each.where}" for each, _ in broken)
        failed = replace(judged, verdict="fail", message=said, klass=self.elsewhere or "invariant")
        if self.elsewhere:  # if one call has two replies, replies to two calls cannot be compared
            return failed
        wrong = [each for _, each in broken if each is not None and each.verdict not in CONFORMING]
        explained = [each for each in wrong if each.explanation is not None]
        fitting = [(each, ways) for each in explained if (ways := self._fitting(each.judgement, judge))]
        self.changed = next((replace(each, case=self.judged.case) for each in (*explained, *wrong)), None)
        if not fitting or failed.judgement is None:
            return failed
        changed, (first, *ties) = fitting[0]
        judgement = replace(failed.judgement, explanation=first, ties=tuple(ties))
        return replace(failed, klass=changed.fail_class, judgement=judgement)

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
            known = accepts(changed)
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


def _is_unexplained(judged: Judged) -> bool:
    return judged.fail_class in OF_NUMBERS and judged.explanation is None


def _non_reproducible(judged: Judged, found: Repetition) -> Judged:
    """A fail without an explanation: nothing follows from one of several replies. An error stays an error."""
    unexplained = judged.judgement and replace(judged.judgement, explanation=None, ties=(), searched=True)
    reason = f"{found.reason}; {judged.message}".removesuffix("; ")
    settled = replace(judged, message=reason, judgement=unexplained)
    return settled if judged.verdict == "error" else replace(settled, verdict="fail", klass=found.found)


def _with_odd(pattern: LoggedPattern, odd: tuple[str, ...] | None) -> LoggedPattern:
    return pattern if odd is None else pattern.model_copy(update={"odd": odd})


def _logged_repetition(found: Repetition | None) -> LoggedRepetition:
    if found is None:
        return LoggedRepetition()
    logged = LoggedRepetition(found=found.found, again=found.again, alone=found.alone)
    return logged.model_copy(update={"reason": found.reason}) if found.reason else logged


def _logged_relation(found: Relation) -> LoggedRelation:
    """A relation, with what is wrong if it is broken."""
    if found.found != "broken":
        return LoggedRelation(name=found.name, found=found.found)
    return LoggedRelation(name=found.name, found=found.found, sentence=found.sentence, where=found.where)
