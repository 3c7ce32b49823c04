"""
The second look of a worker: further calls after its ordinary ones, about cells that did not pass and a few others.

It runs last, in the same process, and mostly with shapes that were called before, so little is compiled for it.
`Closeness` bounds its cost, however many cells fail.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from conformance.diagnosis import attention_matrix
from conformance.engine.cells import Cell, make_cell
from conformance.engine.job import Outcome
from conformance.engine.pending import PendingCell
from conformance.spec.case import Case
from conformance.spec.problem import Problem
from conformance.verdicts.compare import IN_A_ROW, NON_REPRODUCIBLE, ORDER_DEPENDENT
from conformance.verdicts.invariants import INVARIANTS
from conformance.verdicts.problem_changes import is_changeable

# Verdicts of calls that are repeated. A crash would end the worker, and a timeout would take the time once more.
REPEATED = ("fail", "error", "inconclusive")

# The dtype of the passing cells that get a second look.
BASIS = "float32"

# Maximum number of unexplained cells of one kind whose attention matrix is read, each from another suite.
UNEXPLAINED = 3

# Mistakes that depend on blocks show only with more queries or keys than this.
BLOCK = 8

# How many more times a call is repeated that was reproducible while another was not: dropout may keep all weights once.
MORE = 4

# Dtypes in which weights can be read well. Half precision is too coarse.
SHARP = ("float32", "float64")


@dataclass(frozen=True)
class Closeness:
    """
    How much a second look does for each subject.

    failures: for how many kinds of rejected cells the smallest cell is repeated. alone: how many of these are also
    repeated in a fresh process, each of which imports the framework: the smallest, then unexplained ones. subset: for
    how many passing cells invariants are checked. reshape: whether shapes that were not called before are allowed.
    left_out: invariants that are not checked.
    """

    failures: int = 6
    alone: int = 2
    subset: int = 20
    reshape: bool = False
    left_out: frozenset[str] = frozenset()


@dataclass(frozen=True, eq=False)
class Question:
    """A further call and its purpose. take: receives the outcome. fresh: the call runs alone in a new process."""

    purpose: str
    cell: Cell
    take: Callable[[Outcome], None]
    fresh: bool = False


def subset_of(cases: Sequence[Case], number: int) -> frozenset[str]:
    """Ids of `number` cases of each operator that get a second look if they pass: the smallest of every suite."""
    chosen: list[str] = []
    for operator in ("sdpa", "mha"):
        suites: dict[str, list[Case]] = {}
        for case in sorted(cases, key=lambda each: prod(each.axes.values())):
            if case.operator == operator and case.dtype == BASIS:
                suites.setdefault(case.suite, []).append(case)
        ranked = [(rank, case.id) for same in suites.values() for rank, case in enumerate(same)]
        chosen += [name for _, name in sorted(ranked, key=lambda each: each[0])[:number]]
    return frozenset(chosen)


class SecondLook:
    """
    The pending cells of one worker, and the questions about them in three waves.

    waiting: number of calls without an answer yet. exhausted: whether all ordinary calls have been made.
    """

    def __init__(self, closeness: Closeness, called: Callable[[str], Collection[str]]) -> None:
        """Start. called: returns the signatures that a subject, given by name, has been called with."""
        self.waiting = 0
        self.exhausted = False
        self.pending: list[PendingCell] = []
        self._closeness = closeness
        self._called = called
        self._waves = iter((self._first_wave, self._second_wave, self._third_wave))

    def next_questions(self) -> list[Question]:
        """The questions of the next wave that has any; empty after the last wave."""
        for wave in self._waves:
            if questions := list(wave()):
                return questions
        return []

    def _first_wave(self) -> Iterator[Question]:
        """Repeat the chosen failures; check invariants and read attention matrices of these and of passing cells."""
        by_subject: dict[str, list[PendingCell]] = {}
        for pending in sorted(self.pending, key=lambda each: each.size):
            by_subject.setdefault(pending.cell.subject.name, []).append(pending)
        for cells in by_subject.values():
            kinds = self._kinds(cells)
            smallest = sorted((same[0] for same in kinds), key=lambda pending: pending.size)
            unexplained = (pending for pending in smallest if pending.is_unexplained)
            lonely = list(dict.fromkeys((*smallest[:1], *unexplained)))[: self._closeness.alone]
            for pending in smallest:
                yield from _repeats(pending, alone=pending in lonely)
            themes = {each.theme: each for each in reversed(cells) if not each.red and each.theme}
            read = [*themes.values(), *(pending for same in kinds for pending in _to_read(same))]
            for pending in cells:
                if pending in smallest or pending in read or not pending.red:
                    yield from self._relations(pending)
                if pending in read:
                    yield from self._pieces(pending)

    def _second_wave(self) -> Iterator[Question]:
        """If one failure of a subject was not reproducible, repeat its other failures; the graver class counts."""
        by_class = sorted(
            (pending for pending in self.pending if pending.non_reproducible),
            key=lambda pending: -NON_REPRODUCIBLE.index(pending.non_reproducible),
        )
        non_reproducible = {pending.cell.subject.name: pending.non_reproducible for pending in by_class}
        for pending in self.pending:
            pending.elsewhere = non_reproducible.get(pending.cell.subject.name, "")
            if pending.red and not pending.again and pending.elsewhere:
                yield from _repeats(pending, alone=False)

    def _third_wave(self) -> Iterator[Question]:
        """Repeat the reproducible failures of such a subject: they may agree by chance, or because of earlier calls."""
        asked: Counter[str] = Counter()
        for pending in sorted(self.pending, key=lambda each: each.size):
            subject = pending.cell.subject.name
            doubtful = bool(pending.again) and pending.non_reproducible != pending.elsewhere
            if doubtful and asked[subject] < self._closeness.failures:
                asked[subject] += 1
                alone = pending.elsewhere == ORDER_DEPENDENT and not pending.alone
                for _ in range(1 if alone else MORE):
                    yield from _repeats(pending, alone=alone)

    def _kinds(self, cells: Sequence[PendingCell]) -> list[list[PendingCell]]:
        """The rejected cells of the most frequent kinds, the smallest cells first."""
        kinds: dict[tuple[str, ...], list[PendingCell]] = {}
        for pending in cells:
            if pending.red:
                kinds.setdefault(pending.kind, []).append(pending)
        return sorted(kinds.values(), key=lambda same: -len(same))[: self._closeness.failures]

    def _relations(self, pending: PendingCell) -> Iterator[Question]:
        if pending.judged.declared is None or not is_changeable(pending.problem):
            return
        for invariant in INVARIANTS:
            if invariant.name in self._closeness.left_out or (invariant.of_failures and not pending.red):
                continue
            cell = self._changed(pending, invariant.change(pending.problem), invariant.name)
            if cell is not None:
                yield Question("invariants", cell, pending.relates(invariant, cell))

    def _pieces(self, pending: PendingCell) -> Iterator[Question]:
        if pending.judged.declared is None or pending.problem.differentiated:
            return
        found = attention_matrix.pieces(pending.judged.problem)
        if isinstance(found, str):
            pending.not_read = found
            return
        for number, piece in enumerate(found):
            cell = self._changed(pending, piece.asked_of(pending.problem), f"pattern {number}")
            if cell is None:
                pending.not_read = "a call of its own shape would be needed"
                return
            yield Question("patterns", cell, pending.reads(piece, cell))

    def _changed(self, pending: PendingCell, problem: Problem | None, name: str) -> Cell | None:
        """The changed call, or None if there is none, if it equals the old one, or if it would have to be compiled."""
        if problem is None:
            return None
        case = replace(pending.cell.case, id=f"{pending.cell.case.id} {name}")
        made = make_cell(case, problem, pending.cell.subject)
        if not isinstance(made, Cell) or made.digest == pending.cell.digest:
            return None
        free = self._closeness.reshape or pending.red or made.signature in self._called(pending.cell.subject.name)
        return made if free else None


def _to_read(same: Sequence[PendingCell]) -> list[PendingCell]:
    """The most legible of the rejected cells of one kind, or a few if they are unexplained; smallest first."""
    ranked = sorted(same, key=_legibility, reverse=True)
    if not ranked[0].is_unexplained:
        return ranked[:1]
    suites: dict[str, PendingCell] = {}
    for pending in ranked:
        suites.setdefault(pending.cell.case.suite, pending)
    return list(suites.values())[:UNEXPLAINED]


def _legibility(pending: PendingCell) -> tuple[int, bool, bool]:
    """
    How well an attention matrix can be read: not at all, one row or column, a picture, with blocks.

    Of the same kind, calls with finite logits come first: NaN hides the other weights of its row.
    """
    problem = pending.judged.problem
    if isinstance(attention_matrix.pieces(problem), str):
        return 0, False, False
    lengths = problem.logits_shape[-2:]
    blocks = pending.is_unexplained and max(lengths) > BLOCK
    is_finite = all(np.isfinite(each).all() for each in (problem.query, problem.key))
    return 1 if 1 in lengths else 2 + blocks, is_finite, problem.dtype in SHARP


def _repeats(pending: PendingCell, *, alone: bool) -> Iterator[Question]:
    if pending.judged.verdict not in REPEATED:
        return
    for _ in range(IN_A_ROW):
        yield Question("repeats", pending.cell, pending.again.append)
    if alone:
        yield Question("alone", pending.cell, pending.alone.append, fresh=True)
