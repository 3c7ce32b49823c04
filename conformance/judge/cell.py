"""
One cell: a subject's reply to one problem, judged under the dialect and the arithmetic that it declares.

Exactly one oracle judges: the one under the declared dialect. The canonical one only tells `pass` from `dialect`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from conformance.bridge.profile import Profile
from conformance.bridge.tensor import Tensor
from conformance.deviations.deviation import Dialect
from conformance.judge.calibration import is_calibrated
from conformance.judge.compare import Comparison, compare, has_rms_gate
from conformance.judge.diagnose import Likely
from conformance.judge.expectation import Expectation, expect
from conformance.judge.explanation import Explanation
from conformance.judge.verdict import gravest
from conformance.spec.problem import Problem


@dataclass(frozen=True, eq=False)
class Judgement:
    """
    A verdict with all that led to it.

    klass: of a fail, see `verdict.CLASSES`. budget: the largest of the outputs. explanation, ties: the single
    deviations under which a failing reply lies within its bound. differs: declared and canonical replies differ.
    """

    verdict: str
    klass: str | None
    budget: float
    reason: str
    outputs: tuple[Comparison, ...]
    expectation: Expectation
    explanation: Explanation | None = None
    ties: tuple[Explanation, ...] = ()
    differs: bool = False
    uncalibrated: bool = False
    searched: bool = True


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


def judge(
    problem: Problem, dialect: Dialect, profile: Profile, actual: Mapping[str, Tensor], device: str = "cpu"
) -> Judgement:
    """Judge the reply `actual` to `problem` under the declared dialect and profile."""
    declared = expect(problem, dialect, profile)
    return judge_against(problem, declared, expect(problem, {}, profile), profile, actual, device)


def judge_against(
    problem: Problem,
    declared: Expectation,
    canonical: Expectation,
    profile: Profile,
    actual: Mapping[str, Tensor],
    device: str = "cpu",
    likely: Likely | None = None,
) -> Judgement:
    """As `judge`, with both expectations at hand (subjects share them), and what explained the subject so far."""
    outputs = compare_all(declared, actual, profile)
    budget = max(each.budget for each in outputs)
    verdict = gravest(each.verdict for each in outputs)
    reason = "; ".join(each.message for each in outputs if each.verdict == verdict)
    if verdict == "pass":
        other = declared is not canonical and declared.separates(canonical.reply)
        return Judgement("dialect" if other else "pass", None, budget, reason, outputs, declared, differs=other)
    if verdict == "inconclusive":
        return Judgement(verdict, None, budget, reason, outputs, declared)
    cell = (problem, declared, profile, actual)
    return _failed(cell, outputs, budget, reason, device, likely or Likely())


def _failed(
    cell: tuple[Problem, Expectation, Profile, Mapping[str, Tensor]],
    outputs: tuple[Comparison, ...],
    budget: float,
    reason: str,
    device: str,
    likely: Likely,
) -> Judgement:
    problem, declared, _, _ = cell
    impossible = any(each.impossible for each in outputs)
    uncalibrated = not impossible and not is_calibrated(problem, device)
    found = likely.explain(*cell, thorough=uncalibrated)
    if uncalibrated and not found:
        return Judgement("inconclusive", None, budget, reason, outputs, declared, uncalibrated=True)
    klass = "semantic" if found else "impossible" if impossible else "precision"
    extra: dict[str, Any] = {"explanation": found[0], "ties": found[1:]} if found else {"searched": likely.searched}
    return Judgement("fail", klass, budget, reason, outputs, declared, **extra)
