"""Deviations of the parameters of a layer: wrong weights, biases or columns, and appended keys."""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import permutations

import numpy as np

from conformance.deviations.deviation import Deviation, ProblemMap, with_params, without_params
from conformance.reference.pipeline import StepsMap, following, where_present, wrapping
from conformance.reference.steps import State, linear
from conformance.spec.problem import Array, Problem

PACKED = ("q", "k", "v")
NAMES = {"q": "query", "k": "key", "v": "value"}
BIASES = ("bq", "bk", "bv", "bo")
WEIGHTS = ("wq", "wk", "wv", "wo")
# Appended parameter -> the letter of its projection.
LEARNED = {"bias_k": "k", "bias_v": "v"}


def _interleaved_split(problem: Problem) -> Problem:
    """Assign columns h, h + heads, h + 2 * heads, ... to head h instead of consecutive columns."""
    if problem.operator != "mha" or problem.num_heads == 1:
        return problem
    moved: dict[str, Array] = {}
    for letter in PACKED:
        heads = problem.num_heads if letter == "q" else problem.num_kv_heads
        dim = problem.value_dim if letter == "v" else problem.head_dim
        order = np.arange(heads * dim).reshape(dim, heads).T.reshape(-1)
        names = [name for name in ("w" + letter, "b" + letter) if name in problem.params]
        moved |= {name: problem.params[name][..., order] for name in names}
    return with_params(problem, **moved)


def _transposed(names: tuple[str, ...], problem: Problem) -> Problem:
    """Transpose the named weights that are square and larger than 1 x 1."""
    given = {name: problem.params[name] for name in names if name in problem.params}
    square = {name: np.ascontiguousarray(w.T) for name, w in given.items() if w.shape[0] == w.shape[1] > 1}
    return with_params(problem, **square) if square else problem


def _output_rows_by_head_dim(problem: Problem) -> Problem:
    """Multiply head h by value_dim rows of wo that start at h * head_dim, or by the last ones if there are too few."""
    wo, width = problem.params.get("wo"), problem.value_dim
    if wo is None or problem.num_heads == 1 or width == problem.head_dim:
        return problem
    starts = np.minimum(np.arange(problem.num_heads) * problem.head_dim, wo.shape[0] - width)
    return with_params(problem, wo=wo[(starts[:, None] + np.arange(width)).reshape(-1)])


def _without(*names: str) -> ProblemMap:
    return lambda problem: without_params(problem, *names)


def _packed(order: tuple[str, ...], problem: Problem) -> Problem:
    """Read three packed projections in another order; the same problem if their shapes differ."""
    moved, given = tuple(zip(order, PACKED, strict=True)), problem.params
    if not given or any(given["w" + read].shape != given["w" + written].shape for read, written in moved):
        return problem
    taken = {kind + read: given.get(kind + written) for kind in "wb" for read, written in moved}
    every = {**given, **taken}.items()
    return problem.but(params={name: array for name, array in every if array is not None})


def _packed_by_head(problem: Problem) -> Problem:
    """Read columns that are packed as (qkv, head, dim) as (head, qkv, dim)."""
    weights = [problem.params[name] for name in ("wq", "wk", "wv") if name in problem.params]
    if problem.num_heads == 1 or len(weights) < len(PACKED) or len({each.shape for each in weights}) > 1:
        return problem
    moved: dict[str, Array] = {}
    for kind in "wb":
        packed = [problem.params[kind + letter] for letter in PACKED if kind + letter in problem.params]
        if len(packed) == len(PACKED):
            read = np.concatenate(packed, axis=-1).reshape(*packed[0].shape[:-1], problem.num_heads, 3, -1)
            moved |= {kind + letter: read[..., n, :].reshape(packed[0].shape) for n, letter in enumerate(PACKED)}
    return with_params(problem, **moved)


def _taken_from(source: str, target: str, names: str, problem: Problem) -> Problem:
    """
    Use the weight and bias (or only the bias) of one projection for another, if they have the same number of columns.

    If only one of the two has a bias, the bias of the other is zero.
    """
    params = problem.params
    taken = {name + target: params[name + source] for name in names if name + source in params}
    dropped = [name + target for name in names if name + target in params and name + target not in taken]
    if not (taken or dropped) or params["w" + source].shape[-1] != params["w" + target].shape[-1]:
        return problem
    if "w" in names and params["w" + source].shape != params["w" + target].shape:
        return problem
    return without_params(with_params(problem, **taken), *dropped)


def _query_bias_unscaled(problem: Problem) -> Problem:
    scale = problem.applied_scale
    unscaled = "bq" not in problem.params or scale in (0.0, 1.0)
    return problem if unscaled else with_params(problem, bq=problem.params["bq"] / scale)


def _output_bias_times(count: Callable[[Problem], int], problem: Problem) -> Problem:
    bias, times = problem.params.get("bo"), count(problem)
    return problem if bias is None or times == 1 else with_params(problem, bo=bias * times)


def _no_output_projection(problem: Problem) -> Problem:
    if "wo" not in problem.params or problem.params["wo"].shape != (problem.num_heads * problem.value_dim,) * 2:
        return problem
    return without_params(problem, "wo", "bo")


def _activated(activation: str | None, problem: Problem) -> Problem:
    """Replace the activation of the projections."""
    differs = problem.operator == "mha" and problem.activation != activation
    return problem.but(activation=activation) if differs else problem


def _with_residual(problem: Problem) -> Problem:
    """Add a residual, if query and output have the same width."""
    wo = problem.params.get("wo")
    width = problem.num_heads * problem.value_dim if wo is None else wo.shape[1]
    fits = problem.operator == "mha" and width == problem.query.shape[-1]
    return problem.but(residual=True) if fits and not problem.residual else problem


def _appended_before(problem: Problem) -> Problem:
    """Append the learned rows before the projection, as if they were inputs, if the widths allow it."""
    params: Mapping[str, Array] = problem.params
    for name, letter in LEARNED.items():
        weight = params.get("w" + letter)
        if name not in params or weight is None or weight.shape[0] != params[name].shape[0]:
            return problem
        params = {**params, name: linear(params[name][None], weight, params.get("b" + letter))[0]}
    return problem.but(params=params)


def _appended(problem: Problem) -> int:
    return problem.weights_shape[-1] - problem.seq_len_k


def _masked(attended: Callable[[State], Array]) -> StepsMap:
    """Apply masks to the appended keys; `attended` returns which of them are attended, (..., seq_len_q, extra)."""

    def mask(state: State) -> State:
        if not _appended(state.problem) or not state.problem.mask_operands:
            return state
        allowed = state.allowed.copy()
        allowed[..., state.problem.seq_len_k :] &= attended(state)
        return state.but(allowed=allowed)

    return where_present("append", following("append", "appended_keys", mask))


def _causal_over_appended(state: State) -> Array:
    """Apply the causal mask to appended keys, which are later than all others."""
    problem = state.problem
    offsets = [operand.offset for operand in problem.mask_operands if operand.offset is not None]
    if not offsets:
        return np.asarray(True)
    keys = problem.seq_len_k + np.arange(_appended(problem))
    return np.asarray(keys[None, :] <= np.arange(problem.seq_len_q)[:, None] + min(offsets))


def _appended_first(state: State, append: Callable[[State], State]) -> State:
    """Put appended keys first, although the masks are extended at the end."""
    appended, extra = append(state), _appended(state.problem)
    return appended.but(key=np.roll(appended.key, extra, axis=2), value=np.roll(appended.value, extra, axis=2))


def _row(decision: str, name: str, problem: ProblemMap, *, bounded: bool = True) -> Deviation:
    return Deviation(decision, name, problem=problem, bounded=bounded)


ROWS: tuple[Deviation, ...] = (
    _row("head_split", "interleaved", _interleaved_split),
    _row("weight_orientation", "transposed", partial(_transposed, WEIGHTS)),
    *(_row("weight_orientation", f"{name}_transposed", partial(_transposed, (name,))) for name in WEIGHTS),
    _row("weight_orientation", "wo_by_head_dim", _output_rows_by_head_dim),
    _row("projection_activation", "relu", partial(_activated, "relu")),
    _row("projection_activation", "ignored", partial(_activated, None)),
    _row("residual", "unasked", _with_residual),
    _row("residual", "ignored", lambda problem: problem.but(residual=False) if problem.residual else problem),
    _row("projection_bias", "ignored", _without(*BIASES)),
    *(_row("projection_bias", f"without_{name}", _without(name)) for name in BIASES),
    _row("projection_bias", "bq_unscaled", _query_bias_unscaled),
    _row("projection_bias", "bo_of_each_head", partial(_output_bias_times, lambda p: p.num_heads), bounded=False),
    _row("projection_bias", "bo_twice", partial(_output_bias_times, lambda _: 2), bounded=False),
    *(
        _row("projection_bias", f"b{source}_for_{NAMES[target]}", partial(_taken_from, source, target, "b"))
        for source, target in permutations(PACKED, 2)
        if target != "k"  # softmax cancels it
    ),
    *(
        _row("projection_order", f"w{source}_for_{NAMES[target]}", partial(_taken_from, source, target, "wb"))
        for source, target in permutations(PACKED, 2)
    ),
    *(
        _row("projection_order", "".join(order), partial(_packed, order))
        for order in permutations(PACKED)
        if order != PACKED
    ),
    _row("projection_order", "by_head", _packed_by_head),
    _row("output_projection", "missing", _no_output_projection),
    _row("bias_kv", "ignored", _without(*LEARNED)),
    _row("bias_kv", "projected", _appended_before, bounded=False),
    _row("zero_key", "ignored", lambda problem: problem.but(zero_key=False) if problem.zero_key else problem),
    Deviation("appended_keys", "masked", steps=_masked(lambda _: np.asarray(False))),
    Deviation("appended_keys", "under_causal", steps=_masked(_causal_over_appended)),
    Deviation("appended_keys", "first", steps=where_present("append", wrapping("append", _appended_first))),
)
