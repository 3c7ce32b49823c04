"""Taking items along one axis of attention, in everything that has the axis: operands, parameters, masks, outputs."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from conformance.spec.problem import Array, Group, Problem

AXES = "bhqk"
"""The axes of masks: batch, num_heads, seq_len_q, seq_len_k."""

PARAMETERS = frozenset(kind + letter for kind in "wb" for letter in "qkvo")
"""Parameters of which it is known how the heads stand in them."""

Index = Sequence[int]


def axes_of(output: str, operator: str) -> str:
    """The axes of an output by their letters; e is the feature."""
    if output == "weights":
        return AXES
    if output == "weights_mean":
        return "bqk"
    return "bhqe" if operator == "sdpa" else "bqe"


def take(array: Array, axes: str, axis: str, index: Index) -> Array:
    """Items of an array along an axis that it may not have."""
    return np.take(array, index, axis=axes.index(axis)) if axis in axes else array


def take_items(problem: Problem, index: Index) -> Problem:
    """Some items of the batch."""
    return _mapped(problem, lambda array: np.take(array, index, axis=0), ("query", "key", "value")).but(
        groups=_groups(problem, "b", index)
    )


def take_keys(problem: Problem, index: Index) -> Problem:
    """Keys and values in another order; where query and key are one tensor, the queries as well."""
    shared = problem.alias == "qkv"
    names = ("query", "key", "value") if shared else ("key", "value")
    groups = _groups(problem, "k", index)
    moved = _mapped(problem, lambda array: np.take(array, index, axis=-2), names)
    return moved.but(groups=_groups(moved.but(groups=groups), "q", index) if shared else groups)


def take_heads(problem: Problem, shared: Index) -> Problem:
    """Heads in another order, `shared` being that of the key heads: those that share one stay together."""
    heads = expanded(problem, shared)
    groups = _groups(problem, "h", heads)
    if problem.operator == "sdpa":
        key, value = (np.take(array, shared, axis=1) for array in (problem.key, problem.value))
        return problem.but(query=np.take(problem.query, heads, axis=1), key=key, value=value, groups=groups)
    order = {"q": heads, "k": shared, "v": shared}
    width = {"q": problem.head_dim, "k": problem.head_dim, "v": problem.value_dim}
    params = dict(problem.params)
    for name, array in problem.params.items():
        if name == "wo":
            params[name] = blocks(array.T, problem.value_dim, heads).T
        elif name != "bo":
            params[name] = blocks(array, width[name[1]], order[name[1]])
    return problem.but(params=params, groups=groups)


def expanded(problem: Problem, shared: Index) -> list[int]:
    """The order of all heads that follows from one of the key heads."""
    times = problem.num_heads // problem.num_kv_heads
    return [head * times + each for head in shared for each in range(times)]


def blocks(array: Array, width: int, order: Index) -> Array:
    """The last axis in blocks of `width`, one for each head, in another order."""
    heads = array.reshape(*array.shape[:-1], -1, width)
    return np.take(heads, order, axis=-2).reshape(array.shape)


def _groups(problem: Problem, axis: str, index: Index) -> tuple[Group, ...]:
    """The masks with items taken along an axis, where they span it."""
    place = AXES.index(axis)
    return tuple(
        replace(group, values=np.take(group.values, index, axis=place)) if group.values.shape[place] > 1 else group
        for group in problem.groups
    )


def mapped(problem: Problem, change: Callable[[Array], Array], name: str) -> Problem:
    """Change key or value, and whatever is the same tensor as it."""
    names = {"none": (name,), "kv": ("key", "value"), "qkv": ("query", "key", "value")}[problem.alias]
    return _mapped(problem, change, names)


def _mapped(problem: Problem, change: Callable[[Array], Array], names: Sequence[str]) -> Problem:
    return problem.but(**{name: change(getattr(problem, name)) for name in names})
