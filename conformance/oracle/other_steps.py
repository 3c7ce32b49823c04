"""Variations that take another step on the way: other fills, dead rows, axes, and paths of heads and values."""

from collections.abc import Callable

import numpy as np

from conformance.oracle.steps import State, Step, Steps, insert_after, replace_step
from conformance.oracle.variation import HeadsMap, StepsMap, Variation
from conformance.spec.problem import Array
from conformance.spec.rounding import largest, round_to


def _interleaved_merge(state: State) -> State:
    batch, heads, length, dim = state.context.shape
    return state.but(output=state.context.transpose(0, 2, 3, 1).reshape(batch, length, heads * dim))


def _merge_without_transpose(state: State) -> State:
    batch, heads, length, dim = state.context.shape
    return state.but(output=state.context.reshape(batch, length, heads * dim))


def _key_as_value(state: State) -> State:
    return state.but(value=state.key) if state.key.shape == state.value.shape else state


def _reversed_values(state: State) -> State:
    return state.but(value=state.value[:, :, ::-1]) if state.value.shape[2] > 1 else state


def _tile_heads(steps: Steps, _: str) -> Steps:
    def tile(state: State) -> State:
        repeats = state.problem.num_heads // state.problem.num_kv_heads
        if repeats == 1:
            return state
        return state.but(key=np.tile(state.key, (1, repeats, 1, 1)), value=np.tile(state.value, (1, repeats, 1, 1)))

    return replace_step(steps, "group", tile)


def _fill(amount: Callable[[str], float], *, replaces: bool = False) -> Callable[[Steps, str], Steps]:
    """Masked logits get a finite number, added or put in place, and are rounded to the score dtype."""

    def apply(steps: Steps, score: str) -> Steps:
        def mask(state: State) -> State:
            fill = float(round_to(np.asarray(amount(score)), score))
            with np.errstate(invalid="ignore"):
                under = fill if replaces else state.logits + fill
            filled = round_to(np.where(state.allowed, state.logits, under), score)
            return state.but(logits=filled, absorbed=_absorbed(state, filled))

        return replace_step(steps, "mask", mask)

    return apply


def _absorbed(state: State, filled: Array) -> Array:
    """Rows without an attended key whose logits the fill made equal."""
    none = ~state.allowed.any(axis=-1)
    return np.asarray(none & (filled.max(axis=-1) == filled.min(axis=-1)) & np.isfinite(filled).all(axis=-1))


def _dead_rows_nan(steps: Steps, _: str) -> Steps:
    return replace_step(steps, "dead_rows", lambda state: state)


def _dead_rows_uniform(steps: Steps, _: str) -> Steps:
    def uniform(state: State) -> State:
        probs = np.where(state.dead[..., None], 1.0 / state.logits.shape[-1], state.probs)
        return state.but(probs=probs, absorbed=state.dead)

    return replace_step(steps, "dead_rows", uniform)


def _dead_rows_unmasked(steps: Steps, _: str) -> Steps:
    def mask(state: State) -> State:
        attended = state.allowed if state.bias is None else state.allowed & (state.bias != -np.inf)
        dead = ~attended.any(axis=-1, keepdims=True)
        logits = np.where(attended | dead, state.scaled if state.bias is None else state.logits, -np.inf)
        return state.but(logits=np.where(dead, state.scaled, logits))

    return replace_step(steps, "mask", mask)


def _zero_after_softmax(steps: Steps, _: str) -> Steps:
    def zero(state: State) -> State:
        return state.but(probs=np.where(state.allowed, state.probs, 0.0))

    unmasked = replace_step(steps, "mask", lambda state: state)
    return insert_after(unmasked, "softmax", Step("zero", zero))


def _softmax_over(axis: int) -> Callable[[Steps, str], Steps]:
    def apply(steps: Steps, _: str) -> Steps:
        def softmax(state: State) -> State:
            dead = np.all(state.logits == -np.inf, axis=-1)
            top = state.logits.max(axis=axis, keepdims=True)
            exponentials = np.exp(state.logits - np.where(np.isfinite(top), top, 0.0))
            with np.errstate(invalid="ignore"):
                probs = exponentials / exponentials.sum(axis=axis, keepdims=True)
            return state.but(probs=np.nan_to_num(probs), dead=dead)

        return replace_step(steps, "softmax", softmax)

    return apply


def _values_leak(steps: Steps, _: str) -> Steps:
    def weigh(state: State) -> State:
        with np.errstate(invalid="ignore"):
            return state.but(context=state.probs @ state.value)

    return replace_step(steps, "weigh", weigh)


def _square_root_of_scale(steps: Steps, _: str) -> Steps:
    def scale(state: State) -> State:
        return state.but(scaled=np.full_like(state.products, np.nan)) if state.scale < 0 else ordinary(state)

    ordinary = next(step.apply for step in steps if step.name == "scale")
    return replace_step(steps, "scale", scale)


def _weights_before_softmax(steps: Steps, _: str) -> Steps:
    return replace_step(steps, "weights", lambda state: state.but(weights=state.scaled))


_NUMBERS: dict[str, Callable[[str], float]] = {
    "minus_1e4": lambda _: -1e4,
    "minus_1e9": lambda score: max(-1e9, -largest(score)),
    "minus_65504": lambda _: -largest("float16"),
    "minus_45856": lambda _: -45856.0,
    "finite_minimum": lambda score: -largest(score),
    "plus_1e10": lambda score: min(1e10, largest(score)),
}


def _merged_by(steps: Steps, merge: Callable[[State], State]) -> Steps:
    return replace_step(steps, "merge", merge) if any(s.name == "merge" for s in steps) else steps


def row(decision: str, name: str, sentence: str, remedy: str, steps: StepsMap) -> Variation:
    """One row of the table."""
    return Variation(decision, name, sentence, remedy, "steps", steps=steps)


def heads_row(decision: str, name: str, sentence: str, remedy: str, heads: HeadsMap) -> Variation:
    """One row of the table that acts after projection and split."""
    return Variation(decision, name, sentence, remedy, "heads", heads=heads)


ROWS: tuple[Variation, ...] = (
    heads_row("value_path", "key", "weighs the keys instead of the values", "", _key_as_value),
    heads_row("value_path", "reversed", "weighs the values in reversed order of the keys", "", _reversed_values),
    row(
        "grouped_heads",
        "tile",
        "shares key and value heads in turn (tile) instead of consecutively (repeat)",
        "permute the query heads",
        _tile_heads,
    ),
    row(
        "scale",
        "square_root",
        "multiplies query and key by the square root of the scale, so that a negative scale gives NaN",
        "negate the query and the scale",
        _square_root_of_scale,
    ),
    row("fully_masked_row", "nan", "returns NaN for a fully masked row", "replace those rows yourself", _dead_rows_nan),
    row(
        "fully_masked_row",
        "uniform",
        "returns the mean of all values for a fully masked row",
        "zero those rows yourself",
        _dead_rows_uniform,
    ),
    row(
        "fully_masked_row",
        "unmasked",
        "ignores the mask in a fully masked row",
        "zero those rows yourself",
        _dead_rows_unmasked,
    ),
    row(
        "mask_fill",
        "minus_1e4",
        "adds -1e4 where masked: a large logit still wins",
        "keep logits small",
        _fill(_NUMBERS["minus_1e4"]),
    ),
    row("mask_fill", "minus_1e9", "adds -1e9 where masked", "keep logits small", _fill(_NUMBERS["minus_1e9"])),
    row(
        "mask_fill",
        "minus_65504",
        "adds -65504, the most negative float16, where masked: in wider logits nothing is swallowed",
        "zero fully masked rows yourself",
        _fill(_NUMBERS["minus_65504"]),
    ),
    row(
        "mask_fill",
        "minus_45856",
        "adds -45856, 0.7 of the most negative float16, where masked: in wider logits nothing is swallowed",
        "zero fully masked rows yourself",
        _fill(_NUMBERS["minus_45856"]),
    ),
    row(
        "mask_fill",
        "finite_minimum",
        "puts the most negative finite number where masked",
        "avoid fully masked rows",
        _fill(_NUMBERS["finite_minimum"], replaces=True),
    ),
    row(
        "mask_fill",
        "plus_1e10",
        "puts +1e10 where masked: masked keys win",
        "",
        _fill(_NUMBERS["plus_1e10"], replaces=True),
    ),
    row(
        "mask_fill",
        "zero_after_softmax",
        "zeroes masked weights after the softmax, so that rows do not sum to one",
        "",
        _zero_after_softmax,
    ),
    row("softmax_axis", "queries", "normalises over the queries", "", _softmax_over(-2)),
    row("softmax_axis", "heads", "normalises over the heads", "", _softmax_over(1)),
    row(
        "nonfinite_value",
        "leaks",
        "lets a non-finite value at a masked position reach the output",
        "clean the padding",
        _values_leak,
    ),
    row(
        "head_merge",
        "interleaved",
        "interleaves the columns of the heads before the output projection",
        "permute the rows of wo",
        lambda steps, _: _merged_by(steps, _interleaved_merge),
    ),
    row(
        "head_merge",
        "untransposed",
        "reshapes heads and positions without a transposition",
        "",
        lambda steps, _: _merged_by(steps, _merge_without_transpose),
    ),
    row(
        "returned_weights",
        "before_softmax",
        "returns the scaled products as weights, before bias, mask and softmax",
        "apply the softmax yourself",
        _weights_before_softmax,
    ),
)
