"""Everything that the bounds of all outputs of one answer share: its operands, rows, worst cases, what is judged."""

import math
from dataclasses import dataclass, replace

import numpy as np

from conformance.bounds.fills import exact_logits, fill
from conformance.bounds.operands import Operands, composed, finite, operands, step_of
from conformance.bounds.roundings import Roundings, recursive_sum, roundings, variance
from conformance.bounds.rows import ORDINARY, Rows, Softmax, rows
from conformance.bounds.worst_case import Worst, capped_error, logit_error, magnitudes, worst
from conformance.bridge.profile import Profile
from conformance.deviations.evaluate import Answer
from conformance.reference.pipeline import Steps
from conformance.reference.steps import State, softmax
from conformance.spec.problem import Array
from conformance.spec.rounding import largest

# Deviations that replace the softmax and have a bound all the same.
DERIVED = {
    "softmax_axis=heads": Softmax(axis=1),
    "softmax_maximum=missing": Softmax(raw=True),
    "softmax_maximum=missing_guarded": Softmax(raw=True),
}


def softmax_of(answer: Answer, steps: Steps) -> Softmax | None:
    """How the weights of `answer` were normalised; None where no bound is derived for it."""
    if step_of(steps, "softmax").apply is softmax:
        return ORDINARY
    taken = [DERIVED[deviation.key] for deviation in answer.deviations if deviation.key in DERIVED]
    if len(taken) != 1 or (taken[0].raw and answer.state.absorbed.any()):
        return None
    return taken[0]


def of_softmax(found: Rows, taken: Softmax, operands: Operands, rounds: Roundings) -> Rows:
    """The rows with what this softmax adds to them."""
    if taken.raw:
        return replace(found, lost=found.lost + _lost(found, rounds))
    return replace(found, deviation=_deviation(found, operands, rounds)) if taken.axis != ORDINARY.axis else found


def _lost(found: Rows, rounds: Roundings) -> Array:
    """
    What a weight loses where its exponential underflows, as nothing was subtracted: eta_S e^-max, (b, h, q, k).

    At most all of it: a row that underflows altogether is no number, or zero.
    """
    top = np.where(found.live, found.logits, -np.inf).max(axis=-1, keepdims=True)
    tiny = found.live & (np.exp(found.logits) < rounds.tiny_soft)
    with np.errstate(over="ignore"):
        return np.where(tiny, np.minimum(rounds.eta_soft * np.exp(-top), 1.0), 0.0)


def _deviation(found: Rows, operands: Operands, rounds: Roundings) -> Array:
    """
    Standard deviation of weights that sum to one along another axis than that of keys, (b, h, q, k).

    p ((1 - 2p) e + sum p e + sqrt(DEN)), e = sqrt(VE + [vq k^2]): deviations add at most linearly, whatever the errors
    that are normalised together have in common. Sum and DEN run along the axis.
    """
    probs, variances = found.probs, found.var_logit
    if found.var_query is not None:
        shared = found.var_query @ (operands.key**2).swapaxes(-1, -2)
        variances = variances + np.where(found.live, shared, 0.0)
    errors = np.sqrt(variances)
    total = (probs * errors).sum(axis=found.axis, keepdims=True)
    terms = (probs > 0.0).sum(axis=found.axis, keepdims=True, dtype=np.float64)
    squares = (probs**2).sum(axis=found.axis, keepdims=True)
    var_sum = recursive_sum(terms, np.ones(1), squares, rounds.sum) + 2.0 * variance(rounds.soft)
    return np.asarray(probs * (np.maximum((1.0 - 2.0 * probs) * errors + total, 0.0) + np.sqrt(var_sum)))


def undecided(state: State, taken: Softmax, score: str, error: Array, rounds: Roundings) -> Array:
    """
    Rows (b, h, q) of which an exponential or the sum of them may or may not be infinite, as no maximum is subtracted.

    They are as near to the largest number as a logit errs (`error`), its exponential, and the sum.
    """
    if not taken.raw:
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
    """No worst case is derived: what is made of this is infinite or no number."""
    unknown = np.full_like(worst.gain, np.inf)
    return Worst(gain=unknown, loss=np.zeros_like(worst.gain), denominator=unknown[..., :1])


# How far the weights of a row may be from 1 and still be a softmax over the keys.
ROW_SUM = 1e-6


class UnderivedBound(Exception):  # noqa: N818 - says what is missing
    """A dialect under which no bound holds: it may be diagnosed, but not declared."""


@dataclass(frozen=True, eq=False)
class Derivation:
    """
    One answer under one profile.

    context (b, h, q, e): finite. judged (b, h, q): rows whose logits cannot overflow and, under a finite fill, are not
    within their own error of a rounding boundary.
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


def derive(answer: Answer, profile: Profile) -> Derivation:
    """
    The common part of the bounds of `answer` under `profile`.

    Raises:
        UnderivedBound: rows do not sum to one, or the returned weights are not the weights.
    """
    steps = composed(answer, profile.score)
    taken = derived_softmax(answer, steps)
    state = answer.state
    rounds = roundings(profile, state.problem.dtype)
    entering = operands(state, steps, rounds)
    sizes = magnitudes(entering)
    error = logit_error(state, entering, rounds, sizes)
    filling = exact_logits(state, capped_error(state, entering, rounds, sizes), rounds)
    if any(deviation.decision == "mask_fill" for deviation in answer.deviations):
        filling = fill(state, steps, rounds, error)
    attended = rows(state, entering, rounds, filling.known, filling.rounded, taken)
    attended = of_softmax(attended, taken, entering, rounds)
    error = error + rounds.score * filling.rounded * np.abs(attended.logits)
    judged = ~filling.undecided & ~_overflows(state, attended, entering, profile, sizes)
    judged &= ~undecided(state, taken, profile.score, error, rounds)
    limits = worst(attended, error, rounds)
    return Derivation(
        state=state,
        steps=steps,
        profile=profile,
        rounds=rounds,
        operands=entering,
        rows=attended,
        worst=limits if taken.axis == ORDINARY.axis else no_worst(limits),
        context=finite(state.context),
        judged=judged,
    )


def derived_softmax(answer: Answer, steps: Steps) -> Softmax:
    """
    How the weights were normalised: the formulas need rows that sum to one, over the keys or over the heads.

    Of an unbounded deviation of heads or steps they hold where it leaves nothing but uniform and dead rows; one of the
    problem has numbers of its own, as a bias that is three times what is given, and which is rounded.

    Raises:
        UnderivedBound: they do not hold.
    """
    keys = ", ".join(deviation.key for deviation in answer.deviations if deviation.stage == "steps")
    taken = softmax_of(answer, steps)
    sums = answer.state.probs.sum(axis=(taken or ORDINARY).axis)
    whole = (np.abs(sums - 1.0) <= ROW_SUM) | (sums == 0.0) | np.isnan(sums)
    unbounded = ", ".join(deviation.key for deviation in answer.deviations if not deviation.bounded)
    other = any(deviation.stage == "problem" for deviation in answer.deviations if not deviation.bounded)
    if unbounded and (other or not (answer.state.absorbed | answer.state.fully_masked).all()):
        raise UnderivedBound(f"no bound is derived under {unbounded}: it can be diagnosed but not declared")
    if taken is None or not whole.all():
        raise UnderivedBound(
            f"no bound is derived for rows that may not sum to one ({keys}): can be diagnosed but not declared"
        )
    asked = "weights" in answer.reply or "weights_mean" in answer.reply
    if asked and answer.state.weights is not answer.state.probs:
        raise UnderivedBound(
            f"no bound is derived for weights before the softmax ({keys}): can be diagnosed but not declared"
        )
    return taken


def _overflows(state: State, attended: Rows, entering: Operands, profile: Profile, sizes: Array) -> Array:
    """
    Rows in which a number of an attended key may leave the declared dtypes, (b, h, q).

    |q| |k| bounds every partial sum of a product; it is scaled before where `pre` says so. A logit may overflow to
    -inf unless it is the largest of its row.
    """
    top = min(largest(profile.score), largest(profile.acc))
    products = sizes if profile.pre is None else sizes * abs(state.scale)
    over = np.any(attended.reachable & (products > top), axis=-1)
    highest = np.where(attended.live, attended.logits, -np.inf).max(axis=-1)
    over |= np.isfinite(highest) & (np.abs(highest) > top)
    stored = largest(profile.store)
    if max(_peak(entering.query), _peak(entering.key), _peak(entering.value)) > stored:
        over |= np.any(np.abs(entering.query) > stored, axis=-1)
        keys = np.any(np.abs(entering.key) > stored, axis=-1) | np.any(np.abs(entering.value) > stored, axis=-1)
        over |= np.any(attended.reachable & keys[:, :, None, :], axis=-1)
    return np.asarray(over)


def _peak(values: Array) -> float:
    return float(np.abs(values).max(initial=0.0))
