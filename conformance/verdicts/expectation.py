"""The reply that the oracle expects under one dialect, with bounds, and the comparison of a reply with it."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from conformance.bounds.bound import Bound
from conformance.bounds.outputs import bound_reply, need_bound
from conformance.bridge.profile import Profile
from conformance.bridge.tensor import Tensor
from conformance.deviations.deviation import Dialect, Reply
from conformance.deviations.evaluate import evaluate
from conformance.spec.problem import Problem
from conformance.verdicts.compare import OutputComparison, compare, differs, has_rms_gate


@dataclass(frozen=True, eq=False)
class Expectation:
    """The expected reply under `dialect`, with the bound of each output."""

    dialect: Dialect
    reply: Reply
    bounds: Mapping[str, Bound]

    def separates(self, other: Reply) -> bool:
        """Whether another expected reply differs: beyond the bounds, or in shape, dtype or non-finite values."""
        return any(differs(self.reply[name], other[name], self.bounds[name]) for name in self.reply)


def expect(problem: Problem, dialect: Dialect, profile: Profile) -> Expectation:
    """
    Evaluate the oracle and derive its bounds.

    Raises:
        UnderivedBound: no bound is derived for this dialect; it can be diagnosed but not declared.
    """
    answer = evaluate(problem, dialect, profile.score)
    return Expectation(dialect, answer.reply, bound_reply(answer, profile))


def expect_reply(problem: Problem, dialect: Dialect, profile: Profile) -> Reply:
    """
    Evaluate the oracle alone: a fraction of the time of `expect`, which also derives the bounds.

    Raises:
        UnderivedBound: as `expect` does.
    """
    answer = evaluate(problem, dialect, profile.score)
    need_bound(answer, profile)
    return answer.reply


def flat(bound: Bound, shape: tuple[int, ...], tolerance: float) -> Bound:
    """A bound with one tolerance for all elements, for a reply of `shape` that has no derived bound of its own."""
    every, nothing = np.full(shape, tolerance), np.zeros(shape)
    judged = bound.judged if bound.judged.shape == shape else np.ones(shape, dtype=bool)
    return Bound(every, nothing, every, judged, np.full(shape, np.max(bound.spread, initial=0.0)), nothing)


def largest_tolerance(bound: Bound) -> float:
    """The largest finite tolerance of a bound."""
    return float(np.max(bound.tolerance, initial=0.0, where=np.isfinite(bound.tolerance)))


def compare_all(
    expectation: Expectation, actual: Mapping[str, Tensor], profile: Profile
) -> tuple[OutputComparison, ...]:
    """
    Compare every requested output with one expectation.

    Raises:
        KeyError: a requested output is missing (the worker refuses such replies earlier).
    """
    gate = has_rms_gate(profile)
    return tuple(
        compare(name, expected, actual[name], expectation.bounds[name], rms_gate=gate)
        for name, expected in expectation.reply.items()
    )
