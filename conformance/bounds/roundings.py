"""
The errors that enter the logits: the declared roundings, a softcap, and the errors of query, key and value.

The source is docs/tolerance.md, sections 2 and 3. `var_*` are variances, `err_*` worst cases; shapes are those of the
operand, (batch, num_heads, seq_len, dim).
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from conformance.bridge.profile import UNIT, Profile
from conformance.deviations.catalogue import OracleAnswer, varied_steps
from conformance.reference.pipeline import Step, Steps
from conformance.reference.steps import State, begin, linear, softcapped
from conformance.spec.problem import Array, Problem
from conformance.spec.rounding import smallest_normal, smallest_subnormal

Real = float | Array

# Number of partial sums, in the natural order of the keys, that represent all of them (section 3).
BLOCKS = 8


@dataclass(frozen=True)
class Roundings:
    """
    The unit roundoff of every field of a profile; 0 if nothing is rounded.

    entry: of inputs and parameters, if `store` is coarser than their dtype. mm: of the operands of matrix products, if
    that is coarser than the dtype that stores them. shift: the average relative shrinkage of the results of matrix
    products, if these are truncated; store and score are those of a truncation then, twice as large. shrink: that of
    a matrix product whose operands are truncated. eta_*: largest absolute error near zero. tiny_*: the size below which
    an underflow is possible.
    """

    store: float
    acc: float
    score: float
    soft: float
    sum: float
    prob: float
    scale: float
    lse: float
    mm: float
    pre: float
    bias_sum: float
    entry: float
    shift: float
    shrink: float
    exp_ulp: float
    eta_store: float
    eta_score: float
    eta_prob: float
    eta_soft: float
    tiny_prob: float
    tiny_soft: float

    @property
    def product(self) -> float:
        """Of the product of query and key."""
        return self.score


@lru_cache(maxsize=256)
def roundings(profile: Profile, dtype: str) -> Roundings:
    """
    Return the roundings of `profile` on a problem whose inputs have the dtype `dtype`.

    A truncated product has a relative error in [-2u, 0]: its mean square is that of a rounding of 2u, (2u)^2/3, and on
    average it is u too small. The average part does not cancel: query, key and logits that are each u too small act
    like a scale that is 3u too small, which counts twice (`rows.constant_slopes`); values and heads add to the output
    (`shift`). Truncated operands, of relative error in [-mm, 0], make each product mm too small on average (`shrink`).
    """
    store = UNIT[profile.store]
    width = truncation(profile)
    mm = 0.0 if profile.mm is None else UNIT[profile.mm]
    shift, shrink = store if profile.truncated else 0.0, mm if profile.mm in TRUNCATED else 0.0
    return Roundings(
        store=width * store,
        acc=UNIT[profile.acc],
        score=width * UNIT[profile.score],
        soft=UNIT[profile.soft],
        sum=UNIT[profile.sum],
        prob=UNIT[profile.prob],
        scale=UNIT[profile.scale] + 1.5 * (shift + shrink),
        lse=UNIT[profile.lse],
        mm=mm if mm > store else 0.0,
        pre=0.0 if profile.pre is None else UNIT[profile.pre],
        bias_sum=max(UNIT[profile.acc], 0.0 if profile.bias_sum is None else UNIT[profile.bias_sum]),
        entry=store if store > UNIT[dtype] else 0.0,
        shift=shift,
        shrink=shrink,
        exp_ulp=profile.exp_ulp,
        eta_store=underflow(profile.store, ftz=profile.ftz),
        eta_score=underflow(profile.score, ftz=profile.ftz),
        eta_prob=underflow(profile.prob, ftz=profile.ftz),
        eta_soft=underflow(profile.soft, ftz=profile.ftz),
        tiny_prob=2.0 * smallest_normal(profile.prob),
        tiny_soft=2.0 * smallest_normal(profile.soft),
    )


def truncation(profile: Profile) -> float:
    """Return the maximum rounding error of `profile` relative to rounding to nearest: 2 for truncation, else 1."""
    return 2.0 if profile.truncated else 1.0


def underflow(dtype: str, *, ftz: bool) -> float:
    """Return eta, the smallest number that is never flushed to 0: subnormal for float16 without ftz, else normal."""
    return smallest_subnormal(dtype) if dtype == "float16" and not ftz else smallest_normal(dtype)


def variance(u: float) -> float:
    """Return the variance of one relative rounding error, uniform in [-u, u]: w = u^2/3."""
    return u * u / 3.0


def gamma(terms: Real, u: float) -> Real:
    """Return the worst relative error of n successive roundings: n u / (1 - n u); infinite where n u >= 1."""
    product = terms * u
    return np.where(product < 1.0, product / np.maximum(1.0 - product, u), np.inf)


def recursive_sum(terms: Real, total: Array, squares: Array, u: float) -> Array:
    """
    Return the variance of a sum of n rounded terms in random order: D(n, y, t2, u) = u^2/3 (n/3 y^2 + (n/6 + 1) t2).

    total: y, the sum. squares: t2, the sum of the squared terms. The factor is the expected sum of the squared
    partial sums.
    """
    return variance(u) * (terms / 3.0 * total**2 + (terms / 6.0 + 1.0) * squares)


def ordered_sum(probs: Array, values: Array, squares: Array, u: float) -> Array:
    """
    Return the variance of the sum probs . values in the natural order of the keys: w (S/8 sum_m partial_m^2 + t2).

    Eight partial sums represent all S. Shapes (..., q, k) and (..., k, d); squares: t2 = probs^2 . values^2.
    """
    keys = probs.shape[-1]
    edges = sorted({-(-keys * m // BLOCKS) for m in range(BLOCKS + 1)})
    partial = np.zeros_like(squares)
    total = np.zeros_like(squares)
    for low, high in pairwise(edges):
        partial += probs[..., low:high] @ values[..., low:high, :]
        total += (high - low) * partial**2
    return variance(u) * (total + squares)


def result_rounding(profile: Profile, dtype: str) -> tuple[float, float]:
    """
    Return unit roundoff and eta of a result that is returned as `dtype`.

    A dtype coarser than the store dtype rounds the stored result once more; a finer one changes nothing.
    """
    unit = truncation(profile) * UNIT[profile.store]
    if UNIT[dtype] > UNIT[profile.store]:
        unit += UNIT[dtype]
    eta = underflow(profile.store, ftz=profile.ftz)
    return unit, eta if dtype == profile.store else eta + underflow(dtype, ftz=profile.ftz)


def slope(state: State) -> Array | None:
    """Return the derivative g of the capped by the scaled logits, (b, h, q, k); None without a softcap."""
    limit = state.problem.softcap
    if limit is None:
        return None
    with np.errstate(invalid="ignore"):
        return np.nan_to_num(1.0 - (state.capped / limit) ** 2, nan=1.0)


def capped_variance(variances: Array, scaled: Array, capped: Array, gain: Array, rounds: Roundings) -> Array:
    """Return the variance of z from that of a: g^2 (v + w(score) a^2) + (2 w(score) + w(soft) exp_ulp^2) z^2."""
    own = 2.0 * variance(rounds.score) + variance(rounds.soft) * rounds.exp_ulp * rounds.exp_ulp
    return np.asarray(gain**2 * (variances + variance(rounds.score) * scaled**2) + own * capped**2)


def worst_capped(state: State, error: Array, rounds: Roundings) -> Array:
    """
    Return the worst error of z from that of a, ds: the cap is monotonic, so it suffices to cap a - ds' and a + ds'.

    ds' = ds + (score + scale) (|a| + ds) + C eta; then (exp_ulp soft + 2 score + scale) (|z| + moved) + (1 + C) eta.
    """
    limit = state.problem.softcap
    if limit is None:
        return error
    with np.errstate(invalid="ignore"):
        entering = error + (rounds.score + rounds.scale) * (np.abs(state.scaled) + error) + limit * rounds.eta_score
        below, above = (
            np.abs(softcapped(state.scaled + sign * entering, limit) - state.capped) for sign in (-1.0, 1.0)
        )
        moved = np.maximum(below, above)
        own = rounds.exp_ulp * rounds.soft + 2.0 * rounds.score + rounds.scale
        return np.asarray(moved + own * (np.abs(state.capped) + moved) + (1.0 + limit) * rounds.eta_score)


# Parameters that are appended to the projected key and value.
APPENDED = ("bias_k", "bias_v")

# Names of operands that are truncated towards zero.
TRUNCATED = ("tf32_truncated",)

# The error of an operand that was never rounded.
NOTHING = np.zeros((1, 1, 1, 1))


@dataclass(frozen=True, eq=False)
class Operands:
    """Query, key and value with non-finite numbers set to zero (no finite output depends on them), and their errors."""

    query: Array
    key: Array
    value: Array
    var_query: Array
    var_key: Array
    var_value: Array
    err_query: Array
    err_key: Array
    err_value: Array


def composed(answer: OracleAnswer, score: str) -> Steps:
    """Return the steps that produced `answer`."""
    return varied_steps(answer.state.problem.operator, answer.deviations, score)


def step_of(steps: Steps, name: str) -> Step:
    """Return the step called `name`."""
    return next(step for step in steps if step.name == name)


def finite(values: Array) -> Array:
    """Replace NaN and infinities by zero."""
    return values if np.isfinite(values).all() else np.where(np.isfinite(values), values, 0.0)


def operands(state: State, steps: Steps, rounds: Roundings) -> Operands:
    """Return the operands of attention and their errors, from rounding on entry or from the projections."""
    query, key, value = finite(state.query), finite(state.key), finite(state.value)
    if state.problem.operator == "mha":
        return Operands(query, key, value, *_projected(state, steps, rounds))
    if not rounds.entry:
        return Operands(query, key, value, *(NOTHING,) * 6)
    variances, worst = zip(*(_entry_error(array, rounds) for array in (query, key, value)), strict=True)
    return Operands(query, key, value, *variances, *worst)


def _projected(state: State, steps: Steps, rounds: Roundings) -> tuple[Array, ...]:
    """Return variances and worst errors of the projections, split and grouped as the answer does."""
    problem = state.problem
    inputs = (("q", problem.query), ("k", problem.key), ("v", problem.value))
    pairs = [
        _activated(problem, letter, x, projection_error(x, *parameters(problem, letter), rounds))
        for letter, x in ((letter, finite(x)) for letter, x in inputs)
    ]
    arranged = []
    for which, (query, key, value) in enumerate(zip(*pairs, strict=True)):
        learned = {
            name: _entry_error(problem.params[name], rounds)[which] for name in APPENDED if name in problem.params
        }
        given = problem.but(params={**problem.params, **learned})
        moved = begin(given).but(query=query, key=key, value=value)
        for step in _arrangement(steps):
            moved = step.apply(moved)
        arranged += [moved.query, moved.key, moved.value]
    return tuple(arranged)


def _entry_error(array: Array, rounds: Roundings) -> tuple[Array, Array]:
    """Return variance and worst case of numbers that are rounded on entry, in their shape."""
    return variance(rounds.entry) * array**2, rounds.entry * np.abs(array)


def parameters(problem: Problem, letter: str) -> tuple[Array, Array | None]:
    """Return weight and bias of a projection."""
    return problem.params["w" + letter], problem.params.get("b" + letter)


def _activated(problem: Problem, letter: str, x: Array, errors: tuple[Array, Array]) -> tuple[Array, Array]:
    """Return variance and worst case after ReLU: zero where the projection is surely negative."""
    if problem.activation is None:
        return errors
    moved, worst = errors
    cut = linear(x, *parameters(problem, letter)) < -worst
    return np.where(cut, 0.0, moved), np.where(cut, 0.0, worst)


def _arrangement(steps: Steps) -> Steps:
    """Return the steps between projection and products; they only move numbers, so errors move in the same way."""
    names = [step.name for step in steps]
    return steps[names.index("project") + 1 : names.index("multiply")]


def projection_error(x: Array, weight: Array, bias: Array | None, rounds: Roundings) -> tuple[Array, Array]:
    """
    Return variance and worst case of Y = X W + b, (batch, seq_len, width) (section 3, "multi-head attention").

    v = D(E + 1, Y, t2, acc) + (2/3 mm^2 + 2 w(entry)) X^2 W^2 + w(entry) b^2 + w(store) (2 Y^2 + b^2), where
    t2 = X^2 W^2 + b^2; without a bias Y is rounded once.
    Worst: gamma_{E+1} (|X| |W| + |b|) + 2 (mm + entry) |X| |W| + entry |b| + store (2 |Y| + |b|) + eta.
    """
    biased, bias = bias is not None, np.zeros(1) if bias is None else bias
    terms, times = x.shape[-1] + biased, 1.0 + biased
    total, shift = x @ weight + bias, np.abs(bias)
    squares = x**2 @ weight**2
    sizes = np.abs(x) @ np.abs(weight)
    operand = 2.0 * (variance(rounds.mm) + variance(rounds.entry)) * squares
    inexact = 2.0 * (rounds.mm + rounds.entry) * sizes + rounds.eta_store
    stored = variance(rounds.store) * (times * total**2 + bias**2) + variance(rounds.entry) * bias**2
    moved = recursive_sum(terms, total, squares + bias**2, rounds.acc) + operand + stored
    worst = gamma(terms, rounds.acc) * (sizes + shift) + inexact + rounds.entry * shift
    return moved, worst + rounds.store * (times * np.abs(total) + shift)


def squared(operand: Array, known: Array, rounds: Roundings) -> Array:
    """Return the variance of a query or key as it is multiplied: `known` + (w(pre) + w(mm)) operand^2."""
    w = variance(rounds.pre) + variance(rounds.mm)
    return known + w * operand**2 if w else known


def sized(operand: Array, known: Array, rounds: Roundings) -> Array:
    """Return the worst error of a query or key as it is multiplied: `known` + (pre + mm) |operand|."""
    u: Real = rounds.pre + rounds.mm
    return known + u * np.abs(operand) if u else known
