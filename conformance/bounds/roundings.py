"""The sizes of the declared roundings, and the effect of a softcap on them (docs/tolerance.md, sections 2 and 3)."""

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from conformance.bridge.profile import UNIT, Profile
from conformance.reference.steps import State, softcapped
from conformance.spec.problem import Array
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
    products, if these are truncated; store and score are those of a truncation then, twice as large. eta_*: largest
    absolute error near zero. tiny_*: the size below which an underflow is possible.
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
    exp_ulp: float
    eta_store: float
    eta_score: float
    eta_prob: float
    eta_soft: float
    tiny_prob: float
    tiny_soft: float


@lru_cache(maxsize=256)
def roundings(profile: Profile, dtype: str) -> Roundings:
    """
    Return the roundings of `profile` on a problem whose inputs have the dtype `dtype`.

    A truncated product has a relative error in [-2u, 0]: its mean square is that of a rounding of 2u, (2u)^2/3, and on
    average it is u too small. The average part does not cancel: query, key and logits that are each u too small act
    like a scale that is 3u too small, which counts twice (`rows.constant_slopes`); values and heads add to the output
    (`shift`).
    """
    store = UNIT[profile.store]
    width = truncation(profile)
    mm = 0.0 if profile.mm is None else UNIT[profile.mm]
    return Roundings(
        store=width * store,
        acc=UNIT[profile.acc],
        score=width * UNIT[profile.score],
        soft=UNIT[profile.soft],
        sum=UNIT[profile.sum],
        prob=UNIT[profile.prob],
        scale=UNIT[profile.scale] + (1.5 * store if profile.truncated else 0.0),
        lse=UNIT[profile.lse],
        mm=mm if mm > store else 0.0,
        pre=0.0 if profile.pre is None else UNIT[profile.pre],
        bias_sum=max(UNIT[profile.acc], 0.0 if profile.bias_sum is None else UNIT[profile.bias_sum]),
        entry=store if store > UNIT[dtype] else 0.0,
        shift=store if profile.truncated else 0.0,
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
