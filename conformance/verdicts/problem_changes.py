"""Changes of a problem from which something follows (`invariants`): masks, padding, and items taken along an axis."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from conformance.spec.masks import as_float
from conformance.spec.problem import Array, MaskOperand, Problem

# The axes of masks: batch, num_heads, seq_len_q, seq_len_k.
AXES = "bhqk"

# Parameters of which it is known how the heads stand in them.
PARAMETERS = frozenset(kind + letter for kind in "wb" for letter in "qkvo")

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


def take_batch_elements(problem: Problem, index: Index) -> Problem:
    """Some items of the batch."""
    return _mapped(problem, lambda array: np.take(array, index, axis=0), ("query", "key", "value")).but(
        mask_operands=_mask_operands(problem, "b", index)
    )


def take_keys(problem: Problem, index: Index) -> Problem:
    """Keys and values in another order; where query and key are one tensor, the queries as well."""
    shared = problem.alias == "qkv"
    names = ("query", "key", "value") if shared else ("key", "value")
    mask_operands = _mask_operands(problem, "k", index)
    moved = _mapped(problem, lambda array: np.take(array, index, axis=-2), names)
    return moved.but(
        mask_operands=_mask_operands(moved.but(mask_operands=mask_operands), "q", index) if shared else mask_operands
    )


def take_heads(problem: Problem, shared: Index) -> Problem:
    """Heads in another order, `shared` being that of the key heads: those that share one stay together."""
    heads = expanded(problem, shared)
    mask_operands = _mask_operands(problem, "h", heads)
    if problem.operator == "sdpa":
        key, value = (np.take(array, shared, axis=1) for array in (problem.key, problem.value))
        return problem.but(
            query=np.take(problem.query, heads, axis=1), key=key, value=value, mask_operands=mask_operands
        )
    order = {"q": heads, "k": shared, "v": shared}
    width = {"q": problem.head_dim, "k": problem.head_dim, "v": problem.value_dim}
    params = dict(problem.params)
    for name, array in problem.params.items():
        if name == "wo":
            params[name] = blocks(array.T, problem.value_dim, heads).T
        elif name != "bo":
            params[name] = blocks(array, width[name[1]], order[name[1]])
    return problem.but(params=params, mask_operands=mask_operands)


def expanded(problem: Problem, shared: Index) -> list[int]:
    """The order of all heads that follows from one of the key heads."""
    times = problem.num_heads // problem.num_kv_heads
    return [head * times + each for head in shared for each in range(times)]


def blocks(array: Array, width: int, order: Index) -> Array:
    """The last axis in blocks of `width`, one for each head, in another order."""
    heads = array.reshape(*array.shape[:-1], -1, width)
    return np.take(heads, order, axis=-2).reshape(array.shape)


def _mask_operands(problem: Problem, axis: str, index: Index) -> tuple[MaskOperand, ...]:
    """The masks with items taken along an axis, where they span it."""
    place = AXES.index(axis)
    return tuple(
        replace(operand, values=np.take(operand.values, index, axis=place))
        if operand.values.shape[place] > 1
        else operand
        for operand in problem.mask_operands
    )


def mapped(problem: Problem, change: Callable[[Array], Array], name: str) -> Problem:
    """Change key or value, and whatever is the same tensor as it."""
    names = {"none": (name,), "kv": ("key", "value"), "qkv": ("query", "key", "value")}[problem.alias]
    return _mapped(problem, change, names)


def _mapped(problem: Problem, change: Callable[[Array], Array], names: Sequence[str]) -> Problem:
    return problem.but(**{name: change(getattr(problem, name)) for name in names})


# What an appended key is larger by, so that a leak is visible.
LARGE = {"float64": 2.0**16, "float32": 2.0**16, "float16": 2.0**6, "bfloat16": 2.0**6}

# Outputs of which it is known how they follow a change.
RELATED = frozenset({"output", "weights", "weights_mean"})

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
    if (
        not hidden
        or problem.alias == "qkv"
        or not any({"causal", "window"} & {*g.kinds} for g in problem.mask_operands)
    ):
        return None

    def turned(array: Array) -> Array:
        return np.concatenate([array[..., :-1, :], -array[..., -1:, :]], axis=-2)

    changed = mapped(problem, turned, "value")
    return changed if problem.alias == "kv" else mapped(changed, turned, "key")


def with_mask_as_floats(problem: Problem) -> Problem | None:
    """Write boolean masks as numbers that are added: 0 and minus infinity."""

    def is_ordinary(operand: MaskOperand) -> bool:
        return operand.element in BOOLEAN and not operand.verbatim and not operand.ordered

    if not any(map(is_ordinary, problem.mask_operands)):
        return None
    return problem.but(
        mask_operands=tuple(as_float(operand) if is_ordinary(operand) else operand for operand in problem.mask_operands)
    )


def with_poison(problem: Problem, which: str) -> Problem | None:
    """NaN in keys, or in values, that nobody attends; one mask hides them, since of two each may do it in its way."""
    hidden = ~seen(problem)
    if (
        not hidden.any()
        or problem.alias != "none"
        or len(problem.mask_operands) != 1
        or problem.mask_operands[0].verbatim
    ):
        return None
    return mapped(problem, lambda array: np.where(hidden[..., None], np.nan, array), which)


def with_padded_key(problem: Problem) -> Problem | None:
    """Append a large key that a boolean mask hides, where no mask says anything about order and none is verbatim."""
    mask_operands = problem.mask_operands
    if problem.differentiated:  # gradients have the shape of what they are taken by
        return None
    if problem.alias == "qkv" or any(g.verbatim or g.ordered for g in mask_operands):
        return None
    if not any(operand.element in BOOLEAN and operand.values.shape[-1] > 1 for operand in mask_operands):
        return None

    def longer(array: Array) -> Array:
        return np.concatenate([array, array[..., :1, :] * LARGE[problem.dtype]], axis=-2)

    changed = mapped(problem, longer, "value")
    changed = changed if problem.alias == "kv" else mapped(changed, longer, "key")
    return changed.but(mask_operands=tuple(_with_key_hidden(operand) for operand in mask_operands))


def _with_key_hidden(operand: MaskOperand) -> MaskOperand:
    """A mask over one key more: hidden where the mask is boolean, nothing added where it adds."""
    if operand.values.shape[-1] == 1:
        return operand
    more = np.zeros((*operand.values.shape[:-1], 1), dtype=operand.values.dtype)
    return replace(operand, values=np.concatenate([operand.values, more], axis=-1))
