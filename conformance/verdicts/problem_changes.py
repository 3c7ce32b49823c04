"""Changes of a problem that `invariants` uses: of masks, padding, values, and the order along an axis."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from conformance.spec.masks import as_float
from conformance.spec.problem import Array, MaskOperand, Problem

# The axes of masks, one letter each: batch, num_heads, seq_len_q, seq_len_k.
AXES = "bhqk"

# Parameters whose layout by heads is known.
PARAMETERS = frozenset(kind + letter for kind in "wb" for letter in "qkvo")

Index = Sequence[int]


def axes_of(output: str, operator: str) -> str:
    """The axes of an output as letters of AXES, with e for the feature axis."""
    if output == "weights":
        return AXES
    if output == "weights_mean":
        return "bqk"
    return "bhqe" if operator == "sdpa" else "bqe"


def take(array: Array, axes: str, axis: str, index: Index) -> Array:
    """Entries of an array along an axis; the array itself if it does not have that axis."""
    return np.take(array, index, axis=axes.index(axis)) if axis in axes else array


def take_batch_elements(problem: Problem, index: Index) -> Problem:
    """The problem with some of its batch elements."""
    return _mapped(problem, lambda array: np.take(array, index, axis=0), ("query", "key", "value")).but(
        mask_operands=_mask_operands(problem, "b", index)
    )


def take_keys(problem: Problem, index: Index) -> Problem:
    """The problem with keys and values reordered; the queries as well if query and key are one tensor."""
    shared = problem.alias == "qkv"
    names = ("query", "key", "value") if shared else ("key", "value")
    mask_operands = _mask_operands(problem, "k", index)
    moved = _mapped(problem, lambda array: np.take(array, index, axis=-2), names)
    return moved.but(
        mask_operands=_mask_operands(moved.but(mask_operands=mask_operands), "q", index) if shared else mask_operands
    )


def take_heads(problem: Problem, shared: Index) -> Problem:
    """The problem with its heads reordered; `shared` is the order of the key heads, query heads move with theirs."""
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
    """The order of the query heads that follows from an order of the key heads."""
    times = problem.num_heads // problem.num_kv_heads
    return [head * times + each for head in shared for each in range(times)]


def blocks(array: Array, width: int, order: Index) -> Array:
    """The array with the blocks of its last axis, each `width` wide and one for each head, reordered."""
    heads = array.reshape(*array.shape[:-1], -1, width)
    return np.take(heads, order, axis=-2).reshape(array.shape)


def _mask_operands(problem: Problem, axis: str, index: Index) -> tuple[MaskOperand, ...]:
    """The masks with entries taken along an axis; masks that broadcast along it are unchanged."""
    dimension = AXES.index(axis)
    return tuple(
        replace(operand, values=np.take(operand.values, index, axis=dimension))
        if operand.values.shape[dimension] > 1
        else operand
        for operand in problem.mask_operands
    )


def mapped(problem: Problem, change: Callable[[Array], Array], name: str) -> Problem:
    """Change key or value, and every input that is the same tensor."""
    names = {"none": (name,), "kv": ("key", "value"), "qkv": ("query", "key", "value")}[problem.alias]
    return _mapped(problem, change, names)


def _mapped(problem: Problem, change: Callable[[Array], Array], names: Sequence[str]) -> Problem:
    return problem.but(**{name: change(getattr(problem, name)) for name in names})


# Factor by which an appended key is larger, so that a leak is visible.
LARGE = {"float64": 2.0**16, "float32": 2.0**16, "float16": 2.0**6, "bfloat16": 2.0**6}

# Outputs for which the effect of a change is known.
RELATED = frozenset({"output", "weights", "weights_mean"})

BOOLEAN = ("bool", "int")


def is_changeable(problem: Problem) -> bool:
    """Whether relations are checked: only output and weights are requested, and the batch is not an expanded view."""
    return RELATED.issuperset(problem.outputs) and problem.layout != "expanded"


def seen(problem: Problem) -> Array:
    """Which keys some query attends: (batch, seq_len_k), for sdpa (batch, num_kv_heads, seq_len_k)."""
    by_head = np.asarray(problem.attended().any(axis=2))
    if problem.operator == "mha":
        return np.asarray(by_head.any(axis=1))
    sharing = (problem.batch, problem.num_kv_heads, -1, problem.seq_len_k)
    return np.asarray(by_head.reshape(sharing).any(axis=2))


def with_visible_values_changed(problem: Problem) -> Problem | None:
    """Flip the sign of one attended value in every batch element and head, at a different key in each."""
    visible = seen(problem)
    chosen = np.zeros_like(visible)
    for number, row in enumerate(np.ndindex(visible.shape[:-1])):
        keys = np.flatnonzero(visible[row])
        if keys.size:
            chosen[(*row, keys[-1 - number % keys.size])] = True
    if not chosen.any():
        return None
    return mapped(problem, lambda array: np.where(chosen[..., None], -array, array), "value")


def with_last_key_changed(problem: Problem) -> Problem | None:
    """Flip the sign of the last key and value, if a causal mask or a window hides them from some query."""
    hidden = not problem.attended()[..., -1].all()
    if (
        not hidden
        or problem.alias == "qkv"
        or not any({"causal", "window"} & {*g.kinds} for g in problem.mask_operands)
    ):
        return None

    def flipped(array: Array) -> Array:
        return np.concatenate([array[..., :-1, :], -array[..., -1:, :]], axis=-2)

    changed = mapped(problem, flipped, "value")
    return changed if problem.alias == "kv" else mapped(changed, flipped, "key")


def with_mask_as_floats(problem: Problem) -> Problem | None:
    """Convert boolean masks to additive masks of 0 and -inf."""

    def is_ordinary(operand: MaskOperand) -> bool:
        return operand.element in BOOLEAN and not operand.verbatim and not operand.ordered

    if not any(map(is_ordinary, problem.mask_operands)):
        return None
    return problem.but(
        mask_operands=tuple(as_float(operand) if is_ordinary(operand) else operand for operand in problem.mask_operands)
    )


def with_poison(problem: Problem, which: str) -> Problem | None:
    """Put NaN into the keys, or values, that no query attends; only if a single mask hides them."""
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
    """Append a large key that a boolean mask hides; only if no mask depends on order and none is verbatim."""
    mask_operands = problem.mask_operands
    if problem.differentiated:  # gradients have the shape of the input
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
    """The mask extended by one key: hidden by a boolean mask, unchanged by an additive mask."""
    if operand.values.shape[-1] == 1:
        return operand
    more = np.zeros((*operand.values.shape[:-1], 1), dtype=operand.values.dtype)
    return replace(operand, values=np.concatenate([operand.values, more], axis=-1))
