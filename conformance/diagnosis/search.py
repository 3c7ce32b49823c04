"""Searches for causes: which candidates explain which failing cells, and under which conditions."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from math import inf, prod

from conformance.deviations.names import KERNEL_BITS
from conformance.deviations.nonfinite import where_added
from conformance.deviations.tiles import DECISION, KeyLoop, is_causal_argument, key_loops
from conformance.diagnosis.candidates import (
    MAX_SEARCHED_CELLS,
    Candidate,
    Cause,
    combined_with,
    different,
    is_same_number,
    shows_with_fewer,
)
from conformance.diagnosis.coarser_arithmetic import CoarserArithmetic
from conformance.diagnosis.condition_fit import ConditionFit, Guards
from conformance.diagnosis.conditions import Condition
from conformance.diagnosis.evidence import Change, Evidence
from conformance.diagnosis.explanation import MAX_ALTERNATIVES, MAX_EXTRA_COST, OF_NONFINITE, UNEXPLAINED, saved, ways
from conformance.diagnosis.localisation import INFORMATIVE, Localisation, localise
from conformance.diagnosis.separation import explains, needed, separated
from conformance.spec.problem import Problem

# Maximum number of the simplest cells, and of the largest cells, on which loops are tried.
MAX_TRIED = 3
# Maximum number of logits of such a cell.
MAX_LOGITS = 2**15
# Maximum number of loops that are tried on all cells: those that explain most of the tried cells.
MAX_KEPT = 6
# Maximum number of conforming calls that are used to distinguish loops.
MAX_CONTRASTS = 16

# The keys that a loop attends in several calls, as bytes; empty where the causal argument gives the same.
Outcomes = tuple[bytes, ...]


def fitted(cells: Sequence[Evidence], conforming: Sequence[Evidence] = ()) -> Iterator[Candidate]:
    """
    The loops over key tiles that explain most of some failing cells.

    Where the failure also shows without a causal mask, no loop is tried. Loops are tried on large cells only if one
    explains one of the simplest.

    conforming: of loops with the same effect on the failing calls, those that change the fewest conforming calls come
    first.
    """
    without = [cell for cell in cells if not _has_causal_argument(cell.problem)]
    causal = [
        cell
        for cell in cells
        if _has_causal_argument(cell.problem)
        and prod(cell.problem.logits_shape) <= MAX_LOGITS
        and not shows_with_fewer(cell, without)
    ]
    found = _explained(_simplest_and_largest(causal)) if _is_loop(causal) else []
    most = max((count for _, count in found), default=0)
    simplest: dict[tuple[str, Outcomes], KeyLoop] = {}
    contrasts = _of_each_shape(conforming)
    for loop in (loop for loops, count in found if count == most > 0 for loop in loops):
        simplest.setdefault((loop.kind, _outcomes(loop, contrasts)), loop)
    fewest_first = sorted(simplest, key=lambda each: sum(map(bool, each[1])))
    yield from (_candidate(simplest[each]) for each in fewest_first[:MAX_KEPT])


def _has_causal_argument(problem: Problem) -> bool:
    return any(is_causal_argument(operand) for operand in problem.mask_operands)


def _is_loop(cells: Sequence[Evidence]) -> bool:
    """Whether some loop explains one of the simplest cells."""
    return any(count for _, count in _explained(cells[:MAX_TRIED]))


def _simplest_and_largest(cells: Sequence[Evidence]) -> list[Evidence]:
    by_size = sorted(cells, key=lambda cell: prod(cell.problem.logits_shape))
    return [*dict.fromkeys([*cells[:MAX_TRIED], *by_size[-MAX_TRIED:]])]


def _of_each_shape(cells: Sequence[Evidence]) -> list[Problem]:
    """One call of each logits shape, the smallest first, at most MAX_CONTRASTS."""
    shapes = {cell.problem.logits_shape: cell.problem for cell in reversed(cells)}
    return sorted(shapes.values(), key=lambda problem: prod(problem.logits_shape))[:MAX_CONTRASTS]


def _explained(cells: Sequence[Evidence]) -> list[tuple[list[KeyLoop], int]]:
    """Loops of one kind with the same effect on all cells, and the number of cells that they explain."""
    same: dict[tuple[str, Outcomes], list[KeyLoop]] = {}
    problems = [cell.problem for cell in cells]
    for loop in key_loops() if cells else ():
        if any(shown := _outcomes(loop, problems)):
            same.setdefault((loop.kind, shown), []).append(loop)
    seen: dict[tuple[int, bytes], bool] = {}
    for (_, shown), (loop, *_) in same.items():
        for index, outcome in enumerate(shown):
            if (index, outcome) not in seen:
                seen[index, outcome] = bool(outcome) and _candidate(loop).explains(cells[index])
    return [(loops, sum(seen[each] for each in enumerate(shown))) for (_, shown), loops in same.items()]


def _outcomes(loop: KeyLoop, problems: Sequence[Problem]) -> Outcomes:
    """The effect of the loop on each call: the keys attended under each causal argument."""
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


# Maximum number of cells, the simplest first, in which a candidate is checked for being half of a pair.
MAX_CELLS_FOR_PAIRS = 3
# Minimum number of deviations that are combined.
PAIR = 2


@dataclass(frozen=True)
class _Rated:
    """A candidate with the open cells that it explains, and the guards under which no cell contradicts it."""

    candidate: Candidate
    shows: tuple[int, ...]
    fit: ConditionFit

    @property
    def worth(self) -> float:
        """The number of bits that it saves."""
        return saved(len(self.shows), self.candidate.bits + self.fit.bits)

    def like(self, best: "_Rated") -> bool:
        """Whether it explains the same cells as the best, costs hardly more, and is not the best or a variant of it."""
        is_near = self.shows == best.shows and best.worth - self.worth < MAX_EXTRA_COST
        return is_near and self is not best and not self._is_variant(best)

    def _is_variant(self, other: "_Rated") -> bool:
        """Whether one is a variant of the other: conditional (`ignored_beside_others`), or the same number."""
        first, second = (each.candidate.change for each in (self, other))
        if len(first) != 1 or len(second) != 1 or first[0][0] != second[0][0]:
            return False
        (_, one), (_, two) = first[0], second[0]
        return one.startswith(f"{two}_") or two.startswith(f"{one}_") or is_same_number(first[0], second[0])


@dataclass
class Search:
    """
    The cells of a subject and the causes found so far.

    unknown: cells that show a mistake without a name, of this form or of another form of the same implementation.
    """

    cells: Sequence[Evidence]
    causes: list[Cause] = field(default_factory=list)
    unknown: Sequence[Evidence] = ()

    def __post_init__(self) -> None:
        self._guards = Guards(self.cells)
        by_size = sorted(range(len(self.cells)), key=lambda n: self.cells[n].simplicity)
        self._open = [n for n in by_size if self.cells[n].actual is not None]
        self._conforming = [n for n in by_size if self.cells[n].actual is None]
        self._taken: dict[int, Candidate] = {}
        self._against: dict[Candidate, list[int]] = {}
        self._pair_shown: dict[tuple[int, int], bool] = {}

    def separated(self, causes: Sequence[Cause]) -> tuple[Cause, ...]:
        """The causes with one deviation each, if that is the shorter description; else ()."""
        return separated(self.cells, self._guards, causes)

    def open_cells(self) -> list[Evidence]:
        """Failing cells without a cause, the simplest first."""
        return [self.cells[n] for n in self._open]

    def searched_cells(self) -> list[Evidence]:
        """
        The open cells in which causes are searched.

        Cells that should show the unknown mistake are left out, except those that a deviation explained when they were
        judged.
        """
        return [cell for cell in self.open_cells() if cell.found or not shows_with_fewer(cell, self.unknown)]

    def changes(self) -> list[Change]:
        """The deviations of each cause."""
        return [cause.candidate.change for cause in self.causes]

    def conforming_cells(self) -> list[Evidence]:
        """Conforming cells, the simplest first."""
        return [self.cells[n] for n in self._conforming]

    def can_pay(self, bits: float) -> bool:
        """Whether a cause that costs `bits` could save bits on the open cells."""
        return not self.causes or saved(len(self._open), bits) > 0.0

    def enough(self, candidates: Iterable[Candidate]) -> float:
        """
        The cost in bits from which further candidates can be neither the cause nor an alternative; inf if unknown.

        It is known if one of the given candidates explains every open cell without a condition, for fewer bits than a
        single cell without a cause costs.
        """
        if self.causes or not self._open:
            return inf
        every = frozenset(self._open)
        for each in sorted(different(candidates), key=lambda each: each.bits):
            if each.bits >= UNEXPLAINED:
                break
            if (
                all(each.explains(self.cells[n]) for n in self._open)
                and not self._is_any_source(each, self._open)
                and not self._contradicting(each, every)
            ):
                return each.bits + MAX_EXTRA_COST
        return inf

    def cheapest(self, candidates: Iterable[Candidate], cell: Evidence) -> float:
        """The cost in bits of the cheapest candidate that explains a cell and needs no condition; inf without one."""
        by_cost = sorted(candidates, key=lambda each: each.bits)
        return next((each.bits for each in by_cost if each.explains(cell) and self._is_unconditional(each)), inf)

    def _is_unconditional(self, candidate: Candidate) -> bool:
        """Whether no conforming cell contradicts a candidate."""
        return not any(candidate.contradicts(self.cells[n]) for n in self._conforming)

    def where(self, cells: Sequence[Evidence]) -> Localisation:
        """The localisation of unexplained cells: what they have in common and conforming cells do not."""
        if not cells:
            return Localisation()
        shows = [n for n, cell in enumerate(self.cells) if cell in cells]
        conditions, conforming = self._guards.around(shows, self._conforming)
        is_informative = conforming <= INFORMATIVE * len(self._conforming)
        return localise(cells, conditions if is_informative else (), conforming if is_informative else 0)

    def confirm(self, suspects: Iterable[Cause]) -> None:
        """Accept given causes with their conditions, if they explain open cells and no conforming cell contradicts."""
        for each in suspects:
            shows = [n for n in self._open if self._has(each, n)]
            against = (n for n in self._conforming if each.holds(self.cells[n]))
            if shows and not any(each.candidate.contradicts(self.cells[n]) for n in against):
                ties = tuple(tie for tie in each.ties if all(self._has(tie, n) for n in shows))
                self.causes.append(replace(each, cells=tuple(self.cells[n] for n in shows), ties=ties))
                self._taken |= dict.fromkeys(shows, each.candidate)
                self._open = [n for n in self._open if n not in shows]

    def confirm_together(self, change: Change) -> None:
        """Accept several deviations if together they explain every open cell, and no conforming cell contradicts."""
        if len(change) < PAIR or not all(explains(self.cells[n], change) for n in self._open):
            return
        if self._is_unconditional(Candidate(change)):
            self.confirm([Cause(Candidate(change), (Condition(),), ())])
            self.extend()

    def extend(self, first: int = 0) -> None:
        """
        Add to causes the open cells under their condition that are within the bound, even if the answers hardly differ.

        first: index of the first cause that is extended.
        """
        for index, cause in list(enumerate(self.causes))[first:]:
            more = [
                n
                for n in self._open
                if cause.holds(self.cells[n]) and self.cells[n].loosely_conforms_under(cause.candidate.change)
            ]
            self.causes[index] = replace(cause, cells=(*cause.cells, *(self.cells[n] for n in more)))
            self._taken |= dict.fromkeys(more, cause.candidate)
            self._open = [n for n in self._open if n not in more]

    def merge(self) -> None:
        """
        Merge causes, the smallest first, into larger ones that explain all their cells too.

        Causes that are the same arithmetic are merged as well.
        """
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
        for arithmetic in dict.fromkeys(cause.candidate.arithmetic for cause in self.causes):
            if arithmetic is not None:
                self._widen(arithmetic)

    def _widen(self, arithmetic: CoarserArithmetic) -> None:
        """
        Merge causes that are the same arithmetic under several conditions, and open cells that resemble it.

        Libraries choose a kernel, and with it the arithmetic, by sizes in many ways; such conditions say little. A
        single condition that all cells meet is kept.
        """
        same = [cause for cause in self.causes if cause.candidate.arithmetic == arithmetic]
        more = [n for n in self._open if arithmetic.resembles(self.cells[n])]
        first, *others = sorted(same, key=lambda cause: -len(cause.cells))
        found = {cell for cause in same for cell in cause.cells} | {self.cells[n] for n in more}
        cells = tuple(sorted(found, key=lambda cell: cell.simplicity))
        wide = replace(first, cells=cells)
        if others or not all(first.holds(self.cells[n]) for n in more):
            ties = (replace(tie, guards=(Condition(),), cells=cells, condition_bits=0.0) for tie in first.ties)
            explaining = tuple(tie for tie in ties if all(map(tie.candidate.explains, cells)))
            wide = replace(wide, guards=(Condition(),), ties=explaining, condition_bits=0.0)
        self.causes = [cause for cause in self.causes if cause not in same]
        self.causes.append(wide)
        self._taken |= dict.fromkeys(more, first.candidate)
        self._open = [n for n in self._open if n not in more]

    def combine_open(self) -> None:
        """
        Explain open cells by the deviations of several causes at once.

        Two mistakes of one function show together where a call meets the conditions of both; they are paid already. NaN
        in a key or value may also reach the output where the mask is added.
        """
        self._add({n: change for n in self._open if (change := self._combined(n, self.causes))})

    def _combined(self, number: int, causes: Iterable[Cause]) -> Change:
        """The deviations of the causes whose conditions a cell meets, as far as it needs them; () if they fail."""
        cell = self.cells[number]
        met = dict.fromkeys(
            way for cause in causes if cause.holds(self.cells[number]) for way in cause.candidate.change
        )
        changes = ((*met, *added) for added in ((), *((way,) for way in where_added(cell.problem))))
        found = (each for each in changes if PAIR <= len(each) == len(dict(each)) and explains(cell, each))
        return next((needed(cell, each) for each in found), ())

    def _add(self, changes: Mapping[int, Change]) -> None:
        """Add cells to the causes with these changes, or create such causes; their cost is paid already."""
        for change in dict.fromkeys(changes.values()):
            candidate = Candidate(change)
            numbers = [n for n, each in changes.items() if each == change]
            cells = tuple(self.cells[n] for n in numbers)
            same = next((each for each in self.causes if frozenset(each.candidate.change) == frozenset(change)), None)
            if same is None:
                fit = self._guards.search(numbers, self._contradicting(candidate, frozenset(numbers)))
                fits = len(fit.shows) == len(numbers)
                guards, bits = (fit.guards, fit.bits) if fits else ((Condition(),), 0.0)
                self.causes.append(Cause(candidate, guards, cells, condition_bits=bits))
            else:
                self.causes[self.causes.index(same)] = replace(same, cells=(*same.cells, *cells))
            self._taken |= dict.fromkeys(numbers, candidate)
            self._open = [n for n in self._open if n not in numbers]

    def _has(self, cause: Cause, number: int) -> bool:
        return cause.holds(self.cells[number]) and cause.candidate.explains(self.cells[number])

    def take(self, candidates: Iterable[Candidate], *, alone: bool = False) -> None:
        """
        Accept the best candidate as a cause, repeatedly, until none saves bits.

        Earlier causes whose cells the candidate explains as well are dropped, and their cost is added to its gain.

        alone: skip candidates whose cells also show an earlier cause combined with another deviation; such pairs are
        searched first.
        """
        found = different(candidates)
        while rated := self._rated(found, alone=alone):
            whole = {each.candidate: self._with_parts(each) for each in rated}
            gains = {
                each.candidate: each.worth + sum(part.candidate.bits for part in whole[each.candidate][1])
                for each in rated
            }
            best = max(rated, key=lambda each: (gains[each.candidate], len(whole[each.candidate][0].shows)))
            if (pair := self._cheaper_pair(best, found)) is not None:
                found.append(pair)
                continue
            # For the same number of bits, one cause of more cells is better than the causes that it replaces.
            replaces = bool(whole[best.candidate][1])
            if (gains[best.candidate], replaces) <= (0.0, False) and not self._is_known(best):
                break
            taken, parts = whole[best.candidate]
            ties = [each for each in rated if each.like(best) and whole[each.candidate][0].shows == taken.shows]
            self._accept(taken, parts, sorted(ties, key=lambda each: -each.worth)[:MAX_ALTERNATIVES])
            self.extend(len(self.causes) - 1)

    def _cheaper_pair(self, best: _Rated, found: Sequence[Candidate]) -> Candidate | None:
        """A pair of single deviations that explains all cells of the best for fewer bits, if it is not rated yet."""
        rated = {frozenset(each.change) for each in found}
        parts = [each.change[0] for each in found if len(each.change) == 1 and self._explains_any(each, best)]
        pairs = (pair for pair in combinations(parts, 2) if pair[0][0] != pair[1][0] and frozenset(pair) not in rated)
        cheaper = (each for each in map(Candidate, pairs) if each.bits < best.candidate.bits)
        return next((each for each in cheaper if all(each.explains(self.cells[n]) for n in best.shows)), None)

    def _explains_any(self, candidate: Candidate, best: _Rated) -> bool:
        """Whether a candidate is cheaper than the best, and explains some of its cells."""
        return candidate.bits < best.candidate.bits and any(candidate.explains(self.cells[n]) for n in best.shows)

    def _is_known(self, best: _Rated) -> bool:
        """Whether it is already a cause under another condition, or explains all that is left without a condition."""
        explains_rest = len(best.shows) == len(self._open)
        if not self.causes:
            return explains_rest
        is_cause = best.candidate in [cause.candidate for cause in self.causes]
        return is_cause or (explains_rest and not best.fit.guards[0].words)

    def _is_half(self, shows: Sequence[int]) -> bool:
        """Whether the simplest cells that a candidate explains show an earlier cause with one more deviation."""
        return bool(self.causes) and all(self._shows_pair(n) for n in shows[:MAX_CELLS_FOR_PAIRS])

    def _shows_pair(self, number: int) -> bool:
        """Whether an earlier cause with one more deviation explains a cell; cached by the number of causes."""
        key = (number, len(self.causes))
        if key not in self._pair_shown:
            self._pair_shown[key] = self._explained_by_pair(number)
        return self._pair_shown[key]

    def _explained_by_pair(self, number: int) -> bool:
        cell = self.cells[number]
        changes = [cause.candidate.change for cause in self.causes if cause.holds(self.cells[number])]
        every = tuple(ways(cell.problem, cell.declared.dialect))
        alone = (change[0] for change in changes if len(change) == 1 and cell.distinguishes(change, ()))
        return any(True for one in alone for _ in combined_with(cell, one, every))

    def _shown(self, candidate: Candidate, misses: float) -> tuple[int, ...]:
        """The open cells that a candidate explains, the simplest first; () if it leaves more than `misses`."""
        shows: list[int] = []
        for index, number in enumerate(self._open):
            if candidate.explains(self.cells[number]):
                shows.append(number)
            elif index + 1 - len(shows) > misses:
                return ()
        return tuple(shows)

    def _most_promising(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """The candidates, those that explain most of the simplest open cells first."""
        simplest = self._open[:MAX_SEARCHED_CELLS]
        return sorted(candidates, key=lambda each: -sum(each.explains(self.cells[n]) for n in simplest))

    def _rated(self, found: Sequence[Candidate], *, alone: bool) -> list[_Rated]:
        """The candidates that can be causes, rated; a candidate is left as soon as it cannot reach the best."""
        limits: dict[Candidate, float] = {}
        rated: list[_Rated] = []
        for each in self._most_promising(found):
            best = max((one.worth for one in rated), default=-inf)
            most = saved(len(self._open), each.bits)
            shows = self._shown(each, (most - best + MAX_EXTRA_COST) / UNEXPLAINED)
            limits[each] = saved(len(shows), each.bits)
            if not shows or limits[each] < best - MAX_EXTRA_COST or self._is_any_source(each, shows):
                continue
            if alone and self._is_half(shows):
                continue
            fit = self._guards.search(shows, self._contradicting(each, frozenset(shows)))
            if fit.guards:
                rated.append(_Rated(each, fit.shows, fit))
        return sorted(rated, key=lambda each: (-limits[each.candidate], found.index(each.candidate)))

    def _is_any_source(self, candidate: Candidate, shows: Sequence[int]) -> bool:
        """
        Whether a candidate explains nothing that any source of NaN, or of zeros, would not explain.

        It explains only NaN and is not about non-finite values, or it explains only zeros and is no everyday mistake.
        """
        if candidate.bits >= KERNEL_BITS and all(self.cells[n].is_zero for n in shows):
            return True
        is_about_nonfinite = any(decision in OF_NONFINITE for decision, _ in candidate.change)
        return not is_about_nonfinite and all(self.cells[n].is_about_nonfinite for n in shows)

    def _contradicting(self, candidate: Candidate, explained: frozenset[int]) -> list[int]:
        """The cells that contradict a candidate: conforming ones and those explained by another cause."""
        if candidate not in self._against:
            self._against[candidate] = [n for n in self._conforming if candidate.contradicts(self.cells[n])]
        others = [
            n
            for n, taken in self._taken.items()
            if n not in explained and self._is_contradicted_by(n, taken, candidate)
        ]
        return self._against[candidate] + others

    def _is_contradicted_by(self, number: int, taken: Candidate, candidate: Candidate) -> bool:
        """Whether a cell that is explained by `taken` contradicts the candidate."""
        cell = self.cells[number]
        return candidate.contradicts(cell, taken) and not candidate.explains(cell)

    def _accept(self, best: _Rated, absorbed: Sequence[Cause], ties: Sequence[_Rated]) -> None:
        cells = tuple(self.cells[n] for n in best.shows)
        others = tuple(Cause(each.candidate, each.fit.guards, cells) for each in ties)
        self.causes = [cause for cause in self.causes if cause not in absorbed]
        self.causes.append(Cause(best.candidate, best.fit.guards, cells, others, best.fit.bits))
        self._taken |= dict.fromkeys(best.shows, best.candidate)
        self._open = [n for n in self._open if n not in best.shows]

    @staticmethod
    def _is_part(cause: Cause, whole: Candidate) -> bool:
        """Whether a cause is part of the pair `whole`, or the single deviation `whole` explains all its cells."""
        if len(whole.change) == 1 and len(cause.candidate.change) == 1:
            return all(whole.explains(cell) for cell in cause.cells)
        return set(cause.candidate.change) < set(whole.change)

    def _with_parts(self, best: _Rated) -> tuple[_Rated, list[Cause]]:
        """
        The candidate extended by the cells of earlier causes that are part of it, and these causes.

        A cell that shows only one deviation of a pair counts as a cell of the pair.
        """
        parts = [cause for cause in self.causes if self._is_part(cause, best.candidate)]
        cells = {cell for cause in parts for cell in cause.cells}
        more = [n for n, taken in self._taken.items() if self.cells[n] in cells]
        if not more or not all(best.candidate.explains(self.cells[n]) for n in more):
            return best, []
        shows = tuple(sorted({*best.shows, *more}, key=lambda n: self.cells[n].simplicity[:2]))
        fit = self._guards.search(shows, self._contradicting(best.candidate, frozenset(shows)))
        return (_Rated(best.candidate, shows, fit), parts) if fit.shows == shows else (best, [])
