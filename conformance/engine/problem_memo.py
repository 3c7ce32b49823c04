"""The arrays of cases, kept while they are needed and made again when they are needed once more."""

from collections import Counter, OrderedDict

from conformance.spec.case import Case
from conformance.spec.materialise import materialise
from conformance.spec.problem import Problem
from conformance.spec.problem_digest import problem_digest

# Maximum size in bytes of all arrays that are kept.
LIMIT = 1 << 26


class ProblemMemo:
    """
    Problems by case, the one that was used longest ago dropped first.

    Digests are kept for good: they are short, and every record has one.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        """Start empty. limit: in bytes of arrays."""
        self._limit = limit
        self._size = 0
        self._problems: OrderedDict[str, Problem] = OrderedDict()
        self._digests: dict[str, str] = {}

    def problem(self, case: Case) -> Problem:
        """The arrays of a case."""
        if case.id in self._problems:
            self._problems.move_to_end(case.id)
            return self._problems[case.id]
        problem = self._problems[case.id] = materialise(case)
        self._size += size_of(problem)
        while self._size > self._limit and len(self._problems) > 1:
            _, dropped = self._problems.popitem(last=False)
            self._size -= size_of(dropped)
        return problem

    def digest(self, case: Case) -> str:
        """What distinguishes the problem of a case from every other one."""
        if case.id not in self._digests:
            self._digests[case.id] = problem_digest(self.problem(case))
        return self._digests[case.id]


def size_of(problem: Problem) -> int:
    """The bytes of all arrays of a problem."""
    arrays = [problem.query, problem.key, problem.value, *problem.params.values()]
    arrays += [operand.values for operand in problem.mask_operands]
    return sum(array.nbytes for array in arrays)


class CaseUses:
    """How many workers may still need a case: what is remembered of it is dropped after the last one."""

    def __init__(self) -> None:
        """Start without any worker."""
        self._left: Counter[str] = Counter()

    def expect(self, case: str) -> None:
        """One more worker, or one more call, will need the case."""
        self._left[case] += 1

    def needs(self, case: str) -> bool:
        """Whether somebody still needs the case."""
        return self._left[case] > 0

    def end(self, case: str) -> bool:
        """One of them is done; whether it was the last one."""
        self._left[case] -= 1
        if self._left[case] > 0:
            return False
        del self._left[case]
        return True
