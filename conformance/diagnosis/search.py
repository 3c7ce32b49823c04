"""The search for causes: what of the failing cells is explained so far, by which candidates, under which conditions."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import inf, prod

from conformance.deviations.tiles import DECISION, KeyLoop, is_causal_argument, key_loops
from conformance.diagnosis.candidates import Candidate, Cause, combined_with, different
from conformance.diagnosis.cell_cause import OF_NONFINITE
from conformance.diagnosis.condition_fit import Fit, Guards
from conformance.diagnosis.conditions import Condition
from conformance.diagnosis.cost import MAX_ALTERNATIVES, MAX_EXTRA_COST, saved
from conformance.diagnosis.evidence import Evidence
from conformance.diagnosis.explanation import ways
from conformance.diagnosis.localisation import INFORMATIVE, Localisation, localise
from conformance.spec.problem import Problem

# So many of the simplest cells and of the largest are tried.
MAX_TRIED = 3
# Logits of a cell that is not too large for that.
MAX_LOGITS = 2**15
# So many of those that explain most are tried on all cells.
MAX_KEPT = 6
# In so many calls that conform it is seen what tells them apart.
MAX_CONTRASTS = 16

# What a loop shows of several calls, each as bytes; empty where that is what the flag shows.
Outcomes = tuple[bytes, ...]


def fitted(cells: Sequence[Evidence], conforming: Sequence[Evidence] = ()) -> Iterator[Candidate]:
    """
    The loops that explain most of some failing cells.

    conforming: of what shows the same where calls fail, that comes first which shows in the fewest of these.
    """
    flagged = [
        cell for cell in cells if _has_causal_argument(cell.problem) and prod(cell.problem.logits_shape) <= MAX_LOGITS
    ]
    found = _explained(_tried(flagged))
    most = max((count for _, count in found), default=0)
    plainest: dict[tuple[str, Outcomes], KeyLoop] = {}
    beside = _of_each_shape(conforming)
    for loop in (loop for loops, count in found if count == most > 0 for loop in loops):
        plainest.setdefault((loop.kind, _outcomes(loop, beside)), loop)
    fewest_first = sorted(plainest, key=lambda each: sum(map(bool, each[1])))
    yield from (_candidate(plainest[each]) for each in fewest_first[:MAX_KEPT])


def _has_causal_argument(problem: Problem) -> bool:
    return any(is_causal_argument(operand) for operand in problem.mask_operands)


def _tried(cells: Sequence[Evidence]) -> list[Evidence]:
    by_size = sorted(cells, key=lambda cell: prod(cell.problem.logits_shape))
    return [*dict.fromkeys([*cells[:MAX_TRIED], *by_size[-MAX_TRIED:]])]


def _of_each_shape(cells: Sequence[Evidence]) -> list[Problem]:
    """One call of each shape, of the simplest."""
    shapes = {cell.problem.logits_shape: cell.problem for cell in reversed(cells)}
    return sorted(shapes.values(), key=lambda problem: prod(problem.logits_shape))[:MAX_CONTRASTS]


def _explained(cells: Sequence[Evidence]) -> list[tuple[list[KeyLoop], int]]:
    """Loops that show the same in all cells, those of one kind, and how many of the cells they explain."""
    same: dict[tuple[str, Outcomes], list[KeyLoop]] = {}
    problems = [cell.problem for cell in cells]
    for loop in key_loops() if cells else ():
        if any(shown := _outcomes(loop, problems)):
            same.setdefault((loop.kind, shown), []).append(loop)
    seen: dict[tuple[int, bytes], bool] = {}
    for (_, shown), (loop, *_) in same.items():
        for place, what in enumerate(shown):
            if (place, what) not in seen:
                seen[place, what] = bool(what) and _candidate(loop).explains(cells[place])
    return [(loops, sum(seen[each] for each in enumerate(shown))) for (_, shown), loops in same.items()]


def _outcomes(loop: KeyLoop, problems: Sequence[Problem]) -> Outcomes:
    """What every flag of each call shows under the loop."""
    return tuple(b"".join(_seen(loop, problem)) for problem in problems)


def _seen(loop: KeyLoop, problem: Problem) -> Iterator[bytes]:
    for operand in problem.mask_operands:
        if (
            is_causal_argument(operand)
            and (seen := loop.seen(problem, operand)).tobytes() != (operand.values != 0).tobytes()
        ):
            yield seen.tobytes()


def _candidate(loop: KeyLoop) -> Candidate:
    return Candidate(((DECISION, loop.name),))


# In so many of its simplest cells it is seen whether a candidate is half of a pair.
MAX_CELLS_FOR_PAIRS = 3
# Arithmetic that explains a smaller part of the cells that fail where it shows is no cause.
MIN_SHARE_OF_ARITHMETIC = 0.5
# So many causes, of which some need a condition, may be one that needs none.
MIN_CAUSES_TO_MERGE = 2


@dataclass(frozen=True)
class _Rated:
    """A candidate with the open cells that it explains, and the guards under which nothing contradicts it."""

    candidate: Candidate
    shows: tuple[int, ...]
    fit: Fit

    @property
    def worth(self) -> float:
        """By how many bits it makes the explanation of everything shorter."""
        return saved(len(self.shows), self.candidate.bits + self.fit.bits)

    def like(self, best: "_Rated") -> bool:
        """Whether it explains the same, is hardly dearer than the best, and no form of it."""
        return self.shows == best.shows and best.worth - self.worth < MAX_EXTRA_COST and not self._is_form(best)

    def _is_form(self, other: "_Rated") -> bool:
        """Whether one of the two is the other under a condition of its own, as `ignored_beside_others`."""
        mine, others = (each.candidate.change for each in (self, other))
        if len(mine) != 1 or len(others) != 1 or mine[0][0] != others[0][0]:
            return False
        (_, one), (_, two) = mine[0], others[0]
        return one.startswith(f"{two}_") or two.startswith(f"{one}_")


@dataclass
class Search:
    """The cells of a subject, and what of the failing ones is explained so far."""

    cells: Sequence[Evidence]
    causes: list[Cause] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._guards = Guards(self.cells)
        by_size = sorted(range(len(self.cells)), key=lambda n: (self.cells[n].simplicity, self.cells[n].case))
        self._open = [n for n in by_size if self.cells[n].actual is not None]
        self._conforming = [n for n in by_size if self.cells[n].actual is None]
        self._taken: dict[int, Candidate] = {}
        self._against: dict[Candidate, list[int]] = {}
        self._two_here: dict[tuple[int, int], bool] = {}
        self._not_both: dict[tuple[int, Candidate, Candidate], bool] = {}

    def open_cells(self) -> list[Evidence]:
        """Failing cells without a cause, the simplest first."""
        return [self.cells[n] for n in self._open]

    def conforming_cells(self) -> list[Evidence]:
        """Cells that conform, the simplest first."""
        return [self.cells[n] for n in self._conforming]

    def can_pay(self, bits: float) -> bool:
        """Whether a cause that costs so much could be shorter than the cells that are left."""
        return not self.causes or saved(len(self._open), bits) > 0.0

    def where(self, cells: Sequence[Evidence]) -> Localisation:
        """What cells that nothing explains have in common, and the conforming ones have not."""
        if not cells:
            return Localisation()
        shows = [n for n, cell in enumerate(self.cells) if cell in cells]
        conditions, conforming = self._guards.around(shows, self._conforming)
        telling = conforming <= INFORMATIVE * len(self._conforming)
        return localise(cells, conditions if telling else (), conforming if telling else 0)

    def confirm(self, suspects: Iterable[Cause]) -> None:
        """Take causes with their conditions as they are, where these fit here and no conforming cell contradicts."""
        for each in suspects:
            shows = [n for n in self._open if self._has(each, n)]
            against = (n for n in self._conforming if self._holds(each, n))
            if shows and not any(each.candidate.contradicts(self.cells[n]) for n in against):
                ties = tuple(tie for tie in each.ties if all(self._has(tie, n) for n in shows))
                self.causes.append(replace(each, cells=tuple(self.cells[n] for n in shows), ties=ties))
                self._taken |= dict.fromkeys(shows, each.candidate)
                self._open = [n for n in self._open if n not in shows]

    def extend(self, first: int = 0) -> None:
        """
        Let causes have the cells that they bring within their bounds where their condition holds, be it by little.

        first: the place of the first cause that is looked at.
        """
        for place, cause in list(enumerate(self.causes))[first:]:
            more = [n for n in self._open if self._holds(cause, n) and self.cells[n].held_by(cause.candidate.change)]
            self.causes[place] = replace(cause, cells=(*cause.cells, *(self.cells[n] for n in more)))
            self._taken |= dict.fromkeys(more, cause.candidate)
            self._open = [n for n in self._open if n not in more]

    def merge(self) -> None:
        """Let a cause have all cells of another one, the smallest first, where it explains them too."""
        by_size = sorted(self.causes, key=lambda cause: len(cause.cells))
        for which in [(cause.candidate, cause.guards) for cause in by_size]:
            cause = next(each for each in self.causes if (each.candidate, each.guards) == which)
            numbers = [n for n in self._taken if self.cells[n] in cause.cells]
            others = sorted((each for each in self.causes if each is not cause), key=lambda each: -len(each.cells))
            wide = next((each for each in others if all(self._has(each, n) for n in numbers)), None)
            if wide is not None:
                self.causes[self.causes.index(wide)] = replace(wide, cells=(*wide.cells, *cause.cells))
                self.causes.remove(cause)
                self._taken |= dict.fromkeys(numbers, wide.candidate)

    def unite(self) -> None:
        """Let one that is fitted, and needs no condition, stand for several causes of which some need one."""
        guarded = [cause for cause in self.causes if cause.guards[0].words]
        if len(guarded) >= MIN_CAUSES_TO_MERGE:
            self._unite(guarded)
        elif guarded and len(self.causes) >= MIN_CAUSES_TO_MERGE:
            self._unite(self.causes)

    def _unite(self, several: Sequence[Cause]) -> None:
        cells = sorted(
            {cell for cause in several for cell in cause.cells}, key=lambda cell: (cell.simplicity, cell.case)
        )
        whole = [
            each
            for each in different(fitted(cells, self.conforming_cells()))
            if all(each.explains(cell) for cell in cells)
            and not any(each.contradicts(self.cells[n]) for n in self._conforming)
        ]
        if whole:
            first, *ties = (Cause(each, (Condition(),), tuple(cells)) for each in whole)
            self.causes = [cause for cause in self.causes if cause not in several]
            self.causes.append(replace(first, ties=tuple(ties)))
            self._taken |= {n: first.candidate for n, cell in enumerate(self.cells) if cell in cells}

    def _has(self, cause: Cause, number: int) -> bool:
        return self._holds(cause, number) and cause.candidate.explains(self.cells[number])

    def _holds(self, cause: Cause, number: int) -> bool:
        cell = self.cells[number]
        return cause.guards[0].holds(cell.facts, cell.problem)

    def take(self, candidates: Iterable[Candidate], *, alone: bool = False) -> None:
        """
        Take the best of the candidates as a cause, again and again, until none is shorter than the cells it explains.

        Causes before it that it explains as well are given up, which counts for it.

        alone: not where a cause before it shows as well and another decision beside that would do: a pair is looked
        for there first.
        """
        found = {each: self._explained(each) for each in different(candidates)}
        while rated := self._rated(found, alone=alone):
            whole = {each.candidate: self._with_parts(each) for each in rated}
            gains = {each.candidate: each.worth + sum(part.bits for part in whole[each.candidate][1]) for each in rated}
            best = max(rated, key=lambda each: gains[each.candidate])
            if gains[best.candidate] <= 0.0 and not self._is_known(best):
                break
            alike = [each for each in rated if each is not best and each.like(best)]
            self._accept(*whole[best.candidate], sorted(alike, key=lambda each: -each.worth)[:MAX_ALTERNATIVES])
            self.extend(len(self.causes) - 1)

    def _is_known(self, best: _Rated) -> bool:
        """Whether it is a cause already, under another condition, or the first word, and one for all that fails."""
        if not self.causes:
            return len(best.shows) == len(self._open)
        return best.candidate in [cause.candidate for cause in self.causes]

    def _is_half(self, shows: Sequence[int]) -> bool:
        """Whether the simplest cells that a candidate explains show a cause that was found, and one beside it."""
        return bool(self.causes) and all(self._shows_beside(n) for n in shows[:MAX_CELLS_FOR_PAIRS])

    def _shows_beside(self, number: int) -> bool:
        """Whether a cause so far with one more decision explains a cell; looked at once for so many causes."""
        known = (number, len(self.causes))
        if known not in self._two_here:
            self._two_here[known] = self._two_in(number)
        return self._two_here[known]

    def _two_in(self, number: int) -> bool:
        cell = self.cells[number]
        here = [cause.candidate.change for cause in self.causes if self._holds(cause, number)]
        every = ways(cell.problem, cell.declared.dialect)
        alone = (change[0] for change in here if len(change) == 1 and cell.tells_apart(change, ()))
        return any(True for one in alone for _ in combined_with(cell, one, every))

    def _explained(self, candidate: Candidate) -> frozenset[int]:
        return frozenset(n for n in self._open if candidate.explains(self.cells[n]))

    def _rated(self, found: dict[Candidate, frozenset[int]], *, alone: bool) -> list[_Rated]:
        """The candidates that are causes, looked at from the one that explains most, as far as it takes."""
        shows = {each: tuple(n for n in self._open if n in cells) for each, cells in found.items()}
        rated: list[_Rated] = []
        most = {each: saved(len(shows[each]), each.bits) for each in shows}
        for each in sorted(shows, key=lambda each: -most[each]):
            best = max((one.worth for one in rated), default=-inf)
            if not shows[each] or most[each] < best - MAX_EXTRA_COST or self._is_any_nan(each, shows[each]):
                continue
            if alone and self._is_half(shows[each]):
                continue
            fit = self._guards.search(shows[each], self._contradicting(each, found[each]))
            if fit.guards and self._explains_most(each, fit.shows, fit.guards[0]):
                rated.append(_Rated(each, fit.shows, fit))
        return rated

    def _is_any_nan(self, candidate: Candidate, shows: Sequence[int]) -> bool:
        """Whether a candidate is about something else, and explains nothing but NaN: any NaN explains a NaN."""
        about = any(decision in OF_NONFINITE for decision, _ in candidate.change)
        return not about and all(self.cells[n].is_about_nonfinite for n in shows)

    def _explains_most(self, candidate: Candidate, shows: Sequence[int], guard: Condition) -> bool:
        """Whether arithmetic explains most of what fails under its guard: a wide bound covers something anywhere."""
        if candidate.arithmetic is None:
            return True
        cells = [self.cells[n] for n in self._open]
        there = sum(guard.holds(cell.facts, cell.problem) for cell in cells if candidate.arithmetic.of(cell.profile))
        return len(shows) >= MIN_SHARE_OF_ARITHMETIC * there

    def _contradicting(self, candidate: Candidate, explained: frozenset[int]) -> list[int]:
        """The conforming cells that speak against a candidate, and those explained otherwise."""
        if candidate not in self._against:
            self._against[candidate] = [n for n in self._conforming if candidate.contradicts(self.cells[n])]
        others = [
            n for n, taken in self._taken.items() if n not in explained and self._speaks_against(n, taken, candidate)
        ]
        return self._against[candidate] + others

    def _speaks_against(self, number: int, taken: Candidate, candidate: Candidate) -> bool:
        """Whether a cell that is explained by `taken` would be another answer under the candidate, and is not."""
        known = (number, taken, candidate)
        if known not in self._not_both:
            cell = self.cells[number]
            self._not_both[known] = candidate.contradicts(cell, taken) and not candidate.explains(cell)
        return self._not_both[known]

    def _accept(self, best: _Rated, absorbed: Sequence[Cause], ties: Sequence[_Rated]) -> None:
        cells = tuple(self.cells[n] for n in best.shows)
        others = tuple(Cause(each.candidate, each.fit.guards, cells) for each in ties)
        self.causes = [cause for cause in self.causes if cause not in absorbed]
        self.causes.append(Cause(best.candidate, best.fit.guards, cells, others))
        self._taken |= dict.fromkeys(best.shows, best.candidate)
        self._open = [n for n in self._open if n not in best.shows]

    @staticmethod
    def _is_part(cause: Cause, whole: Candidate) -> bool:
        """Whether a cause is one of a pair, or all its cells are explained by another one decision."""
        if len(whole.change) == 1 and len(cause.candidate.change) == 1:
            return all(whole.explains(cell) for cell in cause.cells)
        return set(cause.candidate.change) < set(whole.change)

    def _with_parts(self, best: _Rated) -> tuple[_Rated, list[Cause]]:
        """
        A cause, and those before it that are it: one of a pair, or whatever it explains as well.

        Where only one of a pair shows, it is the pair still.
        """
        parts = [cause for cause in self.causes if self._is_part(cause, best.candidate)]
        cells = {cell for cause in parts for cell in cause.cells}
        more = [n for n, taken in self._taken.items() if self.cells[n] in cells]
        if not more or not all(best.candidate.explains(self.cells[n]) for n in more):
            return best, []
        shows = tuple(sorted({*best.shows, *more}, key=lambda n: self.cells[n].simplicity))
        fit = self._guards.search(shows, self._contradicting(best.candidate, frozenset(shows)))
        return (_Rated(best.candidate, shows, fit), parts) if fit.shows == shows else (best, [])
