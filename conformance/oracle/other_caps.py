"""Variations of the softcap: where it stands among scale, bias and mask, and what it does."""

from collections.abc import Callable

import numpy as np

from conformance.oracle.pipeline import Step, Steps, insert_after, replace_step
from conformance.oracle.state import State
from conformance.oracle.steps import bent
from conformance.oracle.variation import StepsMap, Variation
from conformance.spec.problem import Array, Problem


def _ignored(problem: Problem) -> Problem:
    return problem if problem.softcap is None else problem.but(softcap=None)


def _before_scale(problem: Problem) -> Problem:
    """Cap the products: scale * cap * tanh(products / cap) is the cap of the logits by scale * cap."""
    scale = problem.applied_scale
    if problem.softcap is None or scale in (0.0, 1.0):
        return problem
    return problem.but(softcap=problem.softcap * scale)


def _uncapped(state: State) -> State:
    return state.but(capped=state.scaled)


def _late(state: State) -> State:
    """Cap the logits as they are."""
    limit = state.problem.softcap
    return state if limit is None else state.but(logits=bent(state.logits, limit))


def _after(step: str) -> StepsMap:
    """Cap what another step made of the logits."""

    def apply(steps: Steps, _: str) -> Steps:
        return insert_after(replace_step(steps, "softcap", _uncapped), step, Step("late_softcap", _late))

    return apply


def _as(bend: Callable[[Array, float], Array]) -> StepsMap:
    """Another function in place of cap * tanh(x / cap)."""

    def apply(steps: Steps, _: str) -> Steps:
        def cap(state: State) -> State:
            limit = state.problem.softcap
            return _uncapped(state) if limit is None else state.but(capped=bend(state.scaled, limit))

        return replace_step(steps, "softcap", cap)

    return apply


def row(name: str, sentence: str, remedy: str, steps: StepsMap) -> Variation:
    """One row of the table; no bound is derived for any."""
    return Variation("softcap", name, sentence, remedy, "steps", steps=steps, bounded=False)


ROWS: tuple[Variation, ...] = (
    Variation("softcap", "ignored", "ignores softcap", "cap the logits yourself", "problem", problem=_ignored),
    Variation(
        "softcap",
        "before_scale",
        "caps the products before it scales them",
        "pass softcap / scale",
        "problem",
        problem=_before_scale,
    ),
    row("after_bias", "caps the logits after the bias is added", "", _after("bias")),
    row(
        "after_mask",
        "caps the logits after the mask, so that a masked key counts as -softcap and receives weight",
        "",
        _after("mask"),
    ),
    row(
        "unmultiplied",
        "takes tanh(logits / softcap) without multiplying by softcap",
        "",
        _as(lambda x, cap: np.tanh(x / cap)),
    ),
    row(
        "undivided",
        "takes softcap * tanh(logits) without dividing by softcap",
        "",
        _as(lambda x, cap: np.tanh(x) * cap),
    ),
)
