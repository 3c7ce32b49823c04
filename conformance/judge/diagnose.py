"""
Which single decision, taken otherwise than declared, explains a failing reply.

A variation explains it if the reply lies within the bound of the oracle that takes that decision. Candidates are
screened by a cheap residual; only survivors get a bound.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from conformance.bridge.profile import Profile
from conformance.bridge.tensor import Tensor
from conformance.judge.compare import compare, differs, has_rms_gate
from conformance.judge.expectation import Expectation
from conformance.oracle.bound import Bound
from conformance.oracle.bounds import UnderivedBound, bound_reply
from conformance.oracle.evaluate import Answer, evaluate
from conformance.oracle.variation import Dialect, Reply
from conformance.oracle.variations import CANONICAL_NAMES, candidates
from conformance.spec.problem import Problem

SCREEN = 0.05
"""A candidate that is further off than this fraction of its own largest number is not looked at closer."""


@dataclass(frozen=True)
class Explanation:
    """
    One decision that explains a reply.

    declared: how the subject says it takes the decision. budget: what the reply uses of the bound under it.
    """

    decision: str
    name: str
    declared: str
    sentence: str
    remedy: str
    budget: float

    def record(self) -> dict[str, object]:
        """For the run log."""
        return {
            "decision": self.decision,
            "name": self.name,
            "declared": self.declared,
            "sentence": self.sentence,
            "remedy": self.remedy,
            "budget": self.budget,
        }


def explain(
    problem: Problem, declared: Expectation, profile: Profile, actual: Mapping[str, Tensor]
) -> tuple[Explanation, ...]:
    """Every single decision that explains `actual`: declared ones taken back first, then in the table's order."""
    values = {name: tensor.float64() for name, tensor in actual.items()}
    limit = {name: float(np.max(bound.tolerance, initial=0.0)) for name, bound in declared.bounds.items()}
    found = []
    for explanation, dialect in _alternatives(problem, declared.dialect):
        answer = evaluate(problem, dialect, profile.score)
        if not _near(answer.reply, actual, values, limit) or not _separate(answer.reply, declared):
            continue
        budget = _budget(answer, declared, profile, actual)
        if budget <= 1.0:
            found.append(replace(explanation, budget=budget))
    return tuple(found)


def _alternatives(problem: Problem, declared: Dialect) -> Iterator[tuple[Explanation, Dialect]]:
    for decision, name in declared.items():
        canonical = CANONICAL_NAMES.get(decision, "canonical")
        sentence = f"takes {decision} as {canonical}, though {name} is declared: the declaration is stale"
        rest = {d: n for d, n in declared.items() if d != decision}
        yield Explanation(decision, canonical, name, sentence, "update the declaration", 0.0), rest
    for variation in candidates(problem):
        if declared.get(variation.decision) == variation.name:
            continue
        before = declared.get(variation.decision, CANONICAL_NAMES.get(variation.decision, "canonical"))
        yield (
            Explanation(variation.decision, variation.name, before, variation.sentence, variation.remedy, 0.0),
            {**declared, variation.decision: variation.name},
        )


def _near(
    reply: Reply, actual: Mapping[str, Tensor], values: Mapping[str, np.ndarray], limit: Mapping[str, float]
) -> bool:
    for name, expected in reply.items():
        got = values[name]
        if got.shape != expected.values.shape or actual[name].dtype != expected.dtype:
            return False
        if not np.array_equal(np.isfinite(got), np.isfinite(expected.values)):
            return False
        with np.errstate(invalid="ignore"):
            error = np.nanmax(np.abs(got - expected.values), initial=0.0)
        if error > SCREEN * np.nanmax(np.abs(expected.values), initial=0.0) + limit[name]:
            return False
    return True


def _separate(reply: Reply, declared: Expectation) -> bool:
    """Whether the candidate is another answer here, beyond the bound: what is not cannot explain anything."""
    return any(differs(declared.reply[name], reply[name], declared.bounds[name]) for name in reply)


def _budget(answer: Answer, declared: Expectation, profile: Profile, actual: Mapping[str, Tensor]) -> float:
    """
    What the reply uses of the bound under a candidate.

    Where no bound is derived for it (rows that do not sum to one), the declared one stands in where shapes agree: good
    enough to name a suspect, never to declare one.
    """
    try:
        bounds = bound_reply(answer, profile)
    except UnderivedBound:
        bounds = {name: _flat(bound) for name, bound in declared.bounds.items()}
    used = [0.0]
    for name, expected in answer.reply.items():
        if bounds[name].hard.shape != expected.values.shape:
            return float("inf")
        gate = has_rms_gate(profile)
        used.append(compare(name, expected, actual[name], bounds[name], rms_gate=gate).budget)
    return max(used)


def _flat(bound: Bound) -> Bound:
    largest = np.full_like(bound.hard, np.max(bound.tolerance, initial=0.0))
    return Bound(largest, np.zeros_like(largest), largest, bound.judged, bound.spread, np.zeros_like(largest))
