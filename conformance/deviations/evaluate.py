"""The oracle: it computes the expected reply to a problem under a dialect."""

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import numpy as np

from conformance.deviations.catalogue import compose
from conformance.deviations.deviation import Deviation, Dialect, Expected, Reply
from conformance.reference.gradients import gradients
from conformance.reference.pipeline import STEPS, Step, Steps, insert_after, run
from conformance.reference.steps import State
from conformance.spec.problem import SCORES, Array, Problem

CANONICAL: Dialect = {}


@dataclass(frozen=True, eq=False)
class OracleAnswer:
    """The expected reply, the state from which bounds are derived, and the deviations that applied."""

    reply: Reply
    state: State
    deviations: tuple[Deviation, ...]


def evaluate(problem: Problem, dialect: Dialect = CANONICAL, score: str = "float64") -> OracleAnswer:
    """
    Compute the answer to `problem` under `dialect`.

    score: the dtype to which the declared arithmetic rounds logits; only finite fills depend on it.
    """
    return evaluate_deviations(problem, compose(dialect), score)


def evaluate_deviations(problem: Problem, deviations: tuple[Deviation, ...], score: str) -> OracleAnswer:
    """
    Compute the answer to `problem` under sorted deviations; those that do not change the problem are dropped.

    Deviations overflow, divide by zero and make NaN on purpose, so NumPy's warnings are only enabled if there are none.
    """
    with np.errstate(over="ignore", invalid="ignore", divide="ignore") if deviations else nullcontext():
        return _answer(problem, deviations, score)


def _answer(problem: Problem, deviations: tuple[Deviation, ...], score: str) -> OracleAnswer:
    applied = []
    for deviation in deviations:
        changed = deviation.posed(problem)
        if deviation.problem is None or changed is not problem:
            applied.append(deviation)
        problem = changed
    state = run(problem, varied_steps(problem.operator, applied, score))
    reply = requested(state)
    for deviation in applied:
        if deviation.reply is not None:
            reply = deviation.reply(reply)
    return OracleAnswer(reply, state, tuple(applied))


def varied_steps(operator: str, deviations: Iterable[Deviation], score: str) -> Steps:
    """Return the steps of an operator under sorted deviations; maps of heads become steps, in order."""
    steps = STEPS[operator]
    previous = "split" if operator == "mha" else "group"
    for deviation in deviations:
        if deviation.steps is not None:
            steps = deviation.steps(steps, score)
        elif deviation.heads is not None:
            steps = insert_after(steps, previous, Step(deviation.key, deviation.heads))
            previous = deviation.key
    return steps


def requested(state: State) -> Reply:
    """Return the outputs that the problem requests, in the dtype of the input."""
    problem, dtype = state.problem, state.problem.dtype
    made: dict[str, Callable[[], Array]] = {
        "output": lambda: state.output,
        "weights": lambda: state.weights,
        "weights_mean": lambda: np.asarray(state.weights.mean(axis=1)),
        **{name: partial(getattr, state, name) for name in SCORES},
        "present_key": lambda: problem.key,
        "present_value": lambda: problem.value,
    }
    if problem.differentiated:
        by_name = gradients(state)
        made |= {name: partial(by_name.__getitem__, name) for name in by_name}
    return {name: Expected(made[name](), dtype) for name in problem.outputs}
