"""The oracle: the answer to a routed problem under a dialect."""

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
class Answer:
    """The reply, and the state that led to it (from which bounds are derived)."""

    reply: Reply
    state: State
    deviations: tuple[Deviation, ...]


def evaluate(problem: Problem, dialect: Dialect = CANONICAL, score: str = "float64") -> Answer:
    """
    Answer `problem` under `dialect`.

    `score` is the dtype to which the declared arithmetic rounds logits; only finite fills depend on it.
    """
    return evaluate_deviations(problem, compose(dialect), score)


def evaluate_deviations(problem: Problem, deviations: tuple[Deviation, ...], score: str) -> Answer:
    """
    Answer `problem` under deviations that are already in order; those that leave the problem as it is drop out.

    Deviations overflow, divide by zero and make NaN on purpose, so NumPy warns of that only where there are none.
    """
    with np.errstate(over="ignore", invalid="ignore", divide="ignore") if deviations else nullcontext():
        return _answer(problem, deviations, score)


def _answer(problem: Problem, deviations: tuple[Deviation, ...], score: str) -> Answer:
    reached = []
    for deviation in deviations:
        changed = deviation.posed(problem)
        if deviation.problem is None or changed is not problem:
            reached.append(deviation)
        problem = changed
    state = run(problem, varied_steps(problem.operator, reached, score))
    reply = requested(state)
    for deviation in reached:
        if deviation.reply is not None:
            reply = deviation.reply(reply)
    return Answer(reply, state, tuple(reached))


def varied_steps(operator: str, deviations: Iterable[Deviation], score: str) -> Steps:
    """The steps of an operator under deviations in order; those of the heads run one after the other."""
    steps = STEPS[operator]
    before = "split" if operator == "mha" else "group"
    for deviation in deviations:
        if deviation.steps is not None:
            steps = deviation.steps(steps, score)
        elif deviation.heads is not None:
            steps = insert_after(steps, before, Step(deviation.key, deviation.heads))
            before = deviation.key
    return steps


def requested(state: State) -> Reply:
    """The outputs that the problem asks for, in the input's dtype."""
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
        found = gradients(state)
        made |= {name: partial(found.__getitem__, name) for name in found}
    return {name: Expected(made[name](), dtype) for name in problem.outputs}
