"""Deviations of the softmax: its axis, its maximum, its denominator, and fully masked rows."""

import math
from collections.abc import Callable

import numpy as np

from conformance.deviations.deviation import Deviation, HeadsMap
from conformance.reference.pipeline import Steps, StepsMap, following, replace_step, replacing, wrapping
from conformance.reference.steps import State, add_bias, softmax, widened, without_logits
from conformance.spec.masks import as_bool, is_boolean
from conformance.spec.problem import Array
from conformance.spec.rounding import largest, round_to, smallest_subnormal

# The decision of how a backward pass recomputes the weights.
RECOMPUTED = "recomputed_weights"


def _over(*axes: int) -> StepsMap:
    """Make a step map that normalises over other axes."""
    return _composed_softmax(lambda state: state.but(softmax_axes=axes))


def denominator_plus(more: Callable[[Array], Array]) -> StepsMap:
    """Add `more`, a function of the subtracted maximum, to the sum of exponentials; rows then sum to less than one."""
    return _composed_softmax(lambda state: state.but(added=more))


def _composed_softmax(change: HeadsMap) -> StepsMap:
    """Set an operand of the softmax in the state; the softmax uses all of them, so that such deviations combine."""

    def apply(steps: Steps, score: str) -> Steps:
        ordinary = next(step.apply for step in steps if step.name == "softmax")
        normalise = _softmax_of_operands(score) if ordinary is softmax else ordinary
        return replace_step(steps, "softmax", lambda state: normalise(change(state)))

    return apply


def _softmax_of_operands(score: str) -> HeadsMap:
    """Return the softmax with its operands in the state."""

    def normalise(state: State) -> State:
        axes = state.softmax_axes
        if state.subtracted is None and state.added is None and axes == (-1,):
            return softmax(state)
        if state.subtracted is None:
            top = state.logits.max(axis=axes, keepdims=True)
            top = np.where(top == -np.inf, 0.0, top)
            exponentials = np.exp(state.logits - top)
        else:
            top = state.subtracted
            exponentials = round_to(np.exp(state.logits - top), score)
        total = exponentials.sum(axis=axes, keepdims=True) + (0.0 if state.added is None else state.added(top))
        state = state.but(fully_masked=np.all(state.logits == -np.inf, axis=-1))
        empty = np.where(without_logits(state), np.nan, state.underflown)
        probs = np.where(total == 0.0, empty, exponentials / np.where(total == 0.0, 1.0, total))
        return state.but(probs=probs)

    return normalise


def _not_normalised(state: State, ordinary: HeadsMap) -> State:
    """Return exp(logit - maximum of the row) without division by the sum."""
    top = state.logits.max(axis=-1, keepdims=True)
    return ordinary(state).but(probs=np.exp(state.logits - np.where(np.isfinite(top), top, 0.0)))


def _twice(state: State, ordinary: HeadsMap) -> State:
    """Take the softmax twice; a masked key has weight 0 after the first, so it gets e^0 in the second."""
    done = ordinary(state)
    return done.but(probs=ordinary(done.but(logits=done.probs)).probs)


def _without_maximum(underflown: float) -> StepsMap:
    """
    Compute the softmax without subtracting a maximum, in a dtype with a finite range.

    If an exponential overflows, its key gets NaN (infinity / infinity) and the others zero. If only the sum overflows,
    all weights are zero. If all exponentials underflow, all weights are `underflown`.
    """

    def apply(steps: Steps, score: str) -> Steps:
        most, least = math.log(largest(score)), math.log(smallest_subnormal(score))

        def overflowing(state: State) -> State:
            done = softmax(state)
            top = state.logits.max(axis=-1, keepdims=True)
            over = state.logits > most
            total = top + np.log(np.exp(state.logits - top).sum(axis=-1, keepdims=True))
            probs = np.where(total > most, np.where(over, np.nan, 0.0), done.probs)
            return done.but(probs=np.where(top < least, underflown, probs))

        return replace_step(steps, "softmax", overflowing)

    return apply


def _subtracting(peak: Callable[[State], Array], underflown: float) -> StepsMap:
    """
    Subtract a number other than the largest attended logit; weights are the same until exponentials underflow.

    If all exponentials of a row underflow, its weights are `underflown`: NaN (0 / 0), or zero in code that avoids this.
    """

    def change(state: State) -> State:
        top = peak(state)
        if np.all(top == state.logits.max(axis=-1, keepdims=True)):
            return state
        # a NaN maximum makes every logit NaN
        return state.but(subtracted=np.where(np.isinf(top), 0.0, top), underflown=underflown)

    return _composed_softmax(change)


def _peak_of_masked(state: State) -> Array:
    """Return the maximum over all keys, masked ones included, with their bias; a bias of -inf excludes a key."""
    return np.asarray(add_bias(state).logits.max(axis=-1, keepdims=True))


def _peak_from_zero(state: State) -> Array:
    return np.asarray(np.maximum(state.logits.max(axis=-1, keepdims=True), 0.0))


def _peak_of_all(state: State) -> Array:
    return np.asarray(state.logits.max(keepdims=True))


def _fully_masked_rows(weights: Callable[[State], Array | float]) -> StepsMap:
    """Replace the weights of fully masked rows; `weights` is broadcastable to the weights of all rows."""

    def settle(state: State) -> State:
        masked = without_logits(state)
        if not masked.any():
            return state
        return state.but(probs=np.where(masked, weights(state), state.probs), absorbed=state.fully_masked)

    return replacing("fully_masked_rows", settle)


def _equal(state: State) -> float:
    """Return equal weights, which sum to one over the axes of the softmax."""
    number: int = math.prod(state.logits.shape[axis] for axis in state.softmax_axes)
    return 1.0 / number


def _unpadded(state: State) -> Array:
    """Return uniform weights over the unpadded keys, or over all keys of a batch element without any."""
    problem = state.problem
    keys = np.ones(problem.logits_shape, dtype=bool)
    for operand in problem.mask_operands:
        if operand.kinds == ("key_padding",) and is_boolean(operand):
            keys &= as_bool(operand).values != 0
    keys = np.asarray(keys | ~keys.any(axis=-1, keepdims=True))
    keys = widened(keys, state.logits.shape[-1] - keys.shape[-1], fill=True)
    return np.asarray(keys / keys.sum(axis=-1, keepdims=True))


def weights_times(number: float) -> StepsMap:
    """Multiply the weights by a number, such as the share that dropout keeps."""
    return following("fully_masked_rows", "scaled weights", lambda state: state.but(probs=number * state.probs))


def _weights_kept(state: State, ordinary: HeadsMap) -> State:
    """Multiply the weights by 1 - dropout_p at inference, as in the non-inverted dropout of 2012."""
    settled, dropped = ordinary(state), state.problem.dropout_p
    return settled if dropped is None else settled.but(probs=settled.probs * (1.0 - dropped))


def _softmax(decision: str, name: str, steps: StepsMap) -> Deviation:
    return Deviation(decision, name, steps=steps, bounded=False)


ROWS: tuple[Deviation, ...] = (
    Deviation("fully_masked_row", "nan", steps=replacing("fully_masked_rows", lambda state: state)),
    Deviation("fully_masked_row", "uniform", steps=_fully_masked_rows(_equal)),
    Deviation("fully_masked_row", "uniform_unpadded", steps=_fully_masked_rows(_unpadded)),
    Deviation("softmax_axis", "queries", steps=_over(-2)),
    Deviation("softmax_axis", "heads", steps=_over(1)),
    Deviation("softmax_axis", "batch", steps=_over(0)),
    Deviation("softmax_axis", "batch_and_heads", steps=_over(0, 1)),
    Deviation("softmax_axis", "queries_and_keys", steps=_over(-2, -1)),
    Deviation("softmax_axis", "heads_queries_and_keys", steps=_over(1, 2, 3)),
    Deviation("softmax_axis", "all", steps=_over(0, 1, 2, 3)),
    _softmax("softmax_count", "twice", wrapping("softmax", _twice)),
    _softmax("softmax_denominator", "missing", wrapping("softmax", _not_normalised)),
    _softmax("softmax_denominator", "plus_one", denominator_plus(lambda top: np.exp(-top))),
    _softmax("inactive_dropout", "scales_weights", wrapping("fully_masked_rows", _weights_kept)),
    Deviation("softmax_maximum", "missing", steps=_without_maximum(math.nan)),
    Deviation("softmax_maximum", "missing_guarded", steps=_without_maximum(0.0)),
    *(
        _softmax("softmax_maximum", f"{name}{guard}", _subtracting(peak, underflown))
        for name, peak in (
            ("of_masked_keys", _peak_of_masked),
            ("of_all", _peak_of_all),
            ("from_zero", _peak_from_zero),
        )
        for guard, underflown in (("", 0.0), ("_unguarded", math.nan))
    ),
    Deviation(
        RECOMPUTED,
        "unnormalised",
        steps=following("softmax", "recomputed weights", lambda state: state.but(normalises=False)),
    ),
)
