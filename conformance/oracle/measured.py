"""
Variations with a number in them: a fill, a factor, an epsilon, a limit, a shift.

The number is read off a reply (`judge.solving`), so no table holds it: `mask_fill=puts_-10` is found by its name.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from conformance.oracle.other_fills import dead_rows_zero, filled_with
from conformance.oracle.other_limits import after_bias, before_bias
from conformance.oracle.other_masks import moved_causal
from conformance.oracle.other_problems import bias_times, scaled_by
from conformance.oracle.other_softmax import denominator_row
from conformance.oracle.variation import Variation, problem_row, steps_row, unbounded_row
from conformance.spec.problem import Problem
from conformance.spec.rounding import largest


@dataclass(frozen=True)
class Measured:
    """
    A decision that is taken by a number.

    prefix, suffix: what stands before and after the number in the name. make: the variation of that name and number.
    guesses: numbers from which the search begins; those with a plain name are among them. neutral: the number under
    which nothing is changed. concerns: the problems in which it can change anything. whole: only integers.
    """

    decision: str
    prefix: str
    make: Callable[[str, float], Variation]
    guesses: tuple[float, ...]
    neutral: float
    concerns: Callable[[Problem], bool]
    suffix: str = ""
    whole: bool = False

    def name(self, number: float) -> str:
        """The way of the decision that takes this number."""
        return f"{self.prefix}{text(number)}{self.suffix}"

    def number(self, name: str) -> float | None:
        """The number in a name; None where it is not one of this kind."""
        if not (name.startswith(self.prefix) and name.endswith(self.suffix)):
            return None
        try:
            found = float(name[len(self.prefix) : len(name) - len(self.suffix)])
        except ValueError:
            return None
        return found if math.isfinite(found) else None

    def variation(self, number: float) -> Variation:
        """The decision taken by this number."""
        return self.make(self.name(number), number)


def text(number: float) -> str:
    """A number as it stands in names and sentences: up to six digits, 1e-6 and not 1e-06."""
    mantissa, e, exponent = f"{number:.6g}".partition("e")
    return f"{mantissa}e{int(exponent)}" if e else mantissa


def find_measured(decision: str, name: str) -> Variation | None:
    """The variation whose name has a number in it; None where this name has none."""
    for kind in MEASURED:
        if kind.decision == decision and (number := kind.number(name)) is not None:
            return kind.make(name, number)
    return None


def _within(number: float) -> Callable[[str], float]:
    """The number, or the largest that the dtype of the logits has."""
    return lambda score: math.copysign(min(abs(number), largest(score)), number)


def _puts(name: str, number: float) -> Variation:
    said = f"fills masked logits with {text(number)}, not with -inf"
    return steps_row("mask_fill", name, said, "fill with -inf", filled_with(_within(number), replaces=True))


def _adds(name: str, number: float) -> Variation:
    said = f"adds {text(number)} to masked logits, and does not put -inf there"
    return steps_row("mask_fill", name, said, "fill with -inf", filled_with(_within(number)))


def _puts_but_dead_rows(name: str, number: float) -> Variation:
    said = f"fills masked logits with {text(number)}, not with -inf, and returns zeros for a fully masked row"
    fill = dead_rows_zero(filled_with(_within(number), replaces=True))
    return steps_row("mask_fill", name, said, "fill with -inf", fill)


def _scale_times(name: str, number: float) -> Variation:
    said = f"scales the logits by {text(number)} times what is asked for"
    return problem_row("scale", name, said, "", scaled_by(lambda problem: problem.applied_scale * number))


def _scale_is(name: str, number: float) -> Variation:
    said = f"scales the logits by {text(number)}, whatever head_dim and the scale are"
    return problem_row("scale", name, said, "", scaled_by(lambda _: number))


def _bias_times(name: str, number: float) -> Variation:
    said = f"counts an additive mask {text(number)} times"
    return problem_row("bias_scale", name, said, "", bias_times(number))


def _epsilon(name: str, number: float) -> Variation:
    said = f"adds {text(number)} to the denominator of the softmax"
    return denominator_row(name, said, lambda _: np.asarray(number))


def _limit(name: str, number: float) -> Variation:
    said = f"cuts the logits off at -{text(number)} and {text(number)}"
    return unbounded_row("logit_limit", name, said, "keep logits small", before_bias(number))


def _late_limit(name: str, number: float) -> Variation:
    said = f"cuts the logits off at -{text(number)} and {text(number)} after a bias is added"
    return unbounded_row("logit_limit", name, said, "keep logits small", after_bias(number))


def _shifted(name: str, number: float) -> Variation:
    by = int(number)
    many = "one key" if abs(by) == 1 else f"{abs(by)} keys"
    said = f"shows {many} {'more' if by > 0 else 'less'} than the causal flag does to each query"
    return problem_row("causal_alignment", name, said, "pass the mask", moved_causal(lambda _: by))


def _masked(problem: Problem) -> bool:
    return any(group.allowed is not None for group in problem.groups)


def _has_dead_row(problem: Problem) -> bool:
    return not problem.attended().any(axis=-1).all()


def _biased(problem: Problem) -> bool:
    return any(group.element == "float" for group in problem.groups)


def _flagged(problem: Problem) -> bool:
    return any(group.offset is not None for group in problem.groups)


def _always(_: Problem) -> bool:
    return True


FILLS = (
    0.0,
    -1e4,
    -1e9,
    -65504.0,
    -1e5,
    -1e3,
    -100.0,
    -50.0,
    -20.0,
    -10.0,
    -5.0,
    -2.0,
    -1.0,
    -1e-9,
    1e-9,
    1.0,
    5.0,
    1e4,
)
FACTORS = (0.5, 2.0, 0.25, 4.0, 0.1, 10.0, 0.9, 1.1, 1.01, -1.0, 100.0, 0.01)
COUNTS = (0.0, -1.0, 0.5, 2.0, 0.25, 4.0, 0.1, 10.0, 100.0)
EPSILONS = (1e-3, 1e-6, 1e-9, 1e-12, 1e-5, 1e-4, 1e-2, 0.1, 1.0, 10.0)
LIMITS = (10.0, 30.0, 50.0, 20.0, 80.0, 88.0, 100.0, 5.0, 1.0)
SHIFTS = tuple(float(by) for size in range(2, 9) for by in (size, -size))

MEASURED: tuple[Measured, ...] = (
    Measured("mask_fill", "puts_", _puts, FILLS, -math.inf, _masked),
    Measured("mask_fill", "puts_", _puts_but_dead_rows, FILLS, -math.inf, _has_dead_row, suffix="_but_dead_rows"),
    Measured("mask_fill", "adds_", _adds, FILLS, -math.inf, _masked),
    Measured("scale", "times_", _scale_times, FACTORS, 1.0, _always),
    Measured("scale", "is_", _scale_is, (1.0, 0.5, 0.25, 0.125, 0.1, 2.0), math.nan, _always),
    Measured("bias_scale", "times_", _bias_times, COUNTS, 1.0, _biased),
    Measured("softmax_denominator", "plus_", _epsilon, EPSILONS, 0.0, _always),
    Measured("logit_limit", "", _limit, LIMITS, math.inf, _always),
    Measured("logit_limit", "", _late_limit, LIMITS, math.inf, _biased, suffix="_after_bias"),
    Measured("causal_alignment", "shifted_", _shifted, SHIFTS, 0.0, _flagged, whole=True),
)
