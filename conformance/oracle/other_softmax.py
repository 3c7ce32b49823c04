"""Variations of the softmax: its axis, its denominator, and rows that have nothing to attend."""

from collections.abc import Callable

import numpy as np

from conformance.oracle.pipeline import Steps, replace_step
from conformance.oracle.state import State
from conformance.oracle.steps import attended, widened
from conformance.oracle.variation import StepsMap, Variation, steps_row
from conformance.spec.masks import as_bool, is_boolean
from conformance.spec.problem import Array, Problem


def _dead_rows_nan(steps: Steps, _: str) -> Steps:
    return replace_step(steps, "dead_rows", lambda state: state)


def _dead_rows_uniform(steps: Steps, _: str) -> Steps:
    def uniform(state: State) -> State:
        probs = np.where(state.dead[..., None], 1.0 / state.logits.shape[-1], state.probs)
        return state.but(probs=probs, absorbed=state.dead)

    return replace_step(steps, "dead_rows", uniform)


def _dead_rows_uniform_unpadded(steps: Steps, _: str) -> Steps:
    def uniform(state: State) -> State:
        if not state.dead.any():
            return state
        keys = _unpadded(state.problem)
        keys = widened(keys, state.logits.shape[-1] - keys.shape[-1], fill=True)
        probs = np.where(state.dead[..., None], keys / keys.sum(axis=-1, keepdims=True), state.probs)
        return state.but(probs=probs, absorbed=state.dead)

    return replace_step(steps, "dead_rows", uniform)


def _unpadded(problem: Problem) -> Array:
    """Keys that are not padded, all keys of an item without any; True = not padded, shape of the logits."""
    keys = np.ones(problem.logits_shape, dtype=bool)
    for group in problem.groups:
        if group.kinds == ("key_padding",) and is_boolean(group):
            keys &= as_bool(group).values != 0
    return np.asarray(keys | ~keys.any(axis=-1, keepdims=True))


def _dead_rows_unmasked(steps: Steps, _: str) -> Steps:
    def mask(state: State) -> State:
        seen = attended(state)
        dead = ~seen.any(axis=-1, keepdims=True)
        logits = np.where(seen | dead, state.capped if state.bias is None else state.logits, -np.inf)
        return state.but(logits=np.where(dead, state.capped, logits))

    return replace_step(steps, "mask", mask)


def _softmax_over(axis: int | tuple[int, ...]) -> Callable[[Steps, str], Steps]:
    def apply(steps: Steps, _: str) -> Steps:
        def softmax(state: State) -> State:
            dead = np.all(state.logits == -np.inf, axis=-1)
            top = state.logits.max(axis=axis, keepdims=True)
            exponentials = np.exp(state.logits - np.where(np.isfinite(top), top, 0.0))
            total = exponentials.sum(axis=axis, keepdims=True)
            probs = np.where(total == 0.0, 0.0, exponentials / total)
            return state.but(probs=probs, dead=dead)

        return replace_step(steps, "softmax", softmax)

    return apply


def _denominator(more: Callable[[Array], Array]) -> StepsMap:
    """Add `more`, of the logit that is subtracted, to the sum of exponentials; rows then sum to less than one."""

    def apply(steps: Steps, _: str) -> Steps:
        def softmax(state: State) -> State:
            dead = np.all(state.logits == -np.inf, axis=-1)
            top = np.where(dead[..., None], 0.0, state.logits.max(axis=-1, keepdims=True))
            exponentials = np.exp(state.logits - top)
            probs = exponentials / (exponentials.sum(axis=-1, keepdims=True) + more(top))
            return state.but(probs=probs, dead=dead)

        return replace_step(steps, "softmax", softmax)

    return apply


def _not_normalised(steps: Steps, _: str) -> Steps:
    """The exponentials of what is below the maximum of a row, as they are."""

    def raw(state: State) -> State:
        done = ordinary(state)
        top = state.logits.max(axis=-1, keepdims=True)
        return done.but(probs=np.exp(state.logits - np.where(np.isfinite(top), top, 0.0)))

    ordinary = next(step.apply for step in steps if step.name == "softmax")
    return replace_step(steps, "softmax", raw)


def _twice(steps: Steps, _: str) -> Steps:
    """What a mask hid has a weight of zero the first time, and e^0 the second."""

    def again(state: State) -> State:
        done = ordinary(state)
        return done.but(probs=ordinary(done.but(logits=done.probs)).probs)

    ordinary = next(step.apply for step in steps if step.name == "softmax")
    return replace_step(steps, "softmax", again)


def denominator_row(name: str, sentence: str, more: Callable[[Array], Array]) -> Variation:
    """One row of the table that changes the denominator."""
    return Variation("softmax_denominator", name, sentence, "", "steps", steps=_denominator(more), bounded=False)


def _weights_kept(steps: Steps, _: str) -> Steps:
    """The dropout of 2012, before it was inverted: inference multiplies by the probability of being kept."""

    def settle(state: State) -> State:
        settled, dropped = ordinary(state), state.problem.dropout_p
        return settled if dropped is None else settled.but(probs=settled.probs * (1.0 - dropped))

    ordinary = next(step.apply for step in steps if step.name == "dead_rows")
    return replace_step(steps, "dead_rows", settle)


ROWS: tuple[Variation, ...] = (
    steps_row(
        "fully_masked_row", "nan", "returns NaN for a fully masked row", "replace those rows yourself", _dead_rows_nan
    ),
    steps_row(
        "fully_masked_row",
        "uniform",
        "returns the mean of all values for a fully masked row",
        "zero those rows yourself",
        _dead_rows_uniform,
    ),
    steps_row(
        "fully_masked_row",
        "unmasked",
        "ignores the mask in a fully masked row",
        "zero those rows yourself",
        _dead_rows_unmasked,
    ),
    steps_row(
        "fully_masked_row",
        "uniform_unpadded",
        "returns the mean of the values that are not padded for a fully masked row",
        "zero those rows yourself",
        _dead_rows_uniform_unpadded,
    ),
    steps_row("softmax_axis", "queries", "normalises over the queries", "", _softmax_over(-2)),
    steps_row("softmax_axis", "heads", "normalises over the heads", "", _softmax_over(1)),
    steps_row("softmax_axis", "items", "normalises over the items of the batch", "", _softmax_over(0)),
    steps_row("softmax_axis", "items_and_heads", "normalises over items and heads together", "", _softmax_over((0, 1))),
    steps_row(
        "softmax_axis", "queries_and_keys", "normalises over queries and keys together", "", _softmax_over((-2, -1))
    ),
    Variation("softmax_count", "twice", "takes the softmax twice", "", "steps", steps=_twice, bounded=False),
    Variation(
        "softmax_denominator",
        "missing",
        "does not divide the exponentials by their sum",
        "",
        "steps",
        steps=_not_normalised,
        bounded=False,
    ),
    Variation(
        "inactive_dropout",
        "scales_weights",
        "multiplies the weights by 1 - dropout_p at inference",
        "set the dropout to 0",
        "steps",
        steps=_weights_kept,
        bounded=False,
    ),
    denominator_row(
        "plus_one",
        "adds a key of zeros without a value, that is one, to the denominator of the softmax",
        lambda top: np.exp(-top),
    ),
)
