"""Everything that the bounds of all outputs of one answer share: its operands, rows, worst cases, what is judged."""

from dataclasses import dataclass

import numpy as np

from conformance.bridge.profile import Profile
from conformance.oracle.evaluate import Answer
from conformance.oracle.filling import exact_logits, fill
from conformance.oracle.operands import Operands, composed, finite, operands
from conformance.oracle.roundings import Roundings, roundings
from conformance.oracle.rows import ORDINARY, Rows, Softmax, rows
from conformance.oracle.softmaxes import no_worst, of_softmax, softmax_of, undecided
from conformance.oracle.worst import Worst, capped_error, logit_error, magnitudes, worst
from conformance.reference.pipeline import Steps
from conformance.reference.state import State
from conformance.spec.problem import Array
from conformance.spec.rounding import largest

ROW_SUM = 1e-6
"""How far the weights of a row may be from 1 and still be a softmax over the keys."""


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
    if unbounded and (other or not (answer.state.absorbed | answer.state.dead).all()):
        raise UnderivedBound(f"no bound is derived under {unbounded}: diagnosed, not declared")
    if taken is None or not whole.all():
        raise UnderivedBound(f"no bound is derived for rows that need not sum to one ({keys}): diagnosed, not declared")
    asked = "weights" in answer.reply or "weights_mean" in answer.reply
    if asked and answer.state.weights is not answer.state.probs:
        raise UnderivedBound(f"no bound is derived for weights before the softmax ({keys}): diagnosed, not declared")
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
