"""Variations that put zeros for what is padded, before attention or after it, or take the padding of other keys."""

from collections.abc import Callable

import numpy as np

from conformance.oracle.pipeline import Step
from conformance.oracle.state import State
from conformance.oracle.variation import StepsMap, Variation, problem_row, unbounded_row
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
    return np.asarray(array * (by_row if array.ndim == by_row.ndim else by_row[:, 0]))


def _padded_queries(problem: Problem) -> Array | None:
    """Queries (batch or 1, seq_len_q) at whose own place a key is padded; None where they have not the keys' places."""
    padding = [group for group in problem.groups if _is_padding(group)]
    if not padding or problem.seq_len_q != problem.seq_len_k:
        return None
    return np.asarray(~np.logical_and.reduce([group.values != 0 for group in padding])[:, 0, 0])


def _blanked(*, weights: bool) -> StepsMap:
    """What a layer returns, projected and all, is zero at padded queries, and with it the weights or not."""

    def blank(state: State) -> State:
        padded = _padded_queries(state.problem)
        if padded is None:
            return state
        done = state.but(output=np.where(padded[..., None], 0.0, state.output))
        return done.but(weights=np.where(padded[:, None, :, None], 0.0, state.weights)) if weights else done

    return lambda steps, _: (*steps, Step("blank", blank))


def _has_padded_queries(problem: Problem) -> bool:
    """In sdpa it is no other thing than the padding of keys as a mask of queries too."""
    padded = _padded_queries(problem)
    return problem.operator == "mha" and padded is not None and bool(padded.any())


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
    unbounded_row(
        "padded_queries",
        "zeroed",
        "returns zeros, projected and all, for queries at whose own place a key is padded, where there are as many "
        "queries as keys",
        "pass the padding as a mask of each query",
        _blanked(weights=False),
        _has_padded_queries,
    ),
    unbounded_row(
        "padded_queries",
        "zeroed_with_weights",
        "returns zeros, projected and all, for queries at whose own place a key is padded, and no weights of theirs, "
        "where there are as many queries as keys",
        "pass the padding as a mask of each query",
        _blanked(weights=True),
        _has_padded_queries,
    ),
)
