"""
Changes of a problem from which something follows (`invariants`).

Each is exact in the dtype under test: numbers change their sign, or are multiplied by a power of two. None where a
problem cannot be changed so.
"""

from dataclasses import replace

import numpy as np

from conformance.judge.rearranging import mapped
from conformance.spec.masks import as_float
from conformance.spec.problem import Array, Group, Problem

LARGE = {"float64": 2.0**16, "float32": 2.0**16, "float16": 2.0**6, "bfloat16": 2.0**6}
"""What an appended key is larger by, so that a leak is visible."""

RELATED = frozenset({"output", "weights", "weights_mean"})
"""Outputs of which it is known how they follow a change."""

BOOLEAN = ("bool", "int")


def is_changeable(problem: Problem) -> bool:
    """Whether relations are asked: of output and weights, unless the items of a batch must be one and the same."""
    return RELATED.issuperset(problem.outputs) and problem.layout != "expanded"


def seen(problem: Problem) -> Array:
    """Which rows of key and value anybody attends: (batch, seq_len_k), of sdpa (batch, num_kv_heads, seq_len_k)."""
    by_head = np.asarray(problem.attended().any(axis=2))
    if problem.operator == "mha":
        return np.asarray(by_head.any(axis=1))
    sharing = (problem.batch, problem.num_kv_heads, -1, problem.seq_len_k)
    return np.asarray(by_head.reshape(sharing).any(axis=2))


def with_visible_values_changed(problem: Problem) -> Problem | None:
    """Turn the sign of one attended value in every item and head, of another key in each."""
    visible = seen(problem)
    chosen = np.zeros_like(visible)
    for number, row in enumerate(np.ndindex(visible.shape[:-1])):
        places = np.flatnonzero(visible[row])
        if places.size:
            chosen[(*row, places[-1 - number % places.size])] = True
    if not chosen.any():
        return None
    return mapped(problem, lambda array: np.where(chosen[..., None], -array, array), "value")


def with_last_key_changed(problem: Problem) -> Problem | None:
    """Turn the sign of the last key and value, where a causal mask or a window hides them from some query."""
    hidden = not problem.attended()[..., -1].all()
    if not hidden or problem.alias == "qkv" or not any({"causal", "window"} & {*g.kinds} for g in problem.groups):
        return None

    def turned(array: Array) -> Array:
        return np.concatenate([array[..., :-1, :], -array[..., -1:, :]], axis=-2)

    changed = mapped(problem, turned, "value")
    return changed if problem.alias == "kv" else mapped(changed, turned, "key")


def with_mask_as_floats(problem: Problem) -> Problem | None:
    """Write boolean masks as numbers that are added: 0 and minus infinity."""

    def is_ordinary(group: Group) -> bool:
        return group.element in BOOLEAN and not group.verbatim and not group.ordered

    if not any(map(is_ordinary, problem.groups)):
        return None
    return problem.but(groups=tuple(as_float(group) if is_ordinary(group) else group for group in problem.groups))


def with_poison(problem: Problem, which: str) -> Problem | None:
    """NaN in keys, or in values, that nobody attends; one mask hides them, since of two each may do it in its way."""
    hidden = ~seen(problem)
    if not hidden.any() or problem.alias != "none" or len(problem.groups) != 1 or problem.groups[0].verbatim:
        return None
    return mapped(problem, lambda array: np.where(hidden[..., None], np.nan, array), which)


def with_padded_key(problem: Problem) -> Problem | None:
    """Append a large key that a boolean mask hides, where no mask says anything about order and none is verbatim."""
    groups = problem.groups
    if problem.differentiated:  # gradients have the shape of what they are taken by
        return None
    if problem.alias == "qkv" or any(g.verbatim or g.ordered for g in groups):
        return None
    if not any(group.element in BOOLEAN and group.values.shape[-1] > 1 for group in groups):
        return None

    def longer(array: Array) -> Array:
        return np.concatenate([array, array[..., :1, :] * LARGE[problem.dtype]], axis=-2)

    changed = mapped(problem, longer, "value")
    changed = changed if problem.alias == "kv" else mapped(changed, longer, "key")
    return changed.but(groups=tuple(_with_key_hidden(group) for group in groups))


def _with_key_hidden(group: Group) -> Group:
    """A mask over one key more: hidden where the mask is boolean, nothing added where it adds."""
    if group.values.shape[-1] == 1:
        return group
    more = np.zeros((*group.values.shape[:-1], 1), dtype=group.values.dtype)
    return replace(group, values=np.concatenate([group.values, more], axis=-1))
