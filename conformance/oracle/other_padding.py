"""Variations that put zeros for what is padded, and take that for a mask, or take the padding of other keys."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from conformance.oracle.variation import Variation, problem_row
from conformance.spec.problem import Array, Group, Problem


def _is_padding(group: Group) -> bool:
    """Whether it hides keys for all queries and heads of an item, and nothing else."""
    return group.kinds == ("key_padding",) and group.element != "float" and group.values.shape[1:3] == (1, 1)


def _zeroed(*names: str) -> Callable[[Problem], Problem]:
    """Arrays as they are handed over, (batch, ..., seq_len_k, width), times the padding, which masks nothing."""

    def apply(problem: Problem) -> Problem:
        padding = [group for group in problem.groups if _is_padding(group)]
        if not padding:
            return problem
        kept = np.logical_and.reduce([group.values != 0 for group in padding])
        groups = tuple(group for group in problem.groups if group not in padding)
        return problem.but(groups=groups, **{name: _times(getattr(problem, name), kept) for name in names})

    return apply


def _times(array: Array, kept: Array) -> Array:
    """kept: (batch or 1, 1, 1, seq_len_k); an array of mha has no axis of heads."""
    by_row = kept.swapaxes(-1, -2)
    with np.errstate(invalid="ignore"):
        return np.asarray(array * (by_row if array.ndim == by_row.ndim else by_row[:, 0]))


def _of_own_half(problem: Problem) -> Problem:
    """The first half of the queries takes the padding of the first half of the keys for both halves, and so on."""
    queries, keys = problem.seq_len_q, problem.seq_len_k
    if queries % 2 or keys % 2 or not any(map(_is_padding, problem.groups)):
        return problem

    def local(group: Group) -> Group:
        halves = np.tile(group.values.reshape(-1, 2, keys // 2), 2)
        return replace(group, values=np.repeat(halves, queries // 2, axis=1)[:, None])

    groups = tuple(local(group) if _is_padding(group) else group for group in problem.groups)
    return problem.but(groups=groups)


ROWS: tuple[Variation, ...] = (
    problem_row(
        "padded_keys",
        "zeroed",
        "puts zeros for keys that are padded, and does not mask them",
        "pass the padding as a mask of each query",
        _zeroed("key"),
    ),
    problem_row(
        "padded_keys",
        "zeroed_with_values",
        "puts zeros for keys and values that are padded, and does not mask them",
        "pass the padding as a mask of each query",
        _zeroed("key", "value"),
    ),
    problem_row(
        "padded_keys",
        "of_own_half",
        "takes, for either half of an even number of queries, the padding of that half of the keys for all of them",
        "pass the padding as a mask of each query",
        _of_own_half,
    ),
)
