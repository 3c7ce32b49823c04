"""Variations that put a number in the place of one that is none, where it is attended and must reach the output."""

from collections.abc import Callable

import numpy as np

from conformance.oracle.pipeline import Step, Steps, insert_after
from conformance.oracle.state import State
from conformance.oracle.variation import ProblemMap, StepsMap, Variation, problem_row, steps_row
from conformance.spec.problem import Array, Problem
from conformance.spec.rounding import largest

Cleaning = Callable[[Array, str], Array]
"""Numbers and the dtype that holds them -> the same numbers, cleaned."""

LAST = {"sdpa": "answer", "mha": "residual"}
"""The step after which there is an output."""


def _zeroed(values: Array, _: str) -> Array:
    return np.where(np.isfinite(values), values, 0.0)


def _nan_zeroed(values: Array, _: str) -> Array:
    return np.where(np.isnan(values), 0.0, values)


def _clipped(values: Array, dtype: str) -> Array:
    """As numpy.nan_to_num and torch.nan_to_num do it."""
    return np.asarray(np.nan_to_num(values, nan=0.0, posinf=largest(dtype), neginf=-largest(dtype)))


def _of_input(name: str, cleaned: Cleaning) -> ProblemMap:
    """Clean the key or value as it came; the same problem where it is finite."""

    def apply(problem: Problem) -> Problem:
        array: Array = getattr(problem, name)
        return problem if np.isfinite(array).all() else problem.but(**{name: cleaned(array, problem.dtype)})

    return apply


def _of_output(cleaned: Cleaning) -> StepsMap:
    def apply(steps: Steps, _: str) -> Steps:
        def clean(state: State) -> State:
            return state.but(output=cleaned(state.output, state.problem.dtype))

        operator = "mha" if any(step.name == LAST["mha"] for step in steps) else "sdpa"
        return insert_after(steps, LAST[operator], Step("clean", clean))

    return apply


def _nan_rows_zeroed(steps: Steps, _: str) -> Steps:
    """A maximum that skips NaN is minus infinity there, as in a row that attends nothing."""

    def settle(state: State) -> State:
        numbers = (state.logits > -np.inf).any(axis=-1, keepdims=True)
        return state.but(probs=np.where(np.isnan(state.probs) & ~numbers, 0.0, state.probs))

    return insert_after(steps, "dead_rows", Step("nan_rows", settle))


DECISION = "attended_nonfinite"

ROWS: tuple[Variation, ...] = (
    problem_row(
        DECISION,
        "value_zeroed",
        "replaces a value that is not finite by zero, also where it is attended",
        "",
        _of_input("value", _zeroed),
    ),
    problem_row(
        DECISION,
        "nan_value_zeroed",
        "replaces NaN in a value by zero, also where it is attended",
        "",
        _of_input("value", _nan_zeroed),
    ),
    problem_row(
        DECISION,
        "value_clipped",
        "replaces NaN in a value by zero and infinity by the largest number, also where it is attended",
        "",
        _of_input("value", _clipped),
    ),
    problem_row(
        DECISION,
        "key_zeroed",
        "replaces a key that is not finite by zero, also where it is attended",
        "",
        _of_input("key", _zeroed),
    ),
    steps_row(
        DECISION,
        "nan_row_zeroed",
        "returns zero for a query all of whose attended logits are NaN",
        "",
        _nan_rows_zeroed,
    ),
    steps_row(
        DECISION,
        "output_zeroed",
        "returns zero where the output is not finite",
        "",
        _of_output(_zeroed),
    ),
    steps_row(
        DECISION,
        "nan_output_zeroed",
        "returns zero where the output is NaN",
        "",
        _of_output(_nan_zeroed),
    ),
    steps_row(
        DECISION,
        "output_clipped",
        "returns zero where the output is NaN, and the largest number where it is infinite",
        "",
        _of_output(_clipped),
    ),
)
