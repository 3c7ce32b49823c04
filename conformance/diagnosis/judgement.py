"""Judges one cell: the reply of a subject to one problem, under the dialect and the arithmetic that it declares."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from conformance.bridge.profile import Profile
from conformance.bridge.tensor import Tensor
from conformance.deviations.deviation import Reply
from conformance.diagnosis.explanation import Explanation, Likely
from conformance.diagnosis.suspect import Suspect
from conformance.spec.problem import GRADIENT, GRADIENTS, PRESENTS, Problem
from conformance.verdicts.compare import OutputComparison
from conformance.verdicts.expectation import Expectation, compare_all
from conformance.verdicts.verdict import gravest

# Features by device that were validated without a false alarm; all others are uncalibrated.
CALIBRATED: dict[str, frozenset[str]] = {
    "cpu": frozenset(
        {
            *("sdpa", "mha", "weights", "weights_mean", "gradients"),
            *("softcap", "bias_kv", "zero_key", "relu", "residual", "no_output_projection", "grouped_heads"),
            *("scaled", "capped", "logits"),
            *("causal", "key_padding", "attention", "window", "additive"),
        }
    ),
    # A softcap is missing: long rows exceed their bound in half precision (docs/tolerance.md, 5).
    "cuda": frozenset(
        {
            *("sdpa", "mha", "weights", "weights_mean", "gradients"),
            *("bias_kv", "zero_key", "relu", "residual", "grouped_heads"),
            *("causal", "key_padding", "attention", "window", "additive"),
        }
    ),
}


# Requirements that add operations, and therefore a term to the bound.
WITH_TERMS = frozenset({"softcap", "bias_kv", "zero_key", "relu", "residual", "no_output_projection"})


def features(problem: Problem) -> frozenset[str]:
    """The features that a problem uses beyond plain attention, named as in CALIBRATED."""
    found = {problem.operator, *(kind for operand in problem.mask_operands for kind in operand.kinds)}
    uncounted = ("output", *PRESENTS)  # nothing is computed for outputs that are passed through
    found |= {name for name in problem.outputs if name not in uncounted and not name.startswith(GRADIENT)}
    if problem.differentiated:
        found.add(GRADIENTS)
    found |= set(problem.requirements) & WITH_TERMS
    if problem.num_kv_heads != problem.num_heads:
        found.add("grouped_heads")
    return frozenset(found)


def is_calibrated(problem: Problem, device: str) -> bool:
    """Whether every feature of the problem was validated on this kind of device."""
    return features(problem) <= CALIBRATED.get(device.split(":", maxsplit=1)[0], frozenset())


@dataclass(frozen=True, eq=False)
class Judgement:
    """
    A verdict with the results that led to it.

    klass: the class of a fail, see `verdict.CLASSES`. budget: the largest budget of the outputs. explanation, ties: the
    single deviations under which a failing reply is within its bound. differs: declared and canonical replies differ.
    searched: whether the reply was compared with every single deviation.
    """

    verdict: str
    klass: str | None
    budget: float
    reason: str
    outputs: tuple[OutputComparison, ...]
    expectation: Expectation
    explanation: Explanation | None = None
    ties: tuple[Explanation, ...] = ()
    differs: bool = False
    uncalibrated: bool = False
    searched: bool = True


def judge_against(
    declared: Expectation, canonical: Callable[[], Reply], profile: Profile, actual: Mapping[str, Tensor]
) -> Judgement:
    """
    The verdict from the numbers alone, with given expectations, which subjects share; see `explained`.

    canonical: makes the reply without any deviation; needed only of a conforming reply under a dialect.
    """
    outputs = compare_all(declared, actual, profile)
    budget = max(each.budget for each in outputs)
    verdict = gravest(each.verdict for each in outputs)
    reason = "; ".join(each.message for each in outputs if each.verdict == verdict)
    if verdict == "pass":
        other = bool(declared.dialect) and declared.separates(canonical())
        return Judgement("dialect" if other else "pass", None, budget, reason, outputs, declared, differs=other)
    if verdict == "inconclusive":
        return Judgement(verdict, None, budget, reason, outputs, declared)
    klass = "impossible" if any(each.impossible for each in outputs) else "precision"
    return Judgement(verdict, klass, budget, reason, outputs, declared, searched=False)


def explained(
    found: Judgement, problem: Problem, profile: Profile, actual: Mapping[str, Tensor], device: str, likely: Likely
) -> Judgement:
    """
    The judgement of a failing reply with the single deviations that explain it.

    A failure that could be rounding, that nothing explains, and whose bound was not validated is inconclusive. likely:
    the ways that explained the subject so far.
    """
    if found.verdict != "fail":
        return found
    uncalibrated = needs_explanation(found, problem, device)
    ways = likely.explain(Suspect(problem, found.expectation, profile, actual), thorough=uncalibrated)
    if ways:
        return replace(found, klass="semantic", explanation=ways[0], ties=ways[1:], searched=True)
    if uncalibrated:
        return replace(found, verdict="inconclusive", klass=None, uncalibrated=True, searched=True)
    return replace(found, searched=likely.searched)


def needs_explanation(found: Judgement, problem: Problem, device: str) -> bool:
    """Whether the verdict depends on an explanation: the failure could be rounding, and its bound is not validated."""
    return found.klass == "precision" and not is_calibrated(problem, device)
