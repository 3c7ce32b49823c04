"""Deviations of what becomes of a logit: scale, bias, softcap, limit, and what fills it where masked."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from conformance.deviations.deviation import Deviation, HeadsMap, ProblemMap, each_operand
from conformance.reference.pipeline import (
    Step,
    Steps,
    StepsMap,
    following,
    insert_after,
    replace_step,
    replacing,
    wrapping,
)
from conformance.reference.steps import State, attended, bent
from conformance.spec.problem import Array, MaskOperand, Problem
from conformance.spec.rounding import largest, round_to

# Numbers that stand in place of -inf -> the number in a dtype of logits.
NUMBERS: dict[str, Callable[[str], float]] = {
    "minus_1e4": lambda _: -1e4,
    "minus_1e9": lambda score: max(-1e9, -largest(score)),
    "minus_65504": lambda _: -largest("float16"),
    "minus_45856": lambda _: -45856.0,
    "finite_minimum": lambda score: -largest(score),
    "plus_1e10": lambda score: min(1e10, largest(score)),
    "zero": lambda _: 0.0,
}
# Those that are put there; the others are added.
REPLACING = ("finite_minimum", "plus_1e10", "zero")


def scaled_by(factor: Callable[[Problem], float]) -> ProblemMap:
    """Put another scale in place of that of the problem."""

    def apply(problem: Problem) -> Problem:
        scale = factor(problem)
        return problem if scale == problem.applied_scale else problem.but(scale=scale)

    return apply


def _given_times_default(problem: Problem) -> float:
    """Multiply a scale that is given with 1/sqrt(head_dim), which it should replace."""
    return problem.applied_scale * (1.0 if problem.scale is None else problem.head_dim**-0.5)


def _of_query_width(problem: Problem) -> float:
    """A layer's query is wider than a head; elsewhere nothing changes."""
    return problem.query.shape[-1] ** -0.5 if problem.operator == "mha" else problem.applied_scale


def _inverted(problem: Problem) -> float:
    return 1.0 / problem.applied_scale if problem.applied_scale else 0.0


def _root_of_scale(state: State, scale: HeadsMap) -> State:
    """Query and key are each multiplied by the root, which a negative scale does not have."""
    return state.but(scaled=np.full_like(state.products, np.nan)) if state.scale < 0 else scale(state)


def bias_times(factor: float) -> ProblemMap:
    """
    Multiply what is added, but what masks (-inf).

    Numbers that the dtype does not hold are infinite then, as the lowest one would be.
    """

    def multiplied(problem: Problem, operand: MaskOperand) -> MaskOperand:
        if operand.element != "float":
            return operand
        values = np.where(operand.values == -np.inf, -np.inf, operand.values * factor)
        over = np.abs(values) > largest(problem.dtype)
        return replace(operand, values=np.where(over, np.copysign(np.inf, values), values))

    return each_operand(multiplied)


def _bias_scaled(problem: Problem) -> Problem:
    """Multiply what is added by the scale: it is added before."""
    scale = problem.applied_scale
    return problem if scale == 1.0 or problem.bias() is None else _biases_times(problem, scale)


def _biases_times(problem: Problem, factor: float) -> Problem:
    floats = [
        replace(each, values=each.values * factor) if each.element == "float" else each
        for each in problem.mask_operands
    ]
    return problem.but(mask_operands=tuple(floats))


def _base_two(problem: Problem) -> Problem:
    """2^x = e^(x ln 2): scale, cap and what is added are multiplied by ln 2."""
    cap = None if problem.softcap is None else problem.softcap * math.log(2)
    return _biases_times(problem, math.log(2)).but(scale=problem.applied_scale * math.log(2), softcap=cap)


def _uncapped(problem: Problem) -> Problem:
    return problem if problem.softcap is None else problem.but(softcap=None)


def _capped_before_scale(problem: Problem) -> Problem:
    """Cap the products: scale * cap * tanh(products / cap) is the cap of the logits by scale * cap."""
    scale = problem.applied_scale
    return problem if problem.softcap is None or scale in (0.0, 1.0) else problem.but(softcap=problem.softcap * scale)


def _capped_after(step: str) -> StepsMap:
    """Cap what another step made of the logits."""

    def late(state: State) -> State:
        limit = state.problem.softcap
        return state if limit is None else state.but(logits=bent(state.logits, limit))

    def apply(steps: Steps, _: str) -> Steps:
        uncapped = replace_step(steps, "softcap", lambda state: state.but(capped=state.scaled))
        return insert_after(uncapped, step, Step("late_softcap", late))

    return apply


def _capped_as(bend: Callable[[Array, float], Array]) -> StepsMap:
    """Another function in place of cap * tanh(x / cap)."""

    def cap(state: State) -> State:
        limit = state.problem.softcap
        return state.but(capped=state.scaled if limit is None else bend(state.scaled, limit))

    return replacing("softcap", cap)


def limited(limit: float) -> StepsMap:
    """Cut off what the scale and a softcap leave; a mask hides as before."""
    return following("softcap", "limit", lambda state: state.but(capped=np.clip(state.capped, -limit, limit)))


def limited_after_bias(limit: float) -> StepsMap:
    """Cut off the sum of logit and bias, but -inf, which masks."""

    def clipped(state: State) -> State:
        cut = np.clip(state.logits, -limit, limit)
        return state.but(logits=cut if state.bias is None else np.where(state.bias == -np.inf, -np.inf, cut))

    return following("bias", "limit", clipped)


def filled_with(amount: Callable[[str], float], *, replaces: bool = False) -> StepsMap:
    """Masked logits get a finite number, added or put in place, and are rounded to the score dtype."""

    def apply(steps: Steps, score: str) -> Steps:
        def mask(state: State) -> State:
            fill = float(round_to(np.asarray(amount(score)), score))
            under = fill if replaces else state.logits + fill
            filled = round_to(np.where(state.allowed, state.logits, under), score)
            return state.but(logits=filled, absorbed=_absorbed(state, filled), passes=not replaces)

        return replace_step(steps, "mask", mask)

    return apply


def fully_masked_rows_zero(fill: StepsMap) -> StepsMap:
    """The same fill, and zeros for rows with nothing to attend."""

    def settle(state: State) -> State:
        return state.but(probs=np.where(state.allowed.any(axis=-1, keepdims=True), state.probs, 0.0))

    return lambda steps, score: insert_after(fill(steps, score), "dead_rows", Step("zero_dead_rows", settle))


def _times_mask(state: State) -> State:
    """Logits are multiplied by the mask: zero where it hides a number, NaN where it hides none."""
    filled = np.where(state.allowed, state.logits, 0.0 * state.logits)
    return state.but(logits=filled, absorbed=_absorbed(state, filled))


def _absorbed(state: State, filled: Array) -> Array:
    """Rows without an attended key whose logits the fill made equal."""
    none = ~state.allowed.any(axis=-1)
    return np.asarray(none & (filled.max(axis=-1) == filled.min(axis=-1)) & np.isfinite(filled).all(axis=-1))


def _times_infinity(state: State, mask: HeadsMap) -> State:
    """0 * -inf is no number, so what is attended is lost; -inf stays where masked."""
    if not any(operand.allowed is not None for operand in state.problem.mask_operands):
        return mask(state)
    return state.but(logits=np.where(state.allowed, np.nan, -np.inf))


def _zero_after_softmax(steps: Steps, _: str) -> Steps:
    def zero(state: State) -> State:
        return state.but(probs=np.where(state.allowed, state.probs, 0.0))

    return insert_after(replace_step(steps, "mask", lambda state: state), "softmax", Step("zero", zero))


def _fully_masked_rows_unmasked(state: State) -> State:
    seen = attended(state)
    fully_masked = ~seen.any(axis=-1, keepdims=True)
    logits = np.where(seen | fully_masked, state.capped if state.bias is None else state.logits, -np.inf)
    return state.but(logits=np.where(fully_masked, state.capped, logits))


def _scale(name: str, factor: Callable[[Problem], float]) -> Deviation:
    return Deviation("scale", name, problem=scaled_by(factor))


ROWS: tuple[Deviation, ...] = (
    _scale("none", lambda _: 1.0),
    _scale("ignored", lambda p: p.head_dim**-0.5),
    _scale("all_heads", lambda p: (p.num_heads * p.head_dim) ** -0.5),
    _scale("query_dim", _of_query_width),
    _scale("value_dim", lambda p: p.value_dim**-0.5),
    _scale("seq_len", lambda p: p.seq_len_k**-0.5),
    _scale("squared", lambda p: p.applied_scale**2),
    _scale("given_times_default", _given_times_default),
    _scale("inverted", _inverted),
    Deviation("scale", "square_root", steps=wrapping("scale", _root_of_scale)),
    Deviation("bias_scale", "scaled", problem=_bias_scaled),
    Deviation("bias_scale", "doubled", problem=bias_times(2)),
    Deviation("softmax_base", "two", problem=_base_two),
    Deviation("softcap", "ignored", problem=_uncapped),
    Deviation("softcap", "before_scale", problem=_capped_before_scale),
    Deviation("softcap", "after_bias", steps=_capped_after("bias"), bounded=False),
    Deviation("softcap", "after_mask", steps=_capped_after("mask"), bounded=False),
    Deviation("softcap", "unmultiplied", steps=_capped_as(lambda x, cap: np.tanh(x / cap)), bounded=False),
    Deviation("softcap", "undivided", steps=_capped_as(lambda x, cap: np.tanh(x) * cap), bounded=False),
    *(
        Deviation("mask_fill", name, steps=filled_with(number, replaces=name in REPLACING))
        for name, number in NUMBERS.items()
    ),
    Deviation("mask_fill", "times_mask", steps=replacing("mask", _times_mask)),
    Deviation("mask_fill", "zero_after_softmax", steps=_zero_after_softmax),
    Deviation("mask_fill", "times_infinity", steps=wrapping("mask", _times_infinity), bounded=False),
    Deviation("fully_masked_row", "unmasked", steps=replacing("mask", _fully_masked_rows_unmasked)),
)
