"""Variations that take other weights or biases, or other columns of them, for a projection."""

from collections.abc import Mapping
from itertools import permutations

import numpy as np

from conformance.oracle.variation import ProblemMap, Variation, problem_row
from conformance.spec.problem import Array, Problem

PACKED = ("q", "k", "v")
WEIGHTS = {"wq": "query", "wk": "key", "wv": "value", "wo": "output"}
BIASES = {"bq": "query", "bk": "key", "bv": "value", "bo": "output"}
"""Parameter -> what its projection is called."""

SHOWS = {"bk": ", which softmax cancels but under a softcap or beside appended keys"}
"""Bias -> where alone it is seen: the same number is added to all logits of a row."""


def _interleaved_columns(heads: int, dim: int) -> Array:
    """Head h owns columns h, h + heads, h + 2 * heads, ... instead of a run of them."""
    return np.arange(heads * dim).reshape(dim, heads).T.reshape(-1)


def _interleaved_split(letters: str) -> ProblemMap:
    """Of these projections alone."""

    def apply(problem: Problem) -> Problem:
        if problem.operator != "mha" or problem.num_heads == 1:
            return problem
        params = dict(problem.params)
        for letter in letters:
            heads = problem.num_heads if letter == "q" else problem.num_kv_heads
            order = _interleaved_columns(heads, problem.value_dim if letter == "v" else problem.head_dim)
            for name in ("w" + letter, "b" + letter):
                if name in params:
                    params[name] = params[name][..., order]
        return problem.but(params=params)

    return apply


def _transposed(names: Mapping[str, str]) -> ProblemMap:
    """Transpose those of the weights that are square and of more than one number."""

    def apply(problem: Problem) -> Problem:
        square = {
            name: np.ascontiguousarray(w.T)
            for name, w in problem.params.items()
            if name in names and w.shape[0] == w.shape[1] and w.shape[0] > 1
        }
        return problem.but(params={**problem.params, **square}) if square else problem

    return apply


def _output_rows_by_head_dim(problem: Problem) -> Problem:
    """Head h meets value_dim rows of wo from h * head_dim on, or the last ones where that is too far."""
    wo, width = problem.params.get("wo"), problem.value_dim
    if wo is None or problem.num_heads == 1 or width == problem.head_dim:
        return problem
    begins = np.minimum(np.arange(problem.num_heads) * problem.head_dim, wo.shape[0] - width)
    rows = (begins[:, None] + np.arange(width)).reshape(-1)
    return problem.but(params={**problem.params, "wo": wo[rows]})


def _without(names: Mapping[str, str]) -> ProblemMap:
    """Drop these parameters."""

    def apply(problem: Problem) -> Problem:
        kept = {name: array for name, array in problem.params.items() if name not in names}
        return problem if len(kept) == len(problem.params) else problem.but(params=kept)

    return apply


def _packed(order: tuple[str, ...]) -> ProblemMap:
    """Take the first of three packed projections for that of order[0], and so on; the identity if shapes differ."""
    moved = tuple(zip(order, PACKED, strict=True))

    def apply(problem: Problem) -> Problem:
        given = problem.params
        if not given or any(given["w" + read].shape != given["w" + written].shape for read, written in moved):
            return problem
        taken = {kind + read: given.get(kind + written) for kind in "wb" for read, written in moved}
        every = {**given, **taken}.items()
        return problem.but(params={name: array for name, array in every if array is not None})

    return apply


def _activated(activation: str | None) -> ProblemMap:
    """Another activation of the projections."""

    def apply(problem: Problem) -> Problem:
        other = problem.operator == "mha" and problem.activation != activation
        return problem.but(activation=activation) if other else problem

    return apply


def _joined(problem: Problem) -> Problem:
    """Where query and output are of one width."""
    wo = problem.params.get("wo")
    width = problem.num_heads * problem.value_dim if wo is None else wo.shape[1]
    fits = problem.operator == "mha" and width == problem.query.shape[-1]
    return problem.but(residual=True) if fits and not problem.residual else problem


def _unjoined(problem: Problem) -> Problem:
    return problem.but(residual=False) if problem.residual else problem


ROWS: tuple[Variation, ...] = (
    problem_row(
        "head_split",
        "interleaved",
        "gives head h every num_heads-th column of the projections",
        "permute the columns of wq, wk, wv",
        _interleaved_split("qkv"),
    ),
    problem_row(
        "weight_orientation",
        "transposed",
        "multiplies by the transposed weights",
        "pass w.T",
        _transposed(WEIGHTS),
    ),
    *(
        problem_row(
            "weight_orientation",
            f"{name}_transposed",
            f"multiplies by the transposed weights of the {what} projection",
            f"pass {name}.T",
            _transposed({name: what}),
        )
        for name, what in WEIGHTS.items()
    ),
    problem_row(
        "weight_orientation",
        "wo_by_head_dim",
        "multiplies the result of head h by the rows of wo from h * head_dim on, whatever value_dim is",
        "",
        _output_rows_by_head_dim,
    ),
    problem_row(
        "projection_activation",
        "relu",
        "applies ReLU to the projected query, key and value",
        "",
        _activated("relu"),
    ),
    problem_row("projection_activation", "ignored", "leaves out the ReLU of the projections", "", _activated(None)),
    problem_row("residual", "unasked", "adds the query to the output, which nobody asked for", "subtract it", _joined),
    problem_row("residual", "ignored", "does not add the query to the output", "add it yourself", _unjoined),
    problem_row("projection_bias", "ignored", "drops the biases of the projections", "", _without(BIASES)),
    *(
        problem_row(
            "projection_bias",
            f"without_{name}",
            f"drops the bias of the {what} projection{SHOWS.get(name, '')}",
            "",
            _without({name: what}),
        )
        for name, what in BIASES.items()
    ),
    *(
        problem_row(
            "projection_order",
            "".join(order),
            f"takes packed projections in the order {', '.join(order)} instead of q, k, v",
            f"pack them in the order {', '.join(order)}",
            _packed(order),
        )
        for order in permutations(PACKED)
        if order != PACKED
    ),
)
