"""
Variations in which the answer of a fully masked row follows from which argument masks it.

A decision of its own: `fully_masked_row` is what a subject may declare, the same whichever arguments carry the masks.
"""

from collections.abc import Callable

import numpy as np

from conformance.oracle.pipeline import Steps, replace_step
from conformance.oracle.state import State
from conformance.oracle.variation import StepsMap, Variation, unbounded_row
from conformance.spec.problem import Array, Group, Problem


def _is_padding(group: Group) -> bool:
    """By the argument, not by the kind: padding that is folded into a mask is a part of that."""
    return "padding" in group.slot


def _is_mask(group: Group) -> bool:
    """An argument that masks queries and keys: no flag, and no bias, that is added."""
    return group.element not in ("flag", "float") and not _is_padding(group)


ARGUMENTS = {"mask": ("mask", _is_mask), "padding": ("the padding of keys", _is_padding)}
"""How a row is called, and in words, whose dead rows are found before others are masked too."""

ANSWERS = {"uniform": "the mean of all values", "nan": "NaN"}
"""What the other dead rows return: of a finite fill, of an infinite one."""


def _hidden_by(chosen: Callable[[Group], bool], problem: Problem) -> Array:
    """Rows (batch, num_heads, seq_len_q) of which the chosen arguments hide every key, all together."""
    seen = np.ones(problem.logits_shape, dtype=bool)
    for group in problem.groups:
        if chosen(group) and group.allowed is not None:
            seen &= group.allowed
    return np.asarray(~seen.any(axis=-1))


def _unless(chosen: Callable[[Group], bool], answer: str) -> StepsMap:
    """Dead rows that the chosen arguments make are found, and zero; those that others make have been overlooked."""

    def settle(state: State) -> State:
        left = state.dead & ~_hidden_by(chosen, state.problem)
        alone = np.nan if answer == "nan" else 1.0 / state.logits.shape[-1]
        probs = np.where(state.dead[..., None], np.where(left[..., None], alone, 0.0), state.probs)
        return state.but(probs=probs, absorbed=left if answer == "uniform" else state.absorbed)

    def apply(steps: Steps, _: str) -> Steps:
        return replace_step(steps, "dead_rows", settle)

    return apply


def _has_dead_row(problem: Problem) -> bool:
    return not problem.attended().any(axis=-1).all()


ROWS: tuple[Variation, ...] = tuple(
    unbounded_row(
        "fully_masked_by",
        f"{answer}_unless_{name}",
        f"returns zeros for a row that {argument} alone masks fully, and {told} for other fully masked rows",
        "zero those rows yourself",
        _unless(chosen, answer),
        _has_dead_row,
    )
    for name, (argument, chosen) in ARGUMENTS.items()
    for answer, told in ANSWERS.items()
)
