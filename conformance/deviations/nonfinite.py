"""Deviations of non-finite numbers: masked ones that leak, and attended ones that are replaced."""

from collections.abc import Callable, Iterator
from functools import lru_cache, partial

import numpy as np

from conformance.deviations.deviation import Deviation, HeadsMap
from conformance.reference.pipeline import Step, StepsMap, both, following, wrapping
from conformance.reference.steps import State
from conformance.spec.problem import Array, Problem
from conformance.spec.rounding import largest

DECISION = "attended_nonfinite"

# The decisions about NaN and infinity at a masked key.
OF_MASKED_NAN = ("nonfinite_key", "nonfinite_value")

# Numbers and their dtype -> the same numbers with non-finite ones replaced.
Cleaning = Callable[[Array, str], Array]


# The suffix of deviations that follow from adding -inf to a logit that is NaN.
WHERE_ADDED = "_where_added"


@lru_cache(maxsize=16)
def _may_be_nonfinite(problem: Problem) -> bool:
    """
    Whether logits or values may be NaN or infinite: an input is, or the scale has no square root or no inverse.

    A bias of -inf is a mask.
    """
    bias = problem.bias()
    inputs = (problem.query, problem.key, problem.value, *problem.params.values())
    added = () if bias is None else (np.where(bias == -np.inf, 0.0, bias),)
    return problem.applied_scale <= 0.0 or not all(np.isfinite(array).all() for array in (*inputs, *added))


def _zeroed(values: Array, _: str) -> Array:
    return np.where(np.isfinite(values), values, 0.0)


def _nan_zeroed(values: Array, _: str) -> Array:
    return np.where(np.isnan(values), 0.0, values)


def _clipped(values: Array, dtype: str) -> Array:
    """Replace non-finite numbers like numpy.nan_to_num and torch.nan_to_num."""
    return np.asarray(np.nan_to_num(values, nan=0.0, posinf=largest(dtype), neginf=-largest(dtype)))


def _of_input(name: str, cleaned: Cleaning, problem: Problem) -> Problem:
    """Clean the input key or value; the same problem if it is finite."""
    array: Array = getattr(problem, name)
    return problem if np.isfinite(array).all() else problem.but(**{name: cleaned(array, problem.dtype)})


def _of_output(cleaned: Cleaning) -> StepsMap:
    def clean(state: State) -> State:
        return state.but(output=cleaned(state.output, state.problem.dtype))

    return lambda steps, _: (*steps, Step("clean", clean))


def _nan_row_zeroed(state: State) -> State:
    """Zero rows whose attended logits are all NaN: a maximum that skips NaN is -inf there, as in a fully masked row."""
    numbers = (state.logits > -np.inf).any(axis=-1, keepdims=True)
    return state.but(probs=np.where(np.isnan(state.probs) & ~numbers, 0.0, state.probs))


def _nan_weights_zeroed(state: State) -> State:
    """Zero rows with a NaN weight: code that guards the division by `total > 0`, or takes nan_to_num of the weights."""
    return state.but(probs=np.where(np.isnan(state.probs), 0.0, state.probs))


def _values_leak(state: State, weigh: HeadsMap) -> State:
    """Multiply all values by their weights: 0 * NaN is NaN."""
    weighed, leaking = weigh(state), state.probs @ state.value
    return weighed.but(context=np.where(np.isfinite(leaking), weighed.context, leaking))


def _values_leak_where_added(state: State, weigh: HeadsMap) -> State:
    """Let values leak where -inf is added (0 * NaN is NaN); values under a boolean mask are left out."""
    return weigh(state.but(bias=None)).but(bias=state.bias)


def _keys_leak(state: State, mask: HeadsMap) -> State:
    """Add -inf instead of replacing the logit by it: NaN and +inf become NaN."""
    masked = mask(state)
    return masked.but(logits=np.where(masked.logits == -np.inf, state.logits - np.inf, masked.logits))


def _keys_leak_where_added(state: State, mask: HeadsMap) -> State:
    """Let keys leak where -inf is added to NaN; a boolean mask replaces the logit instead."""
    masked = mask(state)
    return masked.but(logits=np.where(np.isnan(state.logits) & state.allowed, np.nan, masked.logits))


def _keys_leak_as(weights: Callable[[State], Array | float]) -> StepsMap:
    """Let keys leak, and replace the weights that would be NaN."""

    def settle(state: State, ordinary: HeadsMap) -> State:
        settled = ordinary(state)
        return settled.but(probs=np.where(np.isnan(settled.probs), weights(state), settled.probs))

    return both(wrapping("mask", _keys_leak), wrapping("fully_masked_rows", settle))


def _leaking(decision: str, name: str, steps: StepsMap) -> Deviation:
    return Deviation(decision, name, steps=steps, concerns=_may_be_nonfinite)


ROWS: tuple[Deviation, ...] = (
    _leaking("nonfinite_value", "leaks", wrapping("weigh", _values_leak)),
    _leaking("nonfinite_value", "leaks_where_added", wrapping("weigh", _values_leak_where_added)),
    _leaking("nonfinite_key", "leaks", wrapping("mask", _keys_leak)),
    _leaking("nonfinite_key", "zeroes", _keys_leak_as(lambda _: 0.0)),
    _leaking("nonfinite_key", "takes_all", _keys_leak_as(lambda state: np.where(np.isnan(state.logits), np.nan, 0.0))),
    _leaking("nonfinite_key", "leaks_where_added", wrapping("mask", _keys_leak_where_added)),
    Deviation(DECISION, "value_zeroed", problem=partial(_of_input, "value", _zeroed)),
    Deviation(DECISION, "nan_value_zeroed", problem=partial(_of_input, "value", _nan_zeroed)),
    Deviation(DECISION, "value_clipped", problem=partial(_of_input, "value", _clipped)),
    Deviation(DECISION, "key_zeroed", problem=partial(_of_input, "key", _zeroed)),
    Deviation(DECISION, "nan_row_zeroed", steps=following("fully_masked_rows", "nan_rows", _nan_row_zeroed)),
    Deviation(DECISION, "nan_weights_zeroed", steps=following("fully_masked_rows", "nan_weights", _nan_weights_zeroed)),
    Deviation(DECISION, "output_zeroed", steps=_of_output(_zeroed)),
    Deviation(DECISION, "nan_output_zeroed", steps=_of_output(_nan_zeroed)),
    Deviation(DECISION, "output_clipped", steps=_of_output(_clipped)),
)


def where_added(problem: Problem) -> Iterator[tuple[str, str]]:
    """
    The deviations, as (decision, name), that follow from adding -inf to NaN, as far as they concern a problem.

    NaN plus -inf is NaN in every arithmetic, so code that adds its masks shows them beside any other deviation.
    """
    for each in ROWS:
        if each.name.endswith(WHERE_ADDED) and each.concerns(problem):
            yield each.decision, each.name
