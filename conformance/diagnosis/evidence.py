"""What one judged cell says for and against a cause, worked out once for subjects that answered the same."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from math import prod
from typing import Any, TypeVar

import numpy as np

from conformance.bridge.contract import Facts
from conformance.bridge.profile import Profile
from conformance.bridge.tensor import Tensor
from conformance.deviations.catalogue import find
from conformance.deviations.deviation import Dialect, Reply
from conformance.deviations.evaluate import evaluate
from conformance.deviations.names import slot_of
from conformance.diagnosis.cell_cause import OF_NONFINITE, is_unexpectedly_infinite
from conformance.diagnosis.explanation import CANONICAL, Way, taking
from conformance.diagnosis.suspect import OF_RANGE, Suspect
from conformance.spec.problem import Array, Problem
from conformance.verdicts.compare import distance
from conformance.verdicts.expectation import Expectation, compare_all

Found = TypeVar("Found")


class Remembered:
    """Answers by question: each is worked out once."""

    def __init__(self) -> None:
        """Begin with nothing known."""
        self._known: dict[Hashable, Any] = {}

    def once(self, question: Hashable, work_out: Callable[[], Found]) -> Found:
        """The answer, worked out if it is not known yet."""
        if question not in self._known:
            self._known[question] = work_out()
        found: Found = self._known[question]
        return found


# By call, and by call and reply; a call is known by the object that says what is declared for it.
Shared = dict[Hashable, Remembered]


def call_key(case: str, problem: Problem, declared: Expectation, profile: Profile) -> Hashable:
    """What makes two calls one: the case, its masks in arguments of the same names, and what is declared."""
    mask_operands = tuple(
        tuple(digest(value) if name == "values" else value for name, value in vars(each).items())
        for each in problem.mask_operands
    )
    return case, mask_operands, problem.outputs, declared, profile


def reply_key(actual: Mapping[str, Tensor]) -> Hashable:
    """What makes two replies one: every bit of every output."""
    return tuple((name, each.dtype, each.shape, digest(each.bits)) for name, each in sorted(actual.items()))


def digest(array: Array) -> Hashable:
    """The shape of an array, and a digest of its values."""
    return array.shape, blake2b(array.tobytes(), digest_size=16).digest()


# So many bounds apart no reply lies within those of both: one that is as declared contradicts the other.
MIN_DISTANCE = 2.0

# The decision of what stands for the logit of a masked key.
OF_FILL = "mask_fill"

# Decisions taken otherwise than declared, all at once.
Change = tuple[Way, ...]


@dataclass(frozen=True, eq=False)
class Evidence:
    """
    A judged cell of one subject.

    actual: the reply of a failing cell; that of a conforming one lies within its bound, and no more is needed. found:
    the single ways that were seen to explain it when it was judged. of_call, of_reply: what was worked out so far.
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
        """The same call with a reply that fails, and the single ways that explain it by themselves."""
        return replace(self, actual=actual, found=found, of_reply=Remembered())

    def sharing(self, shared: Shared) -> "Evidence":
        """The same cell, which remembers together with those of subjects that were asked, and answered, the same."""
        call = call_key(self.case, self.problem, self.declared, self.profile)
        kept = replace(self, of_call=shared.setdefault(call, Remembered()))
        if self.actual is None:
            return kept
        return replace(kept, of_reply=shared.setdefault((call, reply_key(self.actual)), Remembered()))

    @property
    def simplicity(self) -> tuple[bool, int]:
        """
        Sorts the simplest call first: that with the fewest logits.

        Calls of which a dimension is 1 come last: there much is alike that is not alike elsewhere.
        """
        shape = self.problem.logits_shape
        return 1 in shape, prod(shape)

    @property
    def excess(self) -> float:
        """How many times the allowed error a failing reply is off at most; inf where it is not a matter of numbers."""
        if self.actual is None:
            return 0.0
        return max(each.budget for each in compare_all(self.declared, self.actual, self.profile))

    @property
    def is_about_nonfinite(self) -> bool:
        """Whether numbers are missing that must be there, and a decision about such numbers explains it alone."""
        if self.actual is None or not any(decision in OF_NONFINITE for decision, _ in self.found):
            return False
        return is_unexpectedly_infinite(self.declared, self.actual)

    def under(self, change: Change) -> dict[str, str]:
        """The declared dialect with the change over it."""
        return self._with(self.declared.dialect, change)

    def explained_by(self, change: Change) -> bool:
        """Whether the failing reply lies within its bound under the change."""
        if len(change) == 1 and change[0] in self.found:
            return True
        return self.of_reply.once(("explained", change), lambda: self._explained_by(change))

    def _explained_by(self, change: Change) -> bool:
        if self.actual is None or not any(_reaches(self.problem, way) for way in change):
            return False
        return self.suspect().explained_by(self.under(change))

    def suspect(self) -> Suspect:
        """
        The failing reply, to be held against dialects.

        Raises:
            ValueError: the cell conforms.
        """
        if self.actual is None:
            raise ValueError(f"{self.case} conforms, so it has no failing reply to explain")
        return Suspect(self.problem, self.declared, self.profile, self.actual)

    def held_by(self, change: Change) -> bool:
        """Whether the failing reply lies within its bound under a change that is a cause already, be it by little."""
        return self.of_reply.once(("held", change), lambda: self._held_by(change))

    def _held_by(self, change: Change) -> bool:
        if self.actual is None or not any(_reaches(self.problem, way) for way in change):
            return False
        return self.suspect().held_by(self.under(change))

    def contradicts(self, change: Change, taken: Change = ()) -> bool:
        """
        Whether the change would be another answer here, beyond any doubt, though the call was answered without it.

        taken: what the reply was explained by, of a failing cell.
        """
        return self.of_call.once(("contradicts", change, taken), lambda: self._contradicts(change, taken))

    def _contradicts(self, change: Change, taken: Change) -> bool:
        if not any(_reaches(self.problem, way) for way in change) or self._is_lost_in_nan(change):
            return False
        more = self._with(self.under(taken), change)
        here = self._reply(self.under(taken)) if taken else self.declared.reply
        there = self._reply(more)
        return any(
            distance(here[name], there[name], bound) > MIN_DISTANCE
            for name, bound in self.declared.bounds.items()
            if taken == () or here[name].values.shape == bound.hard.shape
        )

    def _is_lost_in_nan(self, change: Change) -> bool:
        """
        Whether the change is about the maximum of logits or the fill of masked ones, and some of these may be NaN.

        Some take NaN for no maximum, and some replace that of a masked key by the fill: such a call says nothing of it.
        """
        query, key = (np.isfinite(each).all() for each in (self.problem.query, self.problem.key))
        lost = {OF_RANGE: not (query and key), OF_FILL: not key}
        return any(lost.get(decision, False) for decision, _ in change)

    def tells_apart(self, one: Change, other: Change) -> bool:
        """Whether two changes are different answers here, beyond the bounds."""
        return self.of_call.once(("apart", one, other), lambda: self._tells_apart(one, other))

    def _tells_apart(self, one: Change, other: Change) -> bool:
        here, there = self._reply(self.under(one)), self._reply(self.under(other))
        return any(
            here[name].values.shape != bound.hard.shape or distance(here[name], there[name], bound) > MIN_DISTANCE
            for name, bound in self.declared.bounds.items()
        )

    def _with(self, dialect: Dialect, change: Change) -> dict[str, str]:
        """A dialect with a change over it, less what takes away a parameter that a gradient is asked by."""
        changed = dict(dialect)
        for way in change:
            if way[1] == CANONICAL or not self.problem.differentiated or _reaches(self.problem, way):
                changed = taking(changed, way)
        return changed

    def _reply(self, dialect: Dialect) -> Reply:
        if dialect == self.declared.dialect:
            return self.declared.reply
        return evaluate(self.problem, dialect, self.profile.score).reply


def _reaches(problem: Problem, way: Way) -> bool:
    decision, name = way
    if name == CANONICAL:
        return True
    slot = slot_of(decision)[1]
    if slot is not None and all(operand.slot != slot for operand in problem.mask_operands):
        return False
    deviation = find(decision, name)
    changed = deviation.posed(problem)
    if problem.differentiated and problem.params.keys() - changed.params.keys():
        return False
    return (deviation.problem is None or changed is not problem) and deviation.concerns(problem)
