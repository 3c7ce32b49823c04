"""The evidence of one judged cell for and against a cause; shared by subjects with the same reply."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from math import prod
from typing import Any, TypeVar

import numpy as np

from conformance.bridge.contract import Facts
from conformance.bridge.profile import Profile
from conformance.bridge.tensor import Tensor
from conformance.deviations.catalogue import evaluate, find
from conformance.deviations.deviation import Dialect, Reply
from conformance.deviations.names import slot_of
from conformance.diagnosis.explanation import CANONICAL, OF_NONFINITE, Way, is_unexpectedly_infinite, taking
from conformance.diagnosis.suspect import OF_RANGE, Suspect
from conformance.spec.problem import Array, Problem
from conformance.verdicts.compare import distance
from conformance.verdicts.expectation import Expectation, compare_all

Answer = TypeVar("Answer")


class Remembered:
    """A cache of answers by question; each answer is computed once."""

    def __init__(self) -> None:
        """Start empty."""
        self._known: dict[Hashable, Any] = {}

    def once(self, question: Hashable, compute: Callable[[], Answer]) -> Answer:
        """The answer to a question, computed if it is not known yet."""
        if question not in self._known:
            self._known[question] = compute()
        answer: Answer = self._known[question]
        return answer


# Caches by call, and by call and reply.
Shared = dict[Hashable, Remembered]


def call_key(case: str, problem: Problem, declared: Expectation, profile: Profile) -> Hashable:
    """Equal for equal calls: case, masks with their arguments, outputs, and the declaration (by identity)."""
    mask_operands = tuple(
        tuple(digest(value) if name == "values" else value for name, value in vars(each).items())
        for each in problem.mask_operands
    )
    return case, mask_operands, problem.outputs, declared, profile


def reply_key(actual: Mapping[str, Tensor]) -> Hashable:
    """Equal for equal replies: every bit of every output."""
    return tuple((name, each.dtype, each.shape, digest(each.bits)) for name, each in sorted(actual.items()))


def digest(array: Array) -> Hashable:
    """The shape of an array and a digest of its values."""
    return array.shape, blake2b(array.tobytes(), digest_size=16).digest()


# Minimum difference of two answers, in bounds, at which no reply is within the bounds of both.
MIN_DISTANCE = 2.0

# The decision about the value that replaces the logit of a masked key.
OF_FILL = "mask_fill"

# Deviations from the declared dialect, all at once.
Change = tuple[Way, ...]

# NaN at a masked key reaches the output, from the key and from the value.
LEAKS: Change = (("nonfinite_key", "leaks"), ("nonfinite_value", "leaks"))


@dataclass(frozen=True, eq=False)
class Evidence:
    """
    A judged cell of one subject.

    actual: the reply of a failing cell; None for a conforming cell, whose reply is not needed. found: the single ways
    that explained the reply when it was judged. of_call, of_reply: cached answers about the call and about the reply.
    """

    case: str
    facts: Facts
    problem: Problem
    declared: Expectation
    profile: Profile
    actual: Mapping[str, Tensor] | None = None
    found: Change = ()
    of_call: Remembered = field(default_factory=Remembered)
    of_reply: Remembered = field(default_factory=Remembered)

    def failing(self, actual: Mapping[str, Tensor], found: Change) -> "Evidence":
        """The same call with a failing reply, and the single ways that explain it."""
        return replace(self, actual=actual, found=found, of_reply=Remembered())

    def sharing(self, shared: Shared) -> "Evidence":
        """The same cell with caches shared by subjects that had the same call, and the same reply."""
        call = call_key(self.case, self.problem, self.declared, self.profile)
        kept = replace(self, of_call=shared.setdefault(call, Remembered()))
        if self.actual is None:
            return kept
        return replace(kept, of_reply=shared.setdefault((call, reply_key(self.actual)), Remembered()))

    @property
    def simplicity(self) -> tuple[bool, int, str]:
        """
        A sort key that puts the simplest call first: the one with the fewest logits; of equal ones, by case.

        Calls with a dimension of size 1 come last, because dimensions of size 1 hide differences.
        """
        shape = self.problem.logits_shape
        return 1 in shape, prod(shape), self.case

    @property
    def excess(self) -> float:
        """The largest error of a failing reply, in bounds; inf if a rule without a tolerance is broken."""
        if self.actual is None:
            return 0.0
        return max(each.budget for each in compare_all(self.declared, self.actual, self.profile))

    @property
    def is_about_nonfinite(self) -> bool:
        """Whether the reply is unexpectedly not finite, and a single decision about non-finite values explains it."""
        if self.actual is None or not any(decision in OF_NONFINITE for decision, _ in self.found):
            return False
        return is_unexpectedly_infinite(self.declared, self.actual)

    @property
    def is_zero(self) -> bool:
        """Whether the reply is zero everywhere."""
        return self.actual is not None and not any(each.float64().any() for each in self.actual.values())

    def under(self, change: Change) -> dict[str, str]:
        """The declared dialect with the change, except ways that remove a parameter whose gradient is requested."""
        changed = dict(self.declared.dialect)
        for way in change:
            if way[1] == CANONICAL or not self.problem.differentiated or self._reaches(way):
                changed = taking(changed, way)
        return changed

    def explained_by(self, change: Change) -> bool:
        """Whether the failing reply is within its bound under the change."""
        if len(change) == 1 and change[0] in self.found:
            return True
        return self.of_reply.once(("explained", frozenset(change)), lambda: self._explained_by(change))

    def _explained_by(self, change: Change) -> bool:
        if self.actual is None or not any(self._reaches(way) for way in change):
            return False
        return self.suspect().explained_by(self.under(change))

    def suspect(self) -> Suspect:
        """
        The failing reply, to be compared with dialects.

        Raises:
            ValueError: the cell conforms.
        """
        if self.actual is None:
            raise ValueError(f"{self.case} conforms, so it has no failing reply to explain")
        return Suspect(self.problem, self.declared, self.profile, self.actual)

    def loosely_conforms_under(self, change: Change) -> bool:
        """Whether the failing reply is within its bound under a known cause, even if the answers hardly differ."""
        return self.of_reply.once(("loosely conforms", frozenset(change)), lambda: self._loosely_conforms(change))

    def _loosely_conforms(self, change: Change) -> bool:
        if self.actual is None or not any(self._reaches(way) for way in change):
            return False
        return self.suspect().loosely_conforms_under(self.under(change))

    def contradicts(self, change: Change, taken: Change = ()) -> bool:
        """
        Whether the change would certainly give a different answer here, although the reply does not show it.

        taken: for a failing cell, the change that explains the reply.
        """
        return self.of_call.once(("contradicts", change, taken), lambda: self._contradicts(change, taken))

    def _contradicts(self, change: Change, taken: Change) -> bool:
        if not any(self._reaches(way) for way in change) or self._is_lost_in_nan(change):
            return False
        without = self.of_call.once(("reply", taken), lambda: self._reply(self.under(taken)))
        if not self._differs(without, (*taken, *change), taken):
            return False
        # How NaN reaches the output was observed without the change, and a mistake can bring it to another place.
        is_open = not self._is_finite and not any(decision in OF_NONFINITE for decision, _ in change)
        return not is_open or self._differs(without, (*taken, *change, *LEAKS), taken)

    def _differs(self, without: Reply, change: Change, taken: Change) -> bool:
        """Whether the answer under a change differs from another one."""
        changed = self._reply(self.under(change))
        return any(
            distance(without[name], changed[name], bound) > MIN_DISTANCE
            for name, bound in self.declared.bounds.items()
            if taken == () or without[name].values.shape == bound.hard.shape
        )

    @cached_property
    def _is_finite(self) -> bool:
        """Whether all inputs are finite."""
        return all(np.isfinite(each).all() for each in (self.problem.query, self.problem.key, self.problem.value))

    def _is_lost_in_nan(self, change: Change) -> bool:
        """
        Whether the change is about the maximum of the logits or the fill of masked ones, and some logits may be NaN.

        Some implementations ignore NaN in the maximum, and some replace NaN at a masked key by the fill. So such a call
        shows nothing about the change.
        """
        query, key = (np.isfinite(each).all() for each in (self.problem.query, self.problem.key))
        is_hidden = {OF_RANGE: not (query and key), OF_FILL: not key}
        return any(is_hidden.get(decision, False) for decision, _ in change)

    def distinguishes(self, one: Change, other: Change) -> bool:
        """Whether two changes give different answers here, beyond the bounds."""
        return self.of_call.once(("distinguishes", one, other), lambda: self._distinguishes(one, other))

    def _distinguishes(self, one: Change, other: Change) -> bool:
        first, second = self._reply(self.under(one)), self._reply(self.under(other))
        return any(
            first[name].values.shape != bound.hard.shape or distance(first[name], second[name], bound) > MIN_DISTANCE
            for name, bound in self.declared.bounds.items()
        )

    def _reaches(self, way: Way) -> bool:
        """Whether a way can change the answer, or replaces a declared way that can."""
        declared = self.declared.dialect.get(way[0], CANONICAL)
        return _reaches(self.problem, way) or (declared != CANONICAL and _reaches(self.problem, (way[0], declared)))

    def _reply(self, dialect: Dialect) -> Reply:
        if dialect == self.declared.dialect:
            return self.declared.reply
        return evaluate(self.problem, dialect, self.profile.score).reply


def _reaches(problem: Problem, way: Way) -> bool:
    """Whether a way applies to a problem and can change it."""
    decision, name = way
    if name == CANONICAL:
        return True
    slot = slot_of(decision)[1]
    if slot is not None and all(operand.slot != slot for operand in problem.mask_operands):
        return False
    deviation = find(decision, name)
    if problem.differentiated and problem.params.keys() - deviation.posed(problem).params.keys():
        return False
    return deviation.changes(problem) and deviation.concerns(problem)
