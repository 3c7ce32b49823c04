"""Variations that are habits of some models: right there, and not the attention that was asked for."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from conformance.oracle.other_masks import causal
from conformance.oracle.pipeline import Steps, replace_step
from conformance.oracle.state import State
from conformance.oracle.variation import ProblemMap, Variation, problem_row
from conformance.spec.problem import Array, Group, Problem
from conformance.spec.rounding import round_to

HABIT = "habit"
"""What stands for the argument of a mask or bias that nobody gave."""


EPSILONS = ("1e-6", "1e-5", "1e-8", "")
"""What is added to the mean square, so that nothing is divided by zero; the last is none."""


def _causal_unasked(problem: Problem) -> Problem:
    if any(group.offset is not None for group in problem.groups):
        return problem
    seen = causal(problem.seq_len_q, problem.seq_len_k, 0)
    return problem.but(groups=(*problem.groups, Group(HABIT, (HABIT,), "bool", seen)))


def _without_flag(problem: Problem) -> Problem:
    """No causal flag, whichever argument carries it."""
    kept = tuple(group for group in problem.groups if group.offset is None)
    return problem if len(kept) == len(problem.groups) else problem.but(groups=kept)


def _without_flag_beside_others(problem: Problem) -> Problem:
    return _without_flag(problem) if len(problem.groups) > 1 else problem


def _always(position: Callable[[Problem], Array]) -> ProblemMap:
    """Let every mask attend where `position` says so, broadcastable to (seq_len_q, seq_len_k); finite biases stay."""

    def shown(problem: Problem, group: Group) -> Group:
        seen = position(problem)
        if group.element == "float":
            opened = np.where(seen & (group.values == -np.inf), 0.0, group.values)
            return replace(group, values=opened)
        return replace(group, element="bool", values=(group.values != 0) | seen, offset=None, window=None)

    def apply(problem: Problem) -> Problem:
        if not problem.groups:
            return problem
        return problem.but(groups=tuple(shown(problem, group) for group in problem.groups))

    return apply


def _first_key(problem: Problem) -> Array:
    return np.asarray(np.arange(problem.seq_len_k) == 0)[None, :]


def _own_position(problem: Problem) -> Array:
    return np.eye(problem.seq_len_q, problem.seq_len_k, dtype=bool)


def _peak_of_masked(state: State) -> Array:
    """A masked logit takes part with its bias, which an infinite one takes out of it."""
    bias = 0.0 if state.bias is None else state.bias
    return np.asarray((state.capped + bias).max(axis=-1, keepdims=True))


def _peak_of(axes: tuple[int, ...]) -> Callable[[State], Array]:
    return lambda state: np.asarray(state.logits.max(axis=axes, keepdims=True))


def _subtracting(peak: Callable[[State], Array]) -> Callable[[Steps, str], Steps]:
    """
    Subtract another number than the greatest attended logit: the weights are the same until exponentials underflow.

    A row of which nothing is left is zero.
    """

    def apply(steps: Steps, score: str) -> Steps:
        def softmax(state: State) -> State:
            done = ordinary(state)
            top = peak(state)
            if np.all(top == state.logits.max(axis=-1, keepdims=True)):
                return done
            taken = np.where(np.isinf(top), 0.0, top)  # NaN is the greatest of all, and makes NaN of every logit
            exponentials = round_to(np.exp(state.logits - taken), score)
            total = exponentials.sum(axis=-1, keepdims=True)
            return done.but(probs=exponentials / np.where(total == 0, 1.0, total))

        ordinary = next(step.apply for step in steps if step.name == "softmax")
        return replace_step(steps, "softmax", softmax)

    return apply


def peak_row(name: str, sentence: str, peak: Callable[[State], Array]) -> Variation:
    """One row of the table that subtracts another number before it takes exponentials."""
    return Variation("softmax_maximum", name, sentence, "", "steps", steps=_subtracting(peak), bounded=False)


ROWS: tuple[Variation, ...] = (
    problem_row("causal_mask", "ignored", "ignores the causal flag", "pass the mask", _without_flag),
    problem_row(
        "causal_mask",
        "ignored_beside_others",
        "ignores the causal flag when another mask is given",
        "fold all masks into one",
        _without_flag_beside_others,
    ),
    problem_row("causal_mask", "unasked", "applies a causal mask that nobody asked for", "", _causal_unasked),
    problem_row("always_attended", "first_key", "attends the first key even if it is masked", "", _always(_first_key)),
    problem_row(
        "always_attended",
        "own_position",
        "lets a query attend the key at its own position even if that is masked",
        "",
        _always(_own_position),
    ),
    peak_row(
        "of_masked_keys",
        "subtracts a maximum in which masked keys take part: attended logits far below it underflow",
        _peak_of_masked,
    ),
    peak_row(
        "of_all",
        "subtracts one maximum for the whole tensor: rows far below it underflow",
        _peak_of((0, 1, 2, 3)),
    ),
)
