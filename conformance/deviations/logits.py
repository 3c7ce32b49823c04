"""Deviations of the logits: scale, bias, softcap, limit, and the fill of masked logits."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from operator import is_

import numpy as np

from conformance.deviations.deviation import Deviation, HeadsMap, ProblemMap, each_operand
from conformance.reference.pipeline import (
    Steps,
    StepsMap,
    both,
    following,
    position,
    replace_step,
    replacing,
    wrapping,
)
from conformance.reference.steps import State, attended, softcapped, widened
from conformance.spec.problem import Array, MaskOperand, Problem
from conformance.spec.rounding import largest, round_to

# Name of a fill that is used instead of -inf -> its value in a dtype of the logits.
NUMBERS: dict[str, Callable[[str], float]] = {
    "minus_1e4": lambda _: -1e4,
    "minus_1e9": lambda score: max(-1e9, -largest(score)),
    "minus_65504": lambda _: -largest("float16"),
    "minus_45856": lambda _: -45856.0,
    "finite_minimum": lambda score: -largest(score),
    "plus_1e10": lambda score: min(1e10, largest(score)),
    "zero": lambda _: 0.0,
}
# Fills that replace the logit; the others are added to it.
REPLACING = ("finite_minimum", "plus_1e10", "zero")


def scaled_by(factor: Callable[[Problem], float]) -> ProblemMap:
    """Make a map that replaces the scale of the problem."""

    def apply(problem: Problem) -> Problem:
        scale = factor(problem)
        return problem if scale == problem.applied_scale else problem.but(scale=scale)

    return apply


def _given_times_default(problem: Problem) -> float:
    """Multiply a given scale by 1/sqrt(head_dim), which it should replace."""
    return problem.applied_scale * (1.0 if problem.scale is None else problem.head_dim**-0.5)


def _default_if_zero(problem: Problem) -> float:
    """Take a scale of 0 for no scale, as `scale or default` does in Python."""
    return problem.head_dim**-0.5 if problem.scale == 0 else problem.applied_scale


def _of_padded_head(padded: Callable[[int], int]) -> Callable[[Problem], float]:
    """Use 1/sqrt of the padded head_dim, unless a scale is given."""
    return lambda problem: padded(problem.head_dim) ** -0.5 if problem.scale is None else problem.applied_scale


def _to_multiple(multiple: int, number: int) -> int:
    return -(-number // multiple) * multiple


def _to_power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()


def _of_query_width(problem: Problem, heads: int = 1) -> float:
    """Use 1/sqrt of the query width, or of its share in one of several heads; it differs from a head only in mha."""
    return (problem.query.shape[-1] / heads) ** -0.5 if problem.operator == "mha" else problem.applied_scale


def _to_the_power(power: float, problem: Problem) -> float:
    """Take a power of the scale: NaN for a negative scale."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return float(np.power(np.float64(problem.applied_scale), power))


def _inverted(problem: Problem) -> float:
    return 1.0 / problem.applied_scale if problem.applied_scale else 0.0


def _root_of_scale(state: State, scale: HeadsMap) -> State:
    """Multiply query and key by the root of the scale, which is NaN for a negative scale."""
    return state.but(scaled=np.full_like(state.products, np.nan)) if state.scale < 0 else scale(state)


def bias_times(factor: float) -> ProblemMap:
    """
    Multiply the numbers of additive masks, except -inf.

    Results beyond the range of the dtype become infinite, for example multiples of its lowest number.
    """

    def multiplied(problem: Problem, operand: MaskOperand) -> MaskOperand:
        if operand.element != "float":
            return operand
        values = np.where(operand.values == -np.inf, -np.inf, operand.values * factor)
        over = np.abs(values) > largest(problem.dtype)
        return replace(operand, values=np.where(over, np.copysign(np.inf, values), values))

    return each_operand(multiplied)


def _bias_scaled(problem: Problem) -> Problem:
    """Multiply additive masks by the scale, because they are added before scaling."""
    scale = problem.applied_scale
    return problem if scale == 1.0 or problem.bias() is None else _biases_times(problem, scale)


def _biases_times(problem: Problem, factor: float) -> Problem:
    floats = [
        replace(each, values=each.values * factor) if each.element == "float" else each
        for each in problem.mask_operands
    ]
    return problem.but(mask_operands=tuple(floats))


def _base_two(problem: Problem) -> Problem:
    """Multiply scale, softcap and additive masks by ln 2, since 2^x = e^(x ln 2)."""
    cap = None if problem.softcap is None else problem.softcap * math.log(2)
    return _biases_times(problem, math.log(2)).but(scale=problem.applied_scale * math.log(2), softcap=cap)


def capped_by_default(cap: float) -> ProblemMap:
    """Make a map that applies a softcap where none is requested."""
    return lambda problem: problem.but(softcap=cap) if problem.softcap is None else problem


def _uncapped(problem: Problem) -> Problem:
    return problem if problem.softcap is None else problem.but(softcap=None)


def _capped_before_scale(problem: Problem) -> Problem:
    """Cap before scaling: scale * cap * tanh(products / cap) caps the logits at scale * cap."""
    scale = problem.applied_scale
    return problem if problem.softcap is None or scale in (0.0, 1.0) else problem.but(softcap=problem.softcap * scale)


def _capped_after(step: str) -> StepsMap:
    """Apply the softcap to the logits after another step: a bias of -inf that was added is capped like any number."""

    def late(state: State) -> State:
        limit = state.problem.softcap
        return state if limit is None else state.but(logits=softcapped(state.logits, limit), bias=None)

    return both(_capped_as(lambda scaled, _: scaled), following(step, "late_softcap", late))


def _capped_as(bend: Callable[[Array, float], Array]) -> StepsMap:
    """Use another function instead of cap * tanh(x / cap)."""

    def cap(state: State) -> State:
        limit = state.problem.softcap
        return state.but(capped=state.scaled if limit is None else bend(state.scaled, limit))

    return replacing("softcap", cap)


def limited(limit: float) -> StepsMap:
    """Clip the logits after scale and softcap; masks are applied afterwards as usual."""
    return following("softcap", "limit", lambda state: state.but(capped=np.clip(state.capped, -limit, limit)))


def limited_after_bias(limit: float) -> StepsMap:
    """Clip the sum of logit and bias, except where the bias is -inf."""

    def clip(state: State) -> State:
        clipped = np.clip(state.logits, -limit, limit)
        return state.but(logits=clipped if state.bias is None else np.where(state.bias == -np.inf, -np.inf, clipped))

    return following("bias", "limit", clip)


# Whether a mask operand is meant.
IsMeant = Callable[[MaskOperand], bool]


def filled_with(
    amount: Callable[[str], float],
    *,
    replaces: bool = False,
    is_own: IsMeant | None = None,
    last: bool = True,
    for_each: bool = False,
) -> StepsMap:
    """
    Add a finite number to masked logits, or replace them by it, and round the logits to the score dtype.

    is_own: the operands of the only mask argument that is filled like this, while other boolean masks are applied as
    usual; None for all. last: whether it is filled after the others, so that a key that both mask gets the finite
    number. Additive masks are added before all of them. for_each: whether the number is added once for each mask
    argument that masks the key, so that two finite numbers can be -inf.
    """

    def apply(steps: Steps, score: str) -> Steps:
        ordinary = steps[position(steps, "mask")].apply

        def mask(state: State) -> State:
            fill = float(round_to(np.asarray(amount(score)), score))
            masked = np.asarray(fill if replaces else state.logits + fill)
            for times in range(1, len(state.problem.mask_operands) if for_each else 1):
                again = round_to(masked, score) + fill
                masked = np.where(_times_masked(state) > times, again, masked)
            own, kept = state.allowed, state.logits
            if is_own is not None:
                own, others = _attended_by(state, is_own), _attended_by(state, lambda each: _is_other(each, is_own))
                own, kept = own if last else own | ~others, ordinary(state.but(allowed=others)).logits
            filled = round_to(np.where(own, kept, masked), score)
            return state.but(logits=filled, absorbed=_absorbed(state, filled), passes=not replaces)

        return replace_step(steps, "mask", mask)

    return apply


def _times_masked(state: State) -> Array:
    """Return the number of mask arguments that mask each key of each query, in the shape of the logits."""
    masks = (each for each in state.problem.mask_operands if each.allowed is not None)
    return np.asarray(sum(~_attended_by(state, partial(is_, each)) for each in masks))


def _is_other(operand: MaskOperand, is_own: IsMeant) -> bool:
    """Whether an operand fills logits and belongs to another argument."""
    return operand.allowed is not None and not is_own(operand)


def zero_after_softmax_by_argument(is_own: IsMeant) -> StepsMap:
    """Multiply the weights by one mask argument after the softmax; other masks are applied as usual."""

    def mask(state: State, ordinary: HeadsMap) -> State:
        others = _attended_by(state, lambda each: not is_own(each))
        return ordinary(state.but(allowed=others)).but(allowed=state.allowed)

    def zero(state: State) -> State:
        return state.but(probs=state.probs * _attended_by(state, is_own))

    return both(wrapping("mask", mask), following("softmax", "zero", zero))


def masks_beside_others(problem: Problem, is_own: IsMeant) -> bool:
    """Whether an argument masks keys, and another mask argument is given."""
    owned = [is_own(each) for each in problem.mask_operands]
    return not all(owned) and any(
        own and each.allowed is not None for own, each in zip(owned, problem.mask_operands, strict=True)
    )


def masks_twice(problem: Problem) -> bool:
    """Whether two arguments mask keys."""
    return sum(each.allowed is not None for each in problem.mask_operands) > 1


def is_causal_argument(operand: MaskOperand) -> bool:
    """Whether an operand is a causal argument."""
    return operand.offset is not None


def argument(slot: str) -> IsMeant:
    """Return whether an operand belongs to a mask argument that is no causal argument."""
    return lambda operand: operand.slot == slot and not is_causal_argument(operand)


def _attended_by(state: State, is_meant: IsMeant) -> Array:
    """Return the positions that some of the operands do not mask, in the shape of the logits; True = attend."""
    problem = state.problem
    some = problem.but(mask_operands=tuple(each for each in problem.mask_operands if is_meant(each)))
    return widened(some.attended(), state.logits.shape[-1] - problem.seq_len_k, fill=True)


def fully_masked_rows_zero(fill: StepsMap) -> StepsMap:
    """Apply a fill, and return zeros for fully masked rows."""

    def settle(state: State) -> State:
        return state.but(probs=np.where(state.allowed.any(axis=-1, keepdims=True), state.probs, 0.0))

    return both(fill, following("fully_masked_rows", "zero_fully_masked_rows", settle))


def _times_mask(state: State) -> State:
    """Multiply logits by the mask: a masked logit becomes zero if it is finite, and NaN if it is not."""
    filled = np.where(state.allowed, state.logits, 0.0 * state.logits)
    return state.but(logits=filled, absorbed=_absorbed(state, filled))


def _absorbed(state: State, filled: Array) -> Array:
    """Return the rows without an attended key whose logits are all equal after the fill."""
    unattended = ~state.allowed.any(axis=-1)
    return np.asarray(unattended & (filled.max(axis=-1) == filled.min(axis=-1)) & np.isfinite(filled).all(axis=-1))


def _times_infinity(state: State, mask: HeadsMap) -> State:
    """Make attended logits NaN, as 0 * -inf is; masked logits stay -inf."""
    if not any(operand.allowed is not None for operand in state.problem.mask_operands):
        return mask(state)
    return state.but(logits=np.where(state.allowed, np.nan, -np.inf))


def _times_allowed(state: State) -> State:
    """Multiply the weights by the masks after the softmax; a NaN stays NaN."""
    return state.but(probs=state.probs * state.allowed)


def _fully_masked_rows_unmasked(steps: Steps, score: str) -> Steps:
    """
    Apply no mask to fully masked rows.

    A number that is added to masked logits has this effect too, up to rounding, unless the logits are rounded to a type
    in which they vanish beside it. In float64 they do not.
    """

    def unmask(state: State) -> State:
        if state.passes and score == "float64":
            return state
        fully_masked = ~attended(state).any(axis=-1, keepdims=True)
        return state.but(logits=np.where(fully_masked, state.capped, state.logits))

    return following("mask", "unmask", unmask)(steps, score)


def _scale(name: str, factor: Callable[[Problem], float]) -> Deviation:
    return Deviation("scale", name, problem=scaled_by(factor))


ROWS: tuple[Deviation, ...] = (
    _scale("none", lambda _: 1.0),
    _scale("ignored", lambda p: p.head_dim**-0.5),
    _scale("default_if_zero", _default_if_zero),
    _scale("all_heads", lambda p: (p.num_heads * p.head_dim) ** -0.5),
    _scale("query_dim", _of_query_width),
    _scale("query_dim_per_head", lambda p: _of_query_width(p, p.num_heads)),
    _scale("value_dim", lambda p: p.value_dim**-0.5),
    _scale("seq_len", lambda p: p.seq_len_k**-0.5),
    _scale("seq_len_q", lambda p: p.seq_len_q**-0.5),
    _scale("squared", lambda p: p.applied_scale**2),
    _scale("given_times_default", _given_times_default),
    _scale("inverted", _inverted),
    *(_scale(f"to_the_power_{power}", partial(_to_the_power, power)) for power in (0.5, -0.5)),
    *(_scale(f"padded_{block}", _of_padded_head(partial(_to_multiple, block))) for block in (8, 16, 32, 64, 128)),
    _scale("padded_to_power_of_two", _of_padded_head(_to_power_of_two)),
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
    Deviation(
        "mask_fill",
        "finite_minimum_for_each",
        steps=filled_with(NUMBERS["finite_minimum"], for_each=True),
        distinguishes=masks_twice,
    ),
    Deviation("mask_fill", "times_mask", steps=replacing("mask", _times_mask)),
    Deviation(
        "mask_fill",
        "zero_after_softmax",
        steps=both(replacing("mask", lambda state: state), following("softmax", "zero", _times_allowed)),
    ),
    Deviation(
        "causal_fill",
        "zero_after_softmax",
        steps=zero_after_softmax_by_argument(is_causal_argument),
        distinguishes=partial(masks_beside_others, is_own=is_causal_argument),
    ),
    Deviation("mask_fill", "times_infinity", steps=wrapping("mask", _times_infinity), bounded=False),
    Deviation("fully_masked_row", "unmasked", steps=_fully_masked_rows_unmasked),
)
