"""
Deviations with a measured number: a fill, a factor, an epsilon, a limit, a shift.

The number is determined from a reply (`diagnosis.candidates`), so no table lists it: `mask_fill=puts_-10` is found by
name.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property, partial

import numpy as np

from conformance.deviations.deviation import Deviation, ProblemMap, always
from conformance.deviations.edges import moved_causal
from conformance.deviations.logits import (
    IsMeant,
    argument,
    bias_times,
    capped_by_default,
    filled_with,
    fully_masked_rows_zero,
    is_causal_argument,
    limited,
    limited_after_bias,
    masks_beside_others,
    masks_twice,
    scaled_by,
)
from conformance.deviations.names import DIGITS, LINES, PLAIN, Words, bits_of, slot_of
from conformance.deviations.softmax import denominator_plus, weights_times
from conformance.reference.pipeline import StepsMap
from conformance.spec.problem import Problem
from conformance.spec.rounding import largest


@dataclass(frozen=True)
class Measured:
    """
    A family of deviations that differ in one number.

    prefix, suffix: the text before and after the number in the name. problem or steps: makes the map for a number.
    guesses: numbers from which the search begins, including those that have a name of their own. neutral: the number
    that changes nothing. concerns: whether it can affect a problem. whole: whether only integers are valid. smallest:
    the smallest valid number. bounded: whether bounds hold. every: whether all guesses that explain a reply are tried
    on other calls, because a reply may not distinguish them, and few calls show the number. wording: makes sentence
    and remedy if names.toml has none.
    """

    decision: str
    prefix: str
    guesses: tuple[float, ...]
    neutral: float
    concerns: Callable[[Problem], bool]
    problem: Callable[[float], ProblemMap] | None = None
    steps: Callable[[float], StepsMap] | None = None
    suffix: str = ""
    whole: bool = False
    smallest: float = -math.inf
    bounded: bool = True
    every: bool = False
    wording: Callable[[float], Words] | None = None

    def name(self, number: float) -> str:
        """Return the name of the deviation with this number."""
        return f"{self.prefix}{text(number)}{self.suffix}"

    @property
    def pattern(self) -> str:
        """The name with N for the number."""
        return f"{self.prefix}N{self.suffix}"

    def number(self, name: str) -> float | None:
        """Return the number in a name; None if the name does not belong to this family."""
        if not (name.startswith(self.prefix) and name.endswith(self.suffix)):
            return None
        try:
            value = float(name[len(self.prefix) : len(name) - len(self.suffix)])
        except ValueError:
            return None
        return value if self.allows(value) else None

    def allows(self, number: float) -> bool:
        """Return whether there is a deviation with this number."""
        return max(self.smallest, -LARGEST) <= number <= LARGEST and (not self.whole or _is_shift(number))

    @cached_property
    def least_bits(self) -> float:
        """The cost in bits of its cheapest number: a round one, or one with a line of its own in `names.toml`."""
        round_numbers = (self.name(number) for number in PLAIN)
        lines = (name for decision, _, name in (line.partition("=") for line in LINES) if decision == self.decision)
        named = (name for name in lines if self.number(name) is not None)
        return min(bits_of(self.decision, name) for name in (*round_numbers, *named))

    def deviation(self, number: float) -> Deviation:
        """Return the deviation with this number."""
        return Deviation(
            self.decision,
            self.name(number),
            problem=self.problem and self.problem(number),
            steps=self.steps and self.steps(number),
            bounded=self.bounded,
            wording=self.wording and self.wording(number),
        )


# Maximum number in a name: its square times the squares of a query and a key must not overflow float64.
LARGEST = 1e60


def _is_shift(number: float) -> bool:
    return not number % 1 and abs(number) <= MAX_SHIFT


# Number of significant digits that give back every float64.
EXACT = 17

# Maximum shift, in keys.
MAX_SHIFT = 2**31


def text(number: float) -> str:
    """Format a number for names and sentences: in the fewest digits that give it back, 1e-6 and not 1e-06."""
    shortest = next(short for digits in range(DIGITS, EXACT + 1) if float(short := f"{number:.{digits}g}") == number)
    mantissa, e, exponent = shortest.partition("e")
    return f"{mantissa}e{int(exponent)}" if e else mantissa


def kinds_for(problem: Problem) -> Iterator[Measured]:
    """The families that can affect a problem."""
    slots = dict.fromkeys(each.slot for each in problem.mask_operands)
    every = (*MEASURED, *(kind for slot in slots for kind in of_argument(slot)))
    yield from (kind for kind in every if kind.concerns(problem))


def kinds_of(decision: str) -> tuple[Measured, ...]:
    """The families of a decision."""
    slot = slot_of(decision)[1]
    return tuple(kind for kind in (MEASURED if slot is None else of_argument(slot)) if kind.decision == decision)


def find_measured(decision: str, name: str) -> tuple[Measured, float] | None:
    """Find the family and the number of a measured deviation by name; None if the name does not belong to any."""
    found = ((kind, kind.number(name)) for kind in kinds_of(decision))
    return next(((kind, number) for kind, number in found if number is not None), None)


def _within(number: float) -> Callable[[str], float]:
    """Limit the number to the range of the dtype of the logits."""
    return lambda score: math.copysign(min(abs(number), largest(score)), number)


def _puts(number: float) -> StepsMap:
    return filled_with(_within(number), replaces=True)


def _scale_times(number: float) -> ProblemMap:
    return scaled_by(lambda problem: problem.applied_scale * number)


def _shifted(number: float) -> Words:
    by = int(number)
    more = "more" if by > 0 else "fewer"
    many = f"one {more} key" if abs(by) == 1 else f"{abs(by)} {more} keys"
    return Words(
        "common",
        f"lets each query attend to {many} than the causal mask allows",
        "pass an attention mask instead of the causal argument",
        number,
    )


def _masked(problem: Problem) -> bool:
    return any(operand.allowed is not None for operand in problem.mask_operands)


def _has_fully_masked_row(problem: Problem) -> bool:
    return not problem.attended().any(axis=-1).all()


def _biased(problem: Problem) -> bool:
    return any(operand.element == "float" for operand in problem.mask_operands)


def _has_causal_argument(problem: Problem) -> bool:
    return any(operand.offset is not None for operand in problem.mask_operands)


def _has_no_softcap(problem: Problem) -> bool:
    return problem.softcap is None


LOW_FILLS = (0.0, -1e4, -1e9, -65504.0, -1e5, -1e3, -100.0, -50.0, -30.0, -20.0, -10.0, -5.0, -2.0, -1.0, -1e-9)
FILLS = (*LOW_FILLS, 1e-9, 1.0, 5.0, 1e4)
FACTORS = (0.5, 2.0, 0.25, 4.0, 0.1, 10.0, 0.9, 1.1, 1.01, -1.0, 100.0, 0.01)
COUNTS = (0.0, -1.0, 0.5, 2.0, 0.25, 4.0, 0.1, 10.0, 100.0)
EPSILONS = (1e-3, 1e-6, 1e-9, 1e-12, 1e-5, 1e-4, 1e-2, 0.1, 1.0, 10.0)
LIMITS = (10.0, 30.0, 50.0, 20.0, 80.0, 88.0, 100.0, 5.0, 1.0)
SHIFTS = tuple(float(by) for size in range(2, 9) for by in (size, -size))
CAPS = (50.0, 30.0, 20.0, 10.0, 15.0, 100.0, 1.0)
OF_HEAD_DIM = (1.0, 0.5, 2.0)
SCALES = (1.0, 0.5, 0.25, 0.125, 0.1, 2.0)


def _fill(
    decision: str,
    prefix: str,
    concerns: Callable[[Problem], bool],
    steps: Callable[[float], StepsMap],
    suffix: str = "",
) -> Measured:
    """Make a family of fills: few calls show which low number it is, so every guess is tried on other calls."""
    return Measured(decision, prefix, FILLS, -math.inf, concerns, steps=steps, suffix=suffix, every=True)


def _argument_fills(decision: str, is_own: IsMeant) -> tuple[Measured, ...]:
    """Make the families of one mask argument: it fills with a number, and the other masks fill with -inf."""

    def kind(prefix: str, suffix: str = "", *, replaces: bool, last: bool = False) -> Measured:
        def steps(number: float) -> StepsMap:
            return filled_with(_within(number), replaces=replaces, is_own=is_own, last=last)

        return _fill(decision, prefix, partial(masks_beside_others, is_own=is_own), steps, suffix)

    return (
        kind("puts_", replaces=True),
        kind("puts_", "_last", replaces=True, last=True),
        kind("adds_", replaces=False),
    )


@cache
def of_argument(slot: str) -> tuple[Measured, ...]:
    """Return the families of a mask argument; those of a causal argument are in MEASURED, whatever it is called."""
    return _argument_fills(f"argument_fill[{slot}]", argument(slot))


MEASURED: tuple[Measured, ...] = (
    _fill("mask_fill", "puts_", _masked, _puts),
    _fill(
        "mask_fill",
        "puts_",
        _has_fully_masked_row,
        lambda number: fully_masked_rows_zero(_puts(number)),
        "_but_fully_masked_rows",
    ),
    _fill("mask_fill", "adds_", _masked, lambda number: filled_with(_within(number))),
    _fill("mask_fill", "adds_", masks_twice, lambda number: filled_with(_within(number), for_each=True), "_for_each"),
    *_argument_fills("causal_fill", is_causal_argument),
    Measured("scale", "times_", FACTORS, 1.0, always, problem=_scale_times),
    Measured("scale", "is_", SCALES, math.nan, always, problem=lambda number: scaled_by(lambda _: number)),
    Measured(
        "scale",
        "over_head_dim_",
        OF_HEAD_DIM,
        math.nan,
        always,
        problem=lambda number: scaled_by(lambda problem: number / problem.head_dim),
    ),
    Measured("softcap", "default_", CAPS, math.inf, _has_no_softcap, problem=capped_by_default, smallest=1e-6),
    Measured("bias_scale", "times_", COUNTS, 1.0, _biased, problem=bias_times),
    Measured("weight_factor", "times_", FACTORS, 1.0, always, steps=weights_times, bounded=False),
    Measured(
        "softmax_denominator",
        "plus_",
        EPSILONS,
        0.0,
        always,
        steps=lambda number: denominator_plus(lambda _: np.asarray(number)),
        smallest=0.0,
        bounded=False,
    ),
    Measured("logit_limit", "", LIMITS, math.inf, always, steps=limited, smallest=0.0, bounded=False),
    Measured(
        "logit_limit",
        "",
        LIMITS,
        math.inf,
        _biased,
        steps=limited_after_bias,
        suffix="_after_bias",
        smallest=0.0,
        bounded=False,
    ),
    Measured(
        "causal_alignment",
        "shifted_",
        SHIFTS,
        0.0,
        _has_causal_argument,
        problem=lambda number: moved_causal(lambda _: int(number)),
        whole=True,
        wording=_shifted,
    ),
)
