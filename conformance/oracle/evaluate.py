"""The oracle: the answer to a routed problem under a dialect."""

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import numpy as np

from conformance.oracle.gradients import gradients
from conformance.oracle.pipeline import STEPS, Step, Steps, insert_after, run
from conformance.oracle.state import State
from conformance.oracle.variation import Dialect, Expected, Reply, Variation
from conformance.oracle.variations import compose
from conformance.spec.problem import SCORES, Array, Problem

CANONICAL: Dialect = {}


@dataclass(frozen=True, eq=False)
class Answer:
    """The reply, and the state that led to it (from which bounds are derived)."""

    reply: Reply
    state: State
    variations: tuple[Variation, ...]


def evaluate(problem: Problem, dialect: Dialect = CANONICAL, score: str = "float64") -> Answer:
    """
    Answer `problem` under `dialect`.

    `score` is the dtype to which the declared arithmetic rounds logits; only finite fills depend on it.
    """
    return evaluate_variations(problem, compose(dialect), score)


def evaluate_variations(problem: Problem, variations: tuple[Variation, ...], score: str) -> Answer:
    """
    Answer `problem` under variations that are already in order; those that leave the problem as it is drop out.

    Variations overflow, divide by zero and make NaN on purpose, so NumPy warns of that only where there are none.
    """
    with np.errstate(over="ignore", invalid="ignore", divide="ignore") if variations else nullcontext():
        return _answer(problem, variations, score)


def _answer(problem: Problem, variations: tuple[Variation, ...], score: str) -> Answer:
    reached = []
    for variation in variations:
        changed = variation.posed(problem)
        if variation.problem is None or changed is not problem:
            reached.append(variation)
        problem = changed
    state = run(problem, varied_steps(problem.operator, reached, score))
    reply = requested(state)
    for variation in reached:
        if variation.reply is not None:
            reply = variation.reply(reply)
    return Answer(reply, state, tuple(reached))


def varied_steps(operator: str, variations: Iterable[Variation], score: str) -> Steps:
    """The steps of an operator under variations in order; those of the heads run one after the other."""
    steps = STEPS[operator]
    before = "split" if operator == "mha" else "group"
    for variation in variations:
        if variation.steps is not None:
            steps = variation.steps(steps, score)
        elif variation.heads is not None:
            steps = insert_after(steps, before, Step(variation.key, variation.heads))
            before = variation.key
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
