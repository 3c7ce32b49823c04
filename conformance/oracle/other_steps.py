"""Variations that take another step on the way: paths of heads and values, the scale."""

from collections.abc import Callable

import numpy as np

from conformance.oracle.pipeline import Steps, replace_step
from conformance.oracle.state import State
from conformance.oracle.steps import merge_heads
from conformance.oracle.variation import HeadsMap, Variation, steps_row
from conformance.spec.problem import Array


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


def _next_head(state: State) -> State:
    return state.but(value=np.roll(state.value, -1, axis=1)) if state.value.shape[1] > 1 else state


def _split_without_transpose(state: State) -> State:
    """Also where the operator takes split heads: an adapter may have to merge them for its framework to split."""
    return state.but(**{name: _reshaped(getattr(state, name)) for name in ("query", "key", "value")})


def _reshaped(split: Array) -> Array:
    """(batch, heads, seq_len, dim) as if (batch, seq_len, heads * dim) had been reshaped to it in one go."""
    return merge_heads(split).reshape(split.shape)


def _tile_heads(steps: Steps, _: str) -> Steps:
    def tile(state: State) -> State:
        repeats = state.problem.num_heads // state.problem.num_kv_heads
        if repeats == 1:
            return state
        return state.but(key=np.tile(state.key, (1, repeats, 1, 1)), value=np.tile(state.value, (1, repeats, 1, 1)))

    return replace_step(steps, "group", tile)


def _values_leak(steps: Steps, _: str) -> Steps:
    def weigh(state: State) -> State:
        return state.but(context=state.probs @ state.value)

    return replace_step(steps, "weigh", weigh)


def _values_leak_where_added(steps: Steps, _: str) -> Steps:
    """A weight of zero times NaN is NaN where -inf is added; what a boolean mask hides is left out."""
    ordinary = next(step.apply for step in steps if step.name == "weigh")
    return replace_step(steps, "weigh", lambda state: ordinary(state.but(bias=None)).but(bias=state.bias))


def _keys_leak(steps: Steps, _: str) -> Steps:
    def mask(state: State) -> State:
        masked = ordinary(state)
        leaking = state.logits + np.where(masked.logits == -np.inf, -np.inf, 0.0)
        return masked.but(logits=np.where(np.isnan(leaking), leaking, masked.logits))

    ordinary = next(step.apply for step in steps if step.name == "mask")
    return replace_step(steps, "mask", mask)


def _keys_leak_where_added(steps: Steps, _: str) -> Steps:
    """NaN and -inf make NaN where they are added; a boolean mask replaces it."""

    def mask(state: State) -> State:
        masked = ordinary(state)
        return masked.but(logits=np.where(np.isnan(state.logits) & state.allowed, np.nan, masked.logits))

    ordinary = next(step.apply for step in steps if step.name == "mask")
    return replace_step(steps, "mask", mask)


def _keys_zero(steps: Steps, score: str) -> Steps:
    def settle(state: State) -> State:
        settled = ordinary(state)
        return settled.but(probs=np.where(np.isnan(settled.probs), 0.0, settled.probs))

    ordinary = next(step.apply for step in steps if step.name == "dead_rows")
    return replace_step(_keys_leak(steps, score), "dead_rows", settle)


def _keys_take_all(steps: Steps, score: str) -> Steps:
    def settle(state: State) -> State:
        settled = ordinary(state)
        alone = np.where(np.isnan(state.logits), np.nan, 0.0)
        return settled.but(probs=np.where(np.isnan(settled.probs), alone, settled.probs))

    ordinary = next(step.apply for step in steps if step.name == "dead_rows")
    return replace_step(_keys_leak(steps, score), "dead_rows", settle)


def _square_root_of_scale(steps: Steps, _: str) -> Steps:
    def scale(state: State) -> State:
        return state.but(scaled=np.full_like(state.products, np.nan)) if state.scale < 0 else ordinary(state)

    ordinary = next(step.apply for step in steps if step.name == "scale")
    return replace_step(steps, "scale", scale)


def _merged_by(steps: Steps, merge: Callable[[State], State]) -> Steps:
    return replace_step(steps, "merge", merge) if any(s.name == "merge" for s in steps) else steps


def heads_row(decision: str, name: str, sentence: str, remedy: str, heads: HeadsMap) -> Variation:
    """One row of the table that acts after projection and split."""
    return Variation(decision, name, sentence, remedy, "heads", heads=heads)


ROWS: tuple[Variation, ...] = (
    heads_row(
        "head_split",
        "untransposed",
        "reshapes positions and heads without a transposition when it splits the heads",
        "",
        _split_without_transpose,
    ),
    heads_row("value_path", "key", "weighs the keys instead of the values", "", _key_as_value),
    heads_row("value_path", "reversed", "weighs the values in reversed order of the keys", "", _reversed_values),
    heads_row("value_path", "next_head", "weighs the values of the next head", "", _next_head),
    steps_row(
        "grouped_heads",
        "tile",
        "shares key and value heads in turn (tile) instead of consecutively (repeat)",
        "permute the query heads",
        _tile_heads,
    ),
    steps_row(
        "scale",
        "square_root",
        "multiplies query and key by the square root of the scale, so that a negative scale gives NaN",
        "negate the query and the scale",
        _square_root_of_scale,
    ),
    steps_row(
        "nonfinite_value",
        "leaks",
        "lets a non-finite value at a masked position reach the output",
        "clean the padding",
        _values_leak,
    ),
    steps_row(
        "nonfinite_value",
        "leaks_where_added",
        "lets a non-finite value reach the output where -inf is added, not where a boolean mask hides it",
        "pass a boolean mask",
        _values_leak_where_added,
    ),
    steps_row(
        "nonfinite_key",
        "leaks",
        "lets a non-finite key at a masked position reach the output",
        "clean the padding",
        _keys_leak,
    ),
    steps_row(
        "nonfinite_key",
        "zeroes",
        "returns zero for a query of which a masked key is not finite",
        "clean the padding",
        _keys_zero,
    ),
    steps_row(
        "nonfinite_key",
        "takes_all",
        "gives a masked key that is not finite a weight of NaN, and every other key none",
        "clean the padding",
        _keys_take_all,
    ),
    steps_row(
        "nonfinite_key",
        "leaks_where_added",
        "lets a non-finite key reach the output where -inf is added, not where a boolean mask hides it",
        "pass a boolean mask",
        _keys_leak_where_added,
    ),
    steps_row(
        "head_merge",
        "interleaved",
        "interleaves the columns of the heads before the output projection",
        "permute the rows of wo",
        lambda steps, _: _merged_by(steps, _interleaved_merge),
    ),
    steps_row(
        "head_merge",
        "untransposed",
        "reshapes heads and positions without a transposition when it merges the heads",
        "",
        lambda steps, _: _merged_by(steps, _merge_without_transpose),
    ),
)
