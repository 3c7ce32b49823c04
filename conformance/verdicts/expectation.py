"""What the oracle expects of a reply under one dialect, with the bound of every output, and the reply next to it."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from conformance.bounds.bound import Bound
from conformance.bounds.outputs import bound_reply
from conformance.bridge.profile import Profile
from conformance.bridge.tensor import Tensor
from conformance.deviations.deviation import Dialect, Reply
from conformance.deviations.evaluate import evaluate
from conformance.spec.problem import Problem
from conformance.verdicts.compare import Comparison, compare, differs, has_rms_gate


@dataclass(frozen=True, eq=False)
class Expectation:
    """The expected reply under `dialect`, and how far each element may be from it."""

    dialect: Dialect
    reply: Reply
    bounds: Mapping[str, Bound]

    @property
    def size(self) -> int:
        """The bytes of all arrays."""
        arrays = [each.values for each in self.reply.values()]
        arrays += [
            array for bound in self.bounds.values() for array in vars(bound).values() if hasattr(array, "nbytes")
        ]
        return sum(array.nbytes for array in arrays)

    def separates(self, other: Reply) -> bool:
        """Whether another reply is another answer: beyond the bounds, or of another shape, dtype or pattern."""
        return any(differs(self.reply[name], other[name], self.bounds[name]) for name in self.reply)


def expect(problem: Problem, dialect: Dialect, profile: Profile) -> Expectation:
    """
    Evaluate the oracle and derive its bounds.

    Raises:
        UnderivedBound: the dialect may be diagnosed but not declared: no bound is derived for it.
    """
    answer = evaluate(problem, dialect, profile.score)
    return Expectation(dialect, answer.reply, bound_reply(answer, profile))


def flat(bound: Bound, shape: tuple[int, ...], tolerance: float) -> Bound:
    """One tolerance for every element of a reply without a bound of its own, whose form need not be that of `bound`."""
    every, nothing = np.full(shape, tolerance), np.zeros(shape)
    judged = bound.judged if bound.judged.shape == shape else np.ones(shape, dtype=bool)
    return Bound(every, nothing, every, judged, np.full(shape, np.max(bound.spread, initial=0.0)), nothing)


def largest_tolerance(bound: Bound) -> float:
    """Of all elements that are judged."""
    return float(np.max(bound.tolerance, initial=0.0, where=np.isfinite(bound.tolerance)))


def compare_all(expectation: Expectation, actual: Mapping[str, Tensor], profile: Profile) -> tuple[Comparison, ...]:
    """
    Every requested output against one expectation.

    Raises:
        KeyError: an output that was requested is missing (the worker refuses such replies before).
    """
    gate = has_rms_gate(profile)
    return tuple(
        compare(name, expected, actual[name], expectation.bounds[name], rms_gate=gate)
        for name, expected in expectation.reply.items()
    )
