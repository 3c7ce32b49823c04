"""
The common part of the bounds of all outputs of one answer: operands, rows, worst cases, and what is judged.

A worst case is an error that no implementation of the declared arithmetic can exceed (docs/tolerance.md, section 3, A).
It is not linear in the errors of the logits, so it holds for logits of any size: it is limited by the range of the
values. Under a finite fill, oracle and implementation both round after the fill (section 11).
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from conformance.bounds.roundings import (
    Operands,
    Roundings,
    composed,
    finite,
    gamma,
    operands,
    recursive_sum,
    roundings,
    sized,
    step_of,
    variance,
    worst_capped,
)
from conformance.bounds.rows import BLOCK, ORDINARY, Rows, Softmax, rows
from conformance.bridge.profile import Profile
from conformance.deviations.catalogue import FILLS_OF_ONE, OracleAnswer
from conformance.deviations.names import slot_of
from conformance.reference.pipeline import Steps
from conformance.reference.steps import State, add_bias, softmax
from conformance.spec.problem import Array
from conformance.spec.rounding import largest, round_to

# Maximum argument of exponentials; nothing that large is judged.
HUGE = 600.0


@dataclass(frozen=True, eq=False)
class Worst:
    """
    The common part of the worst cases of output and weights, shapes as in `Rows`.

    gain: p (e^rho - 1). loss: p (1 - e^-rho). denominator (b, h, q, 1): relative error of the sum of exponentials.
    """

    gain: Array
    loss: Array
    denominator: Array


def magnitudes(operands: Operands) -> Array:
    """Return G = |q| |k|, (b, h, q, k): the maximum magnitude of a partial sum of a product."""
    return np.asarray(np.abs(operands.query) @ np.abs(operands.key).swapaxes(-1, -2))


def logit_error(state: State, operands: Operands, rounds: Roundings, sizes: Array) -> Array:
    """
    Return the maximum error of a logit before a finite fill is added: ds, (b, h, q, k).

    c (gamma_d G + eq (|k| + ek) + |q| ek) + 2 (score + scale) |a| + [bias] (score |s| + entry |bias|) + 4 eta. A
    softcap changes the error before the bias (`worst_capped`). sizes: G.
    """
    error = capped_error(state, operands, rounds, sizes)
    if state.bias is not None:
        sums = np.abs(finite(state.capped + state.bias))
        error = error + rounds.score * sums + rounds.entry * np.abs(finite(state.bias))
    return np.asarray(error)


def capped_error(state: State, operands: Operands, rounds: Roundings, sizes: Array) -> Array:
    """Return the maximum error of a logit before bias and fill, (b, h, q, k)."""
    return worst_capped(state, scaled_error(state, operands, rounds, sizes), rounds)


def scaled_error(state: State, operands: Operands, rounds: Roundings, sizes: Array) -> Array:
    """Return the maximum error of a scaled product, (b, h, q, k): the first terms of `logit_error`, and 4 eta."""
    query, key = np.abs(operands.query), np.abs(operands.key)
    err_query = sized(operands.query, operands.err_query, rounds)
    err_key = sized(operands.key, operands.err_key, rounds)
    moved = gamma(state.problem.head_dim, rounds.acc) * sizes
    if np.any(err_query) or np.any(err_key):
        err_query = np.broadcast_to(err_query, query.shape)
        err_key = np.broadcast_to(err_key, key.shape)
        moved = moved + err_query @ (key + err_key).swapaxes(-1, -2) + query @ err_key.swapaxes(-1, -2)
    scaled = np.abs(state.scaled)
    return np.asarray(abs(state.scale) * moved + 2.0 * (rounds.score + rounds.scale) * scaled + 4.0 * rounds.eta_score)


# Error of a logit below which `worst` uses expm1. Beyond it a difference loses no accuracy, and p may have underflowed.
SMALL_ERROR = 0.5


def worst(rows: Rows, error: Array, rounds: Roundings) -> Worst:
    """Return the worst cases of a softmax whose live logits err by `error` (ds); rho = ds + (exp_ulp + 2x) soft."""
    live_error = np.where(rows.live, error, 0.0)
    rho = np.where(rows.reachable, live_error + rounds.soft * rows.exp_error, 0.0)
    exponentials = np.where(rows.reachable, np.exp(-rows.distance), 0.0)
    top = np.log(np.maximum(exponentials.sum(axis=-1, keepdims=True), 1.0))
    small = rho < SMALL_ERROR
    gain = np.where(
        small,
        rows.probs * np.expm1(np.minimum(rho, 1.0)),
        np.exp(np.minimum(rho - rows.distance - top, HUGE)) - rows.probs,
    )
    denominator = gamma(np.maximum(rows.terms - 1.0, 0.0), rounds.sum) + 3.0 * rounds.soft
    return Worst(gain, -rows.probs * np.expm1(-rho), np.where(rows.terms > 0, denominator, 0.0))


def worst_context(
    rows: Rows, limits: Worst, operands: Operands, context: Array, farthest: Array, rounds: Roundings
) -> Array:
    """
    Return the worst error of a context before it is stored, (b, h, q, e).

    min(sum_j p (e^rho - 1) |V_j - o| / sum_j p e^-rho, max_j |V_j - o|) + den |o| + (gamma_n(acc) + prob + 2 mm) p |V|
    + p ev + lost |V|. farthest: max_j |V_j - o| over keys that may have weight.
    """
    sizes = np.abs(operands.value)
    left = np.maximum(1.0 - limits.loss.sum(axis=-1, keepdims=True), np.finfo(np.float64).tiny)
    moved: Array = np.minimum(_distances(limits.gain, operands.value, context) / left, farthest)
    terms = np.where(rows.terms > 0, gamma(rows.terms, rounds.acc) + rounds.prob + 2.0 * rounds.mm, 0.0)
    moved = moved + limits.denominator * np.abs(context) + terms * (rows.probs @ sizes) + rows.lost @ sizes
    if np.any(operands.err_value):
        moved = moved + rows.probs @ operands.err_value
    return moved


def _distances(gain: Array, values: Array, context: Array) -> Array:
    """Compute sum_j gain_j |V_j - o|, (b, h, q, e), a block of queries at a time."""
    batch, heads, queries, keys = gain.shape
    step = max(1, BLOCK // (batch * heads * keys * values.shape[-1]))
    total = np.empty_like(context)
    for low in range(0, queries, step):
        part = slice(low, low + step)
        distances = np.abs(values[:, :, None] - context[:, :, part, None])
        total[:, :, part] = (gain[:, :, part, None] @ distances)[..., 0, :]
    return total


def worst_weights(rows: Rows, limits: Worst, rounds: Roundings, store: float, eta: float) -> Array:
    """
    Return the worst error of a weight, (b, h, q, k): its own logit errs in one direction, all others in the other.

    upper - p = (g (1 - p) + p (L - l)) / (1 + g - (L - l)) and p - lower = (l (1 - p) + p (G - g)) / (1 - l + (G - g)),
    with g = p (e^rho - 1), l = p (1 - e^-rho), G and L their sums: the interval of section 3, written
    without cancellation. + p (den + prob + store) + lost + eta. store, eta: those of the result.
    """
    gain, loss, probs = limits.gain, limits.loss, rows.probs
    others_gain = np.maximum(gain.sum(axis=-1, keepdims=True) - gain, 0.0)
    others_loss = np.maximum(loss.sum(axis=-1, keepdims=True) - loss, 0.0)
    rest = np.maximum(1.0 - probs, 0.0)
    tiny = np.finfo(np.float64).tiny
    upper = (gain * rest + probs * others_loss) / np.maximum(1.0 + gain - others_loss, tiny)
    lower = (loss * rest + probs * others_gain) / np.maximum(1.0 - loss + others_gain, tiny)
    error: Array = np.minimum(np.maximum(upper, lower), 1.0)
    roundings = probs * (limits.denominator + rounds.prob + store)
    return error + roundings + rows.lost + np.where(rows.reachable, eta, 0.0)


# Maximum step between neighbouring numbers that counts as an ordinary error of a logit; first order fails beyond.
SMALL_STEP = 0.1

# exp(-NO_WEIGHT) is zero in every dtype.
NO_WEIGHT = 800.0


@dataclass(frozen=True, eq=False)
class Filling:
    """
    The effect of a fill on the logits.

    known (b, h, q, k): logits without any error. rounded (b, h, q, k): number of roundings that the fill adds to a
    logit. undecided (b, h, q): rows with weight on a filled logit that is within its own error of a rounding boundary.
    """

    known: Array
    rounded: Array
    undecided: Array


def exact_logits(state: State, error: Array, rounds: Roundings) -> Filling:
    """
    Return the effect without a fill: logits are exact in rows that are declared uniform, and under huge biases.

    A bias is huge (such as the finite minimum of float32) if adding a product that errs by `error` does not change it
    in float64, and therefore in no coarser dtype. A bias that is itself rounded on entry is not exact.
    """
    known = np.broadcast_to(state.absorbed[..., None], state.allowed.shape)
    if state.bias is not None and not rounds.entry:
        size = np.abs(finite(state.capped)) + error
        known = known | ((state.bias + size == state.bias) & (state.bias - size == state.bias))
    return Filling(known, np.zeros((1, 1, 1, 1)), np.zeros(state.absorbed.shape, dtype=bool))


def masked_limits(state: State, steps: Steps, error: Array) -> tuple[Array, Array]:
    """Return what the mask makes of logits that are too small, and too large, by `error`; two (b, h, q, k) arrays."""
    logits, mask = add_bias(state).logits, step_of(steps, "mask")
    return mask.apply(state.but(logits=logits - error)).logits, mask.apply(state.but(logits=logits + error)).logits


def fill(state: State, steps: Steps, rounds: Roundings, error: Array) -> Filling:
    """
    Return the effect of a finite fill, added or put in place, on logits that err by `error`.

    The step of the fill is run on logits that are too small and too large by their error. If the results differ, and
    the next number is close, both sides have one more rounding; if it is far, the row is undecided. Attended logits are
    rounded by the oracle too, possibly differently: one more rounding.
    """
    lower, upper = masked_limits(state, steps, error)
    filled = ~state.allowed
    weighty = filled & (state.probs > 0.0)
    top = np.where(np.isfinite(state.logits), state.logits, -np.inf).max(axis=-1, keepdims=True)
    crossing = filled & (lower != upper) & (upper > top - NO_WEIGHT)
    close = crossing & (2.0 * rounds.score * np.abs(state.logits) <= SMALL_STEP)
    known = (state.absorbed[..., None] | filled) & ~close
    undecided = np.any(weighty, axis=-1) & np.any(crossing & ~close, axis=-1)
    return Filling(known, 1.0 + close, np.asarray(undecided))


# Decisions about the number that replaces a masked logit.
FILLS = ("mask_fill", *FILLS_OF_ONE)

# Deviations that replace the softmax and still have a bound.
DERIVED = {
    "softmax_axis=heads": Softmax(axis=1),
    "softmax_maximum=missing": Softmax(raw=True),
    "softmax_maximum=missing_guarded": Softmax(raw=True),
}


def softmax_of(answer: OracleAnswer, steps: Steps) -> Softmax | None:
    """Return how the weights of `answer` were normalised; None if no bound is derived for it."""
    if step_of(steps, "softmax").apply is softmax:
        return ORDINARY
    kinds = [DERIVED[deviation.key] for deviation in answer.deviations if deviation.key in DERIVED]
    if len(kinds) != 1 or (kinds[0].raw and answer.state.absorbed.any()):
        return None
    return kinds[0]


def of_softmax(ordinary: Rows, kind: Softmax, operands: Operands, rounds: Roundings) -> Rows:
    """Add the errors of this kind of softmax to the rows."""
    if kind.raw:
        return replace(ordinary, lost=ordinary.lost + _lost(ordinary, rounds))
    if kind.axis == ORDINARY.axis:
        return ordinary
    return replace(ordinary, deviation=_deviation(ordinary, operands, rounds))


def _lost(softmax_rows: Rows, rounds: Roundings) -> Array:
    """
    Return what weights lose to underflow if no maximum is subtracted: eta_S e^-max, (b, h, q, k).

    It is at most 1: if a whole row underflows, its weights are NaN or zero.
    """
    top = np.where(softmax_rows.live, softmax_rows.logits, -np.inf).max(axis=-1, keepdims=True)
    tiny = softmax_rows.live & (np.exp(softmax_rows.logits) < rounds.tiny_soft)
    with np.errstate(over="ignore"):
        return np.where(tiny, np.minimum(rounds.eta_soft * np.exp(-top), 1.0), 0.0)


def _deviation(softmax_rows: Rows, operands: Operands, rounds: Roundings) -> Array:
    """
    Return the standard deviation of weights that sum to one along an axis other than the keys, (b, h, q, k).

    p ((1 - 2p) e + sum p e + sqrt(DEN)), e = sqrt(VE + [vq k^2]): standard deviations add at most linearly, however the
    errors that are normalised together correlate. The sum and DEN are along the axis.
    """
    probs, variances = softmax_rows.probs, softmax_rows.var_logit
    if softmax_rows.var_query is not None:
        shared = softmax_rows.var_query @ (operands.key**2).swapaxes(-1, -2)
        variances = variances + np.where(softmax_rows.live, shared, 0.0)
    errors = np.sqrt(variances)
    total = (probs * errors).sum(axis=softmax_rows.axis, keepdims=True)
    terms = (probs > 0.0).sum(axis=softmax_rows.axis, keepdims=True, dtype=np.float64)
    squares = (probs**2).sum(axis=softmax_rows.axis, keepdims=True)
    var_sum = recursive_sum(terms, np.ones(1), squares, rounds.sum) + 2.0 * variance(rounds.soft)
    return np.asarray(probs * (np.maximum((1.0 - 2.0 * probs) * errors + total, 0.0) + np.sqrt(var_sum)))


def undecided(state: State, kind: Softmax, score: str, error: Array, rounds: Roundings) -> Array:
    """
    Return the rows (b, h, q) in which it is uncertain whether an exponential or their sum overflows.

    This happens only if no maximum is subtracted. Such a row is within the errors of a logit (`error`), its exponential
    and the sum of the largest number.
    """
    if not kind.raw:
        return np.zeros(state.logits.shape[:-1], dtype=bool)
    edge = math.log(largest(score))
    logits = np.where(np.isfinite(state.logits), state.logits, -np.inf)
    sizes = np.where(np.isfinite(state.logits), np.abs(state.logits), 0.0)
    margin = (error + rounds.soft * (rounds.exp_ulp + 2.0 * sizes)).max(axis=-1) + logits.shape[-1] * rounds.sum
    top = logits.max(axis=-1)
    total = top + np.log(np.exp(logits - top[..., None]).sum(axis=-1))
    near = (np.abs(logits - edge) <= margin[..., None]).any(axis=-1)
    return np.asarray(near | (np.abs(total - edge) <= margin))


def no_worst(worst: Worst) -> Worst:
    """Return a worst case that makes all derived worst cases infinite or NaN, since none is derived here."""
    unknown = np.full_like(worst.gain, np.inf)
    return Worst(gain=unknown, loss=np.zeros_like(worst.gain), denominator=unknown[..., :1])


# Maximum difference from 1 of the sum of weights of a row in a softmax.
ROW_SUM = 1e-6

# What is possible where no bound is derived.
ONLY_NAMED = "it can name this as a cause, but you cannot declare it"


class UnderivedBound(Exception):  # noqa: N818 - the name says what is missing
    """No bound is derived for a dialect: it can be diagnosed but not declared."""


@dataclass(frozen=True, eq=False)
class Derivation:
    """
    The common part of the bounds of one answer under one profile.

    context (b, h, q, e): with non-finite numbers set to zero. judged (b, h, q): rows whose logits cannot overflow and,
    under a finite fill, are not within their own error of a rounding boundary.
    """

    state: State
    steps: Steps
    profile: Profile
    rounds: Roundings
    operands: Operands
    rows: Rows
    worst: Worst
    context: Array
    judged: Array


def derive(answer: OracleAnswer, profile: Profile) -> Derivation:
    """
    Derive the common part of the bounds of `answer` under `profile`.

    Raises:
        UnderivedBound: rows do not sum to one, or the returned weights are not those of the softmax.
    """
    steps = composed(answer, profile.score)
    kind = derived_softmax(answer, steps)
    state = answer.state
    rounds = roundings(profile, state.problem.dtype)
    entering = operands(state, steps, rounds)
    sizes = magnitudes(entering)
    error = logit_error(state, entering, rounds, sizes)
    filling = exact_logits(state, capped_error(state, entering, rounds, sizes), rounds)
    if any(slot_of(deviation.decision)[0] in FILLS for deviation in answer.deviations):
        filling = fill(state, steps, rounds, error)
    attended = rows(state, entering, rounds, filling.known, filling.rounded, kind)
    attended = of_softmax(attended, kind, entering, rounds)
    error = error + rounds.score * filling.rounded * np.abs(attended.logits)
    judged = ~filling.undecided & ~_overflows(state, attended, entering, profile, sizes)
    judged &= ~undecided(state, kind, profile.score, error, rounds)
    limits = worst(attended, error, rounds)
    return Derivation(
        state=state,
        steps=steps,
        profile=profile,
        rounds=rounds,
        operands=entering,
        rows=attended,
        worst=limits if kind.axis == ORDINARY.axis else no_worst(limits),
        context=finite(state.context),
        judged=judged,
    )


def derived_softmax(answer: OracleAnswer, steps: Steps) -> Softmax:
    """
    Return how the weights were normalised; the formulas need rows that sum to one, over the keys or over the heads.

    Under an unbounded deviation of heads or steps the formulas hold if all rows are uniform or fully masked. They never
    hold under an unbounded deviation of the problem, which has other numbers, such as a tripled bias that is rounded.

    Raises:
        UnderivedBound: the formulas do not hold.
    """
    keys = ", ".join(deviation.key for deviation in answer.deviations if deviation.stage == "steps")
    kind = softmax_of(answer, steps)
    sums = answer.state.probs.sum(axis=(kind or ORDINARY).axis)
    whole = (np.abs(sums - 1.0) <= ROW_SUM) | (sums == 0.0) | np.isnan(sums)
    unbounded = ", ".join(deviation.key for deviation in answer.deviations if not deviation.bounded)
    of_problem = any(deviation.stage == "problem" for deviation in answer.deviations if not deviation.bounded)
    if unbounded and (of_problem or not (answer.state.absorbed | answer.state.fully_masked).all()):
        raise UnderivedBound(f"the tool derives no bound under {unbounded}: {ONLY_NAMED}")
    if kind is None or not whole.all():
        raise UnderivedBound(
            f"the tool derives no bound for weights whose rows may not sum to one ({keys}): {ONLY_NAMED}"
        )
    requested = "weights" in answer.reply or "weights_mean" in answer.reply
    if requested and answer.state.weights is not answer.state.probs:
        raise UnderivedBound(f"the tool derives no bound for weights before the softmax ({keys}): {ONLY_NAMED}")
    return kind


def _overflows(state: State, attended: Rows, entering: Operands, profile: Profile, sizes: Array) -> Array:
    """
    Return the rows (b, h, q) in which a number of an attended key may overflow the declared dtypes.

    |q| |k| bounds every partial sum of a product; the operands are scaled beforehand if the profile sets `pre`. A logit
    may overflow to -inf unless it is the largest of its row. If a bias makes the largest one a known number, it
    overflows only if that number does when it is rounded.
    """
    narrowest = min(profile.score, profile.acc, key=largest)
    top = largest(narrowest)
    products = sizes if profile.pre is None else sizes * abs(state.scale)
    over = np.any(attended.reachable & (products > top), axis=-1)
    highest = np.where(attended.live, attended.logits, -np.inf).max(axis=-1)
    over |= np.isfinite(highest) & (np.abs(highest) > top)
    known = np.where(attended.reachable & ~attended.live, state.logits, -np.inf).max(axis=-1)
    over |= np.isfinite(known) & (known > highest) & np.isinf(round_to(known, narrowest))
    stored = largest(profile.store)
    if max(_peak(entering.query), _peak(entering.key), _peak(entering.value)) > stored:
        over |= np.any(np.abs(entering.query) > stored, axis=-1)
        keys = np.any(np.abs(entering.key) > stored, axis=-1) | np.any(np.abs(entering.value) > stored, axis=-1)
        over |= np.any(attended.reachable & keys[:, :, None, :], axis=-1)
    return np.asarray(over)


def _peak(values: Array) -> float:
    return float(np.abs(values).max(initial=0.0))
