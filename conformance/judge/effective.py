"""
The effective pattern: with one-hot values the output is the attention matrix, also where no weights are returned.

The identity is asked in pieces of the case's own shape, so that the very same path is read and nothing new is compiled:
piece by piece the values of a few keys are unit vectors and all others zero. In mha the projections of the value and of
the output are set to read as many heads at once as the width of the output has room for.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from conformance.spec.problem import Array, Problem

MOST_CALLS = 24
"""A pattern that takes more calls is not read."""


@dataclass(frozen=True)
class Piece:
    """A call that reads the weights of some heads on some keys: head n of them stands at column n * len(keys)."""

    heads: range
    keys: range

    def asked_of(self, problem: Problem) -> Problem:
        """The problem with values, and in mha projections, that read these weights."""
        value = np.zeros_like(problem.value)
        value[..., self.keys, range(len(self.keys))] = 1.0
        asked = problem.but(value=value)
        return asked.but(params=_params(problem, self.heads, len(self.keys))) if problem.params else asked


def pieces(problem: Problem) -> tuple[Piece, ...] | str:
    """The calls that read the pattern of a problem, or why it is not read."""
    if problem.alias != "none":
        return "key and value are one tensor: the values cannot be replaced"
    if "output" not in problem.outputs:
        return "the output is not asked for"
    if problem.operator == "mha" and "wo" not in problem.params:
        return "there is no projection of the output that could be set"
    if problem.residual:
        return "the query is added to the output"
    width, heads = _capacity(problem)
    found = [
        Piece(range(head, min(head + heads, problem.num_heads)), range(key, min(key + width, problem.seq_len_k)))
        for key in range(0, problem.seq_len_k, width)
        for head in range(0, problem.num_heads, heads)
    ]
    if len(found) > MOST_CALLS:
        return f"it takes {len(found)} calls, more than {MOST_CALLS}"
    return tuple(found)


def _capacity(problem: Problem) -> tuple[int, int]:
    """How many keys, and how many heads, one call can read."""
    if problem.operator == "sdpa":
        return problem.value_dim, problem.num_heads
    sizes = problem.sizes()
    width = min(sizes["vdim"], problem.value_dim, sizes["output_dim"], problem.seq_len_k)
    return width, min(problem.num_heads, sizes["output_dim"] // width)


def _params(problem: Problem, heads: range, width: int) -> dict[str, Array]:
    """Projections that hand the first `width` features through, for some heads side by side."""
    params = dict(problem.params)
    params |= {name: np.zeros_like(params[name]) for name in ("wv", "wo", "bv", "bo", "bias_v") if name in params}
    features = np.arange(width)
    for head in range(problem.num_kv_heads):
        params["wv"][features, head * problem.value_dim + features] = 1.0
    for place, head in enumerate(heads):
        params["wo"][head * problem.value_dim + features, place * width + features] = 1.0
    return params


def joined(problem: Problem, read: Sequence[tuple[Piece, Array]]) -> Array | None:
    """The pattern (batch, num_heads, seq_len_q, seq_len_k) from the outputs; None where one has another shape."""
    pattern = np.zeros(problem.logits_shape)
    for piece, output in read:
        width = len(piece.keys)
        if problem.operator == "sdpa":
            if output.shape != (*pattern.shape[:3], problem.value_dim):
                return None
            pattern[..., piece.keys] = output[..., :width]
            continue
        if output.shape != (*pattern.shape[:1], pattern.shape[2], problem.sizes()["output_dim"]):
            return None
        for place, head in enumerate(piece.heads):
            pattern[:, head][..., piece.keys] = output[..., place * width : (place + 1) * width]
    return pattern
