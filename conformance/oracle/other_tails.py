"""Variations that are slips of what lies behind the last whole block of keys."""

from collections.abc import Callable

import numpy as np

from conformance.oracle.other_tiles import BLOCKS
from conformance.oracle.pipeline import Steps, replace_step
from conformance.oracle.state import State
from conformance.oracle.variation import ProblemMap, StepsMap, Variation, problem_row, unbounded_row
from conformance.spec.problem import Array, Group, Problem

TAIL = "tail"
"""What stands for the argument of a mask that nobody gave."""


def _tail_dropped(block: int) -> ProblemMap:
    """Keys after the last whole block are not attended, if there is a whole one."""

    def apply(problem: Problem) -> Problem:
        keys = problem.seq_len_k
        whole = keys // block * block
        return problem if whole in (0, keys) else _first_keys(problem, whole)

    return apply


def _whole_dropped(block: int) -> ProblemMap:
    """A last block that is full counts as empty: its length is taken for the remainder."""

    def apply(problem: Problem) -> Problem:
        keys = problem.seq_len_k
        return _first_keys(problem, keys - block) if keys % block == 0 else problem

    return apply


def _first_keys(problem: Problem, count: int) -> Problem:
    seen = (np.arange(problem.seq_len_k) < count)[None, None, None]
    return problem.but(groups=(*problem.groups, Group(TAIL, (TAIL,), "bool", seen)))


def _not_in_blocks(block: int) -> Callable[[Problem], bool]:
    return lambda problem: problem.weights_shape[-1] % block > 0


def _zeros_attended(block: int, logits: Callable[[State, int], Array]) -> StepsMap:
    """Keys and values are filled up with zeros to whole blocks; logits: of so many of them, (..., so many)."""

    def apply(steps: Steps, _: str) -> Steps:
        def softmax(state: State) -> State:
            keys = state.logits.shape[-1]
            if keys % block == 0:
                return ordinary(state)
            more = logits(state, -keys % block)
            zeros = np.broadcast_to(more, (*state.logits.shape[:-1], -keys % block))
            filled = ordinary(state.but(logits=np.concatenate([state.logits, zeros], axis=-1)))
            return filled.but(logits=state.logits, probs=filled.probs[..., :keys])

        ordinary = next(step.apply for step in steps if step.name == "softmax")
        return replace_step(steps, "softmax", softmax)

    return apply


def _of_zeros(_: State, count: int) -> Array:
    """Each has a logit of zero, and takes weight."""
    return np.zeros(count)


ROWS: tuple[Variation, ...] = (
    *(
        problem_row(
            "key_tail",
            f"dropped_{block}",
            f"drops the keys after the last whole block of {block}",
            "pad the keys, masked, to whole blocks",
            _tail_dropped(block),
        )
        for block in BLOCKS
    ),
    *(
        problem_row(
            "key_tail",
            f"whole_dropped_{block}",
            f"drops the last block of {block} keys where it is full",
            "pad the keys, masked, by one",
            _whole_dropped(block),
        )
        for block in BLOCKS
    ),
    *(
        unbounded_row(
            "key_tail",
            f"zeros_{block}",
            f"fills the keys up with zeros to whole blocks of {block}, and does not mask them",
            "pad the keys, masked, to whole blocks",
            _zeros_attended(block, _of_zeros),
            _not_in_blocks(block),
        )
        for block in BLOCKS
    ),
)
