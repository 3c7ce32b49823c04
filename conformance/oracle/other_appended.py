"""Variations of the keys that are appended: the learned one, the one of zeros, and what masks do to them."""

from collections.abc import Callable

import numpy as np

from conformance.oracle.pipeline import Step, Steps, insert_after, replace_step
from conformance.oracle.state import State
from conformance.oracle.steps import linear
from conformance.oracle.variation import ProblemMap, StepsMap, Variation
from conformance.spec.problem import Array, Problem

LEARNED = {"bias_k": "k", "bias_v": "v"}
"""Parameter that is appended -> the letter of its projection."""


def _extra(problem: Problem) -> int:
    return problem.weights_shape[-1] - problem.seq_len_k


def _without_learned(problem: Problem) -> Problem:
    kept = {name: array for name, array in problem.params.items() if name not in LEARNED}
    return problem if len(kept) == len(problem.params) else problem.but(params=kept)


def _without_zero(problem: Problem) -> Problem:
    return problem.but(zero_key=False) if problem.zero_key else problem


def _projected(problem: Problem) -> Problem:
    """Append before the projection: the learned rows are taken for inputs, where they are as wide."""
    params = dict(problem.params)
    for name, letter in LEARNED.items():
        weight = params.get("w" + letter)
        if name not in params or weight is None or weight.shape[0] != params[name].shape[0]:
            return problem
        params[name] = linear(params[name][None], weight, params.get("b" + letter))[0]
    return problem.but(params=params)


def _hidden(hide: Callable[[State], Array]) -> StepsMap:
    """Let masks concern the appended keys; `hide` says which rows attend them, (..., seq_len_q, extra)."""

    def apply(steps: Steps, _: str) -> Steps:
        if all(step.name != "append" for step in steps):
            return steps

        def hidden(state: State) -> State:
            if not _extra(state.problem) or not state.problem.groups:
                return state
            allowed = state.allowed.copy()
            allowed[..., state.problem.seq_len_k :] &= hide(state)
            return state.but(allowed=allowed)

        return insert_after(steps, "append", Step("appended_keys", hidden))

    return apply


def _none(_: State) -> Array:
    return np.asarray(False)


def _later(state: State) -> Array:
    """A causal mask is made for all keys: an appended key is a later one."""
    problem = state.problem
    offsets = [group.offset for group in problem.groups if group.offset is not None]
    if not offsets:
        return np.asarray(True)
    keys = problem.seq_len_k + np.arange(_extra(problem))
    return np.asarray(keys[None, :] <= np.arange(problem.seq_len_q)[:, None] + min(offsets))


def _first(steps: Steps, _: str) -> Steps:
    """Appended keys come first; the masks are still padded at the end."""
    if all(step.name != "append" for step in steps):
        return steps

    def append(state: State) -> State:
        appended = ordinary(state)
        extra = _extra(state.problem)
        if not extra:
            return appended
        return appended.but(key=np.roll(appended.key, extra, axis=2), value=np.roll(appended.value, extra, axis=2))

    ordinary = next(step.apply for step in steps if step.name == "append")
    return replace_step(steps, "append", append)


def problem_row(decision: str, name: str, sentence: str, problem: ProblemMap, *, bounded: bool = True) -> Variation:
    """One row of the table that solves another problem."""
    return Variation(decision, name, sentence, "", "problem", problem=problem, bounded=bounded)


def row(name: str, sentence: str, remedy: str, steps: StepsMap) -> Variation:
    """One row of the table about appended keys of either sort."""
    return Variation("appended_keys", name, sentence, remedy, "steps", steps=steps)


ROWS: tuple[Variation, ...] = (
    problem_row("bias_kv", "ignored", "leaves out the learned key and value", _without_learned),
    problem_row("bias_kv", "projected", "projects the learned key and value like inputs", _projected, bounded=False),
    problem_row("zero_key", "ignored", "leaves out the key of zeros", _without_zero),
    row("masked", "hides appended keys where any mask is given", "widen the mask yourself", _hidden(_none)),
    row(
        "under_causal",
        "takes appended keys for later ones, which a causal mask hides",
        "pass the mask without the causal flag",
        _hidden(_later),
    ),
    row("first", "puts appended keys before the others, where masks do not expect them", "", _first),
)
