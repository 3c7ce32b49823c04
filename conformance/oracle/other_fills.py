"""Variations that put something else than -inf where masked, or elsewhere on the way."""

from collections.abc import Callable

import numpy as np

from conformance.oracle.pipeline import Step, Steps, insert_after, replace_step
from conformance.oracle.state import State
from conformance.oracle.variation import StepsMap, Variation, steps_row
from conformance.spec.problem import Array
from conformance.spec.rounding import largest, round_to


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


def dead_rows_zero(fill: StepsMap) -> StepsMap:
    """The same fill, and zeros for rows with nothing to attend."""

    def settle(state: State) -> State:
        return state.but(probs=np.where(state.allowed.any(axis=-1, keepdims=True), state.probs, 0.0))

    return lambda steps, score: insert_after(fill(steps, score), "dead_rows", Step("zero_dead_rows", settle))


def _times_mask(steps: Steps, _: str) -> Steps:
    """Logits are multiplied by the mask: zero where it hides a number, NaN where it hides none."""

    def mask(state: State) -> State:
        filled = np.where(state.allowed, state.logits, 0.0 * state.logits)
        return state.but(logits=filled, absorbed=_absorbed(state, filled))

    return replace_step(steps, "mask", mask)


def _absorbed(state: State, filled: Array) -> Array:
    """Rows without an attended key whose logits the fill made equal."""
    none = ~state.allowed.any(axis=-1)
    return np.asarray(none & (filled.max(axis=-1) == filled.min(axis=-1)) & np.isfinite(filled).all(axis=-1))


def _zero_after_softmax(steps: Steps, _: str) -> Steps:
    def zero(state: State) -> State:
        return state.but(probs=np.where(state.allowed, state.probs, 0.0))

    unmasked = replace_step(steps, "mask", lambda state: state)
    return insert_after(unmasked, "softmax", Step("zero", zero))


_NUMBERS: dict[str, Callable[[str], float]] = {
    "minus_1e4": lambda _: -1e4,
    "minus_1e9": lambda score: max(-1e9, -largest(score)),
    "minus_65504": lambda _: -largest("float16"),
    "minus_45856": lambda _: -45856.0,
    "finite_minimum": lambda score: -largest(score),
    "plus_1e10": lambda score: min(1e10, largest(score)),
    "zero": lambda _: 0.0,
}


ROWS: tuple[Variation, ...] = (
    steps_row(
        "mask_fill",
        "minus_1e4",
        "adds -1e4 where masked: a large logit still wins",
        "keep logits small",
        filled_with(_NUMBERS["minus_1e4"]),
    ),
    steps_row(
        "mask_fill", "minus_1e9", "adds -1e9 where masked", "keep logits small", filled_with(_NUMBERS["minus_1e9"])
    ),
    steps_row(
        "mask_fill",
        "minus_65504",
        "adds -65504, the most negative float16, where masked: in wider logits nothing is swallowed",
        "zero fully masked rows yourself",
        filled_with(_NUMBERS["minus_65504"]),
    ),
    steps_row(
        "mask_fill",
        "minus_45856",
        "adds -45856, 0.7 of the most negative float16, where masked: in wider logits nothing is swallowed",
        "zero fully masked rows yourself",
        filled_with(_NUMBERS["minus_45856"]),
    ),
    steps_row(
        "mask_fill",
        "finite_minimum",
        "puts the most negative finite number where masked",
        "avoid fully masked rows",
        filled_with(_NUMBERS["finite_minimum"], replaces=True),
    ),
    steps_row(
        "mask_fill",
        "plus_1e10",
        "puts +1e10 where masked: masked keys win",
        "",
        filled_with(_NUMBERS["plus_1e10"], replaces=True),
    ),
    steps_row(
        "mask_fill",
        "zero",
        "puts zero where masked, which is a logit like others",
        "",
        filled_with(_NUMBERS["zero"], replaces=True),
    ),
    steps_row(
        "mask_fill",
        "times_mask",
        "multiplies the logits by the mask: zero is a logit like others",
        "",
        _times_mask,
    ),
    steps_row(
        "mask_fill",
        "zero_after_softmax",
        "zeroes masked weights after the softmax, so that rows do not sum to one",
        "",
        _zero_after_softmax,
    ),
)
