"""The steps of attention: a result that many deviations share equals the one computed for each alone."""

from dataclasses import fields

import numpy as np
import pytest

from conformance.reference.pipeline import STEPS, Step, Steps, insert_after, replace_step, run
from conformance.reference.steps import State, begin

from ..problems import random_sdpa

PROBLEM = random_sdpa(5)


def in_full(steps: Steps) -> State:
    state = begin(PROBLEM)
    for step in steps:
        state = step.apply(state)
    return state


def same(one: State, other: State) -> bool:
    names = [each.name for each in fields(State) if each.name != "problem"]
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)


@pytest.mark.parametrize("step", STEPS["sdpa"], ids=lambda step: step.name)
def test_what_goes_before_another_step_is_as_if_computed_again(step: Step) -> None:
    usual = STEPS["sdpa"]
    right = run(PROBLEM, usual)
    varied = replace_step(usual, step.name, lambda state: step.apply(state.but(query=-state.query, value=-state.value)))
    longer = insert_after(usual, step.name, Step("half", lambda state: state.but(probs=state.probs / 2)))
    for steps in (varied, longer, usual):
        assert same(run(PROBLEM, steps), in_full(steps))
    assert run(PROBLEM, usual).output is right.output


@pytest.mark.parametrize("count", [0, 3])
def test_fewer_steps_are_no_more_than_that(count: int) -> None:
    state = run(PROBLEM, STEPS["sdpa"][:count])
    assert state.output.size == 0
    assert (state.products.size > 0) == (count > 0)


def test_a_state_has_no_other_fields() -> None:
    with pytest.raises(TypeError, match="State has no field probabilities"):
        begin(PROBLEM).but(probabilities=0)
