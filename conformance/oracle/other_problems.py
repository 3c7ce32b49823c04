"""Variations that solve another problem: other anchors, scales, and orders of the columns of weights."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from conformance.oracle.variation import ProblemMap, Variation
from conformance.spec.problem import Array, Group, Problem


def _causal(shift: Callable[[Problem], int]) -> Callable[[Problem], Problem]:
    """Move the diagonal of a causal flag by `shift`."""

    def moved(problem: Problem, group: Group) -> Group:
        if group.offset is None or (by := shift(problem)) == 0:
            return group
        return replace(group, values=causal(problem.seq_len_q, problem.seq_len_k, group.offset + by))

    def apply(problem: Problem) -> Problem:
        groups = tuple(moved(problem, group) for group in problem.groups)
        same = all(a is b for a, b in zip(groups, problem.groups, strict=True))
        return problem if same else problem.but(groups=groups)

    return apply


def causal(seq_len_q: int, seq_len_k: int, offset: int) -> Array:
    """True where key <= query + offset, shape (1, 1, seq_len_q, seq_len_k)."""
    return (np.arange(seq_len_k)[None, :] <= np.arange(seq_len_q)[:, None] + offset)[None, None]


def _scaled_by(factor: Callable[[Problem], float]) -> Callable[[Problem], Problem]:
    def apply(problem: Problem) -> Problem:
        ordinary = problem.head_dim**-0.5 if problem.scale is None else problem.scale
        scale = factor(problem)
        return problem if scale == ordinary else problem.but(scale=scale)

    return apply


def _interleaved_columns(heads: int, dim: int) -> Array:
    """Head h owns columns h, h + heads, h + 2 * heads, ... instead of a run of them."""
    return np.arange(heads * dim).reshape(dim, heads).T.reshape(-1)


def _interleaved_split(problem: Problem) -> Problem:
    if problem.operator != "mha" or problem.num_heads == 1:
        return problem
    params = dict(problem.params)
    for letter, heads, dim in (
        ("q", problem.num_heads, problem.head_dim),
        ("k", problem.num_kv_heads, problem.head_dim),
        ("v", problem.num_kv_heads, problem.value_dim),
    ):
        order = _interleaved_columns(heads, dim)
        for name in ("w" + letter, "b" + letter):
            if name in params:
                params[name] = params[name][..., order]
    return problem.but(params=params)


def _weights_transposed(problem: Problem) -> Problem:
    square = {
        name: np.ascontiguousarray(w.T)
        for name, w in problem.params.items()
        if name.startswith("w") and w.shape[0] == w.shape[1] and w.shape[0] > 1
    }
    return problem.but(params={**problem.params, **square}) if square else problem


def _no_biases(problem: Problem) -> Problem:
    kept = {name: array for name, array in problem.params.items() if not name.startswith("b")}
    return problem if len(kept) == len(problem.params) else problem.but(params=kept)


def row(decision: str, name: str, sentence: str, remedy: str, problem: ProblemMap) -> Variation:
    """One row of the table."""
    return Variation(decision, name, sentence, remedy, "problem", problem=problem)


ROWS: tuple[Variation, ...] = (
    row(
        "causal_alignment",
        "bottom_right",
        "aligns the causal flag to the last key",
        "pass the mask",
        _causal(lambda p: p.seq_len_k - p.seq_len_q),
    ),
    row("causal_alignment", "strict", "hides the diagonal of a causal mask", "pass the mask", _causal(lambda _: -1)),
    row("causal_alignment", "one_ahead", "shows one future key to each query", "pass the mask", _causal(lambda _: 1)),
    row(
        "scale",
        "none",
        "does not scale the logits",
        "multiply the query by 1/sqrt(head_dim)",
        _scaled_by(lambda _: 1.0),
    ),
    row(
        "scale",
        "ignored",
        "ignores the scale argument",
        "multiply the query instead",
        _scaled_by(lambda p: p.head_dim**-0.5),
    ),
    row(
        "scale",
        "all_heads",
        "scales by the width of all heads together",
        "multiply the query by sqrt(num_heads)",
        _scaled_by(lambda p: (p.num_heads * p.head_dim) ** -0.5),
    ),
    row(
        "scale",
        "value_dim",
        "scales by the width of the values",
        "multiply the query by sqrt(value_dim / head_dim)",
        _scaled_by(lambda p: p.value_dim**-0.5),
    ),
    row("scale", "seq_len", "scales by the number of keys", "", _scaled_by(lambda p: p.seq_len_k**-0.5)),
    row(
        "scale",
        "squared",
        "applies the scale twice",
        "multiply the query by sqrt(head_dim)",
        _scaled_by(lambda p: (p.head_dim**-0.5 if p.scale is None else p.scale) ** 2),
    ),
    row(
        "head_split",
        "interleaved",
        "gives head h every num_heads-th column of the projections",
        "permute the columns of wq, wk, wv",
        _interleaved_split,
    ),
    row("weight_orientation", "transposed", "multiplies by the transposed weights", "pass w.T", _weights_transposed),
    row("projection_bias", "ignored", "drops the biases of the projections", "", _no_biases),
)
