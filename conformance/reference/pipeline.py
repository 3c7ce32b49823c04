"""The steps of attention in order, and functions that replace or insert steps."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from conformance.reference.steps import (
    State,
    activate,
    add_bias,
    add_residual,
    answer_context,
    answer_weights,
    append,
    begin,
    cap,
    group_heads,
    mask,
    merge,
    multiply,
    project,
    project_out,
    scale,
    settle_fully_masked_rows,
    softmax,
    split,
    weigh,
)
from conformance.spec.problem import Problem


@dataclass(frozen=True)
class Step:
    """One named stage of attention."""

    name: str
    apply: Callable[[State], State]


Steps = tuple[Step, ...]

CORE: Steps = (
    Step("group", group_heads),
    Step("multiply", multiply),
    Step("scale", scale),
    Step("softcap", cap),
    Step("bias", add_bias),
    Step("mask", mask),
    Step("softmax", softmax),
    Step("fully_masked_rows", settle_fully_masked_rows),
    Step("weigh", weigh),
    Step("weights", answer_weights),
)
SDPA: Steps = (*CORE, Step("answer", answer_context))
MHA: Steps = (
    Step("project", project),
    Step("activate", activate),
    Step("split", split),
    Step("append", append),
    *CORE,
    Step("merge", merge),
    Step("project_out", project_out),
    Step("residual", add_residual),
)
# The steps of each operator, in order.
STEPS: dict[str, Steps] = {"sdpa": SDPA, "mha": MHA}


def run(problem: Problem, steps: Steps) -> State:
    """Compute `problem` by `steps`; results before the first step that differs from the operator's own are cached."""
    standard = STEPS[problem.operator]
    shared = next(
        (n for n, pair in enumerate(zip(steps, standard, strict=False)) if pair[0] is not pair[1]), len(standard)
    )
    state = _after(problem, min(shared, len(steps)))
    for step in steps[shared:]:
        state = step.apply(state)
    return state


@lru_cache(maxsize=64)
def _after(problem: Problem, count: int) -> State:
    """Return the state after the first `count` of the operator's own steps; recent states are cached."""
    return STEPS[problem.operator][count - 1].apply(_after(problem, count - 1)) if count else begin(problem)


def position(steps: Steps, name: str) -> int:
    """
    Return the index of the step `name`.

    Raises:
        KeyError: there is no such step.
    """
    names = [step.name for step in steps]
    if name not in names:
        raise KeyError(f"no step {name!r} among {', '.join(names)}")
    return names.index(name)


def replace_step(steps: Steps, name: str, apply: Callable[[State], State]) -> Steps:
    """Replace the function of the step `name`; KeyError as in `position`."""
    index = position(steps, name)
    return (*steps[:index], Step(name, apply), *steps[index + 1 :])


def insert_after(steps: Steps, name: str, step: Step) -> Steps:
    """Insert a step after `name`; KeyError as in `position`."""
    index = position(steps, name) + 1
    return (*steps[:index], step, *steps[index:])


# Steps and the dtype of the logits -> other steps.
StepsMap = Callable[[Steps, str], Steps]


def replacing(name: str, apply: Callable[[State], State]) -> StepsMap:
    """Make a steps map that replaces the function of the step `name`."""
    return lambda steps, _: replace_step(steps, name, apply)


def wrapping(name: str, change: Callable[[State, Callable[[State], State]], State]) -> StepsMap:
    """Make a steps map that replaces the function of `name`; `change` gets the state and the replaced function."""

    def apply(steps: Steps, _: str) -> Steps:
        ordinary = steps[position(steps, name)].apply
        return replace_step(steps, name, lambda state: change(state, ordinary))

    return apply


def where_present(name: str, change: StepsMap) -> StepsMap:
    """Make a steps map that applies `change` only to steps that include one called `name`."""
    return lambda steps, score: change(steps, score) if any(step.name == name for step in steps) else steps


def both(first: StepsMap, second: StepsMap) -> StepsMap:
    """Make a steps map that applies two changes in order."""
    return lambda steps, score: second(first(steps, score), score)


def following(name: str, label: str, apply: Callable[[State], State]) -> StepsMap:
    """Make a steps map that inserts a step called `label` after `name`."""
    return lambda steps, _: insert_after(steps, name, Step(label, apply))
