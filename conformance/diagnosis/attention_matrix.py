"""Reads the effective attention matrix of a subject with one-hot values, and compares it with the expected one."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from conformance.deviations.catalogue import evaluate
from conformance.deviations.deviation import Dialect
from conformance.reference.steps import State
from conformance.spec.problem import Array, Problem

# Maximum number of calls for reading one pattern.
MAX_CALLS = 24


@dataclass(frozen=True)
class Piece:
    """A call that reads the weights of some heads and keys; head n of them starts at column n * len(keys)."""

    heads: range
    keys: range

    def asked_of(self, problem: Problem) -> Problem:
        """The problem with values, and for mha projections, that read these weights."""
        value = np.zeros_like(problem.value)
        value[..., self.keys, range(len(self.keys))] = 1.0
        changed = problem.but(value=value)
        return changed.but(params=_params(problem, self.heads, len(self.keys))) if problem.params else changed


def pieces(problem: Problem) -> tuple[Piece, ...] | str:
    """The calls that read the pattern of a problem, or the reason why it is not read."""
    if problem.alias != "none":
        return "key and value are one tensor, so the values cannot be replaced"
    if "output" not in problem.outputs:
        return "the output is not requested"
    if problem.operator == "mha" and "wo" not in problem.params:
        return "the layer has no output projection that could be set"
    if problem.residual:
        return "the layer adds the query to the output"
    width, heads = _capacity(problem)
    found = [
        Piece(range(head, min(head + heads, problem.num_heads)), range(key, min(key + width, problem.seq_len_k)))
        for key in range(0, problem.seq_len_k, width)
        for head in range(0, problem.num_heads, heads)
    ]
    if len(found) > MAX_CALLS:
        return f"reading them takes {len(found)} calls; the limit is {MAX_CALLS}"
    return tuple(found)


def _capacity(problem: Problem) -> tuple[int, int]:
    """The number of keys and the number of heads that one call can read."""
    if problem.operator == "sdpa":
        return problem.value_dim, problem.num_heads
    sizes = problem.sizes()
    width = min(sizes["vdim"], problem.value_dim, sizes["output_dim"], problem.seq_len_k)
    return width, min(problem.num_heads, sizes["output_dim"] // width)


def _params(problem: Problem, heads: range, width: int) -> dict[str, Array]:
    """Projections that pass the first `width` features through, for some heads side by side."""
    params = dict(problem.params)
    params |= {name: np.zeros_like(params[name]) for name in ("wv", "wo", "bv", "bo", "bias_v") if name in params}
    features = np.arange(width)
    for head in range(problem.num_kv_heads):
        params["wv"][features, head * problem.value_dim + features] = 1.0
    for index, head in enumerate(heads):
        params["wo"][head * problem.value_dim + features, index * width + features] = 1.0
    return params


def joined(problem: Problem, read: Sequence[tuple[Piece, Array]]) -> Array | None:
    """The pattern (batch, num_heads, seq_len_q, seq_len_k) from the outputs; None if one has a wrong shape."""
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
        for index, head in enumerate(piece.heads):
            pattern[:, head][..., piece.keys] = output[..., index * width : (index + 1) * width]
    return pattern


# Factor of the tolerance where two replies are compared, because both have errors.
SLACK = 2.0

# Maximum relative tolerance of a weight for which its logarithm is informative.
CLEAR = 0.25

# Minimum number of weights that a rule must fit in addition to its free parameters.
FREEDOM = 4


@dataclass(frozen=True, eq=False)
class WeightPattern:
    """Expected and actual weights of a problem under a dialect, and their tolerance, each of the logits' shape."""

    problem: Problem
    dialect: Dialect
    expected: Array
    actual: Array
    tolerance: Array

    @cached_property
    def state(self) -> State:
        """The intermediate results of the oracle."""
        return evaluate(self.problem, self.dialect).state

    @cached_property
    def logits(self) -> Array:
        """The input of the softmax, -inf where masked; without keys that the layer appends."""
        return self.state.logits[..., : self.expected.shape[-1]]

    @cached_property
    def wrong(self) -> Array:
        """Where a weight differs by more than its tolerance."""
        return np.asarray(np.abs(self.actual - self.expected) > self.tolerance)

    @cached_property
    def masked(self) -> Array:
        """Where the weight must be zero because the position is masked."""
        return np.asarray((self.expected == 0.0) & ~np.isfinite(self.logits))

    @cached_property
    def lost(self) -> Array:
        """Where a weight is zero and must not be."""
        return np.asarray((self.actual == 0.0) & (self.expected > self.tolerance))

    @cached_property
    def leaked(self) -> Array:
        """Where a weight is not zero and must be."""
        return np.asarray(self.masked & self.wrong)

    @cached_property
    def relative(self) -> Array:
        """The median relative tolerance of the weights of each row, (..., seq_len_q, 1)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            parts = np.where(self.expected > 0.0, self.tolerance / self.expected, np.inf)
        parts = np.sort(parts, axis=-1)
        middle = np.maximum(np.sum(self.expected > 0.0, axis=-1, keepdims=True) - 1, 0) // 2
        return np.asarray(np.take_along_axis(parts, middle, axis=-1))

    @cached_property
    def clear(self) -> Array:
        """Where the logarithm of a weight is informative."""
        least = self.tolerance / CLEAR
        return np.asarray((self.expected > least) & (self.actual > least))

    @cached_property
    def change(self) -> Array:
        """log(actual / expected) where it is informative, else 0."""
        ones = np.ones(1)
        return np.log(np.where(self.clear, self.actual, ones) / np.where(self.clear, self.expected, ones))

    @cached_property
    def trust(self) -> Array:
        """The weighting of each logarithm: at most one over its variance; 0 where it is not informative."""
        least = np.where(self.clear, np.minimum(self.expected, self.actual), 1.0)
        return np.asarray(np.where(self.clear, 1.0 / np.maximum(self.tolerance / least, 1e-15) ** 2, 0.0))

    @property
    def sums(self) -> Array:
        """The sums of the rows, (batch, num_heads, seq_len_q)."""
        return np.asarray(self.actual.sum(axis=-1))

    def centred(self, values: Array) -> Array:
        """Values minus the mean of their row, over the informative positions."""
        total = self.trust.sum(axis=-1, keepdims=True)
        mean = (self.trust * values).sum(axis=-1, keepdims=True) / np.where(total > 0.0, total, 1.0)
        return np.asarray(values - mean)

    def slope(self, values: Array) -> float | None:
        """The factor with which `values` are added to the logits, up to a constant per row; None if undetermined."""
        most, least = (np.where(self.clear, values, -np.inf), np.where(self.clear, values, np.inf))
        varies = most.max(axis=-1) > least.min(axis=-1)
        if np.sum(self.clear[varies]) - np.sum(varies) < 1 + FREEDOM:
            return None
        steps = self.centred(values)
        square = np.sum(self.trust * steps**2)
        return float(np.sum(self.trust * steps * self.change) / square) if square > 0.0 else None

    def follows(self, added: Array, stretch: float = 1.0) -> bool:
        """Whether every weight is as if `added` were added to the logits, whatever the row sums are."""
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(self.expected) + np.where(self.expected > 0.0, added, 0.0)
            top = logs.max(axis=-1, keepdims=True)
            weights = np.exp(logs - np.where(np.isfinite(top), top, 0.0))
            parts = weights / weights.sum(axis=-1, keepdims=True)
            found = np.nan_to_num(parts) * self.sums[..., None]
            allowed = SLACK * max(1.0, stretch) * (self.tolerance + np.abs(found) * self.relative)
        return bool(np.all(np.abs(self.actual - found) <= np.where(found == 0.0, SLACK * self.tolerance, allowed)))
