"""The bounds of all outputs of an answer (docs/tolerance.md, sections 3, 4, 11)."""

from dataclasses import fields, replace

import numpy as np

from conformance.bounds.bound import SIGMAS, Bound
from conformance.bounds.derivation import (
    Derivation,
    UnderivedBound,
    derive,
    derived_softmax,
    logit_error,
    magnitudes,
    masked_limits,
    scaled_error,
    worst_context,
    worst_weights,
)
from conformance.bounds.gradient_bounds import gradient_bounds
from conformance.bounds.mha_outputs import merged_bound, output_bound, with_residual
from conformance.bounds.roundings import (
    capped_variance,
    composed,
    finite,
    gamma,
    recursive_sum,
    result_rounding,
    slope,
    squared,
    variance,
    worst_capped,
)
from conformance.bounds.rows import (
    carried,
    constant_error,
    constants_error,
    extremes,
    farthest,
    spread,
    summed,
    var_scaled,
    weights_deviation,
    weights_hard,
)
from conformance.bridge.profile import UNIT, Profile
from conformance.deviations.catalogue import OracleAnswer
from conformance.deviations.deviation import Expected, Reply
from conformance.spec.problem import GRADIENT, PRESENTS, SCORES, Array
from conformance.spec.rounding import largest

# Number of roundings of a finite fill: one by the oracle and one by the implementation.
FILL_ROUNDINGS = 2.0


def score_bound(name: str, derivation: Derivation, dtype: str) -> Bound:
    """
    Return the bound of `scaled`, `capped` or `logits`, returned as `dtype`, (b, h, q, k).

    sigma^2 = VE without exp, + c^2 vq k^2; h = store (if it differs from that of the scores) + 2 scale |a|, with a cap
    scale (3 g |a| + |z|), + 4 eta. The spread is 1: an error of a logit is a relative error of its weight. A fill is
    the same number in every implementation, so only its store errs.
    """
    state, rounds, entering = derivation.state, derivation.rounds, derivation.operands
    unit, eta = result_rounding(derivation.profile, dtype)
    stored = unit if unit != rounds.score else 0.0
    scaled, gain = finite(state.scaled), slope(state)
    variances = var_scaled(state, entering, rounds, scaled) + _by_query(derivation)
    error = scaled_error(state, entering, rounds, magnitudes(entering))
    common = 2.0 * rounds.scale * np.abs(scaled)
    if name != "scaled" and gain is not None:
        capped = finite(state.capped)
        variances = capped_variance(variances, scaled, capped, gain, rounds)
        common = rounds.scale * (3.0 * gain * np.abs(scaled) + np.abs(capped))
        error = worst_capped(state, error, rounds)
    exact: Array = np.zeros(scaled.shape, dtype=bool)
    if name == "logits":
        error = logit_error(state, entering, rounds, magnitudes(entering))
        variances, exact = variances + _var_masked(derivation), _exactly_masked(derivation, error)
    sizes = np.abs(finite(getattr(state, name)))
    hard = stored * sizes + common + 4.0 * rounds.eta_score + eta
    return Bound(
        hard=np.where(exact, stored * sizes, hard),
        sigma=np.where(exact, 0.0, np.sqrt(variances)),
        worst=np.where(exact, stored * sizes, error + stored * (sizes + error) + eta),
        judged=np.broadcast_to(derivation.judged[..., None], sizes.shape),
        spread=np.ones(sizes.shape),
        common=np.where(exact, 0.0, common),
    )


def _by_query(derivation: Derivation) -> Array:
    """Return the variance from errors of the query, c^2 vq k^2, (b, h, q, k)."""
    entering = derivation.operands
    own = squared(entering.query, entering.var_query, derivation.rounds)
    squares = (entering.key**2).swapaxes(-1, -2)
    return np.asarray(derivation.state.scale**2 * (np.broadcast_to(own, entering.query.shape) @ squares))


def _var_masked(derivation: Derivation) -> Array:
    """Return the variance from bias and fill: each sum is rounded, and the bias is rounded if inputs are."""
    state, rounds = derivation.state, derivation.rounds
    filled = np.any(~state.allowed & np.isfinite(state.logits))
    sums = (state.bias is not None) + FILL_ROUNDINGS * filled
    moved = variance(rounds.score) * sums * finite(state.logits) ** 2
    return moved if state.bias is None else moved + variance(rounds.entry) * finite(state.bias) ** 2


def _exactly_masked(derivation: Derivation, error: Array) -> Array:
    """Return where a masked logit is the same number whatever the error of the product."""
    lower, upper = masked_limits(derivation.state, derivation.steps, error)
    return np.asarray(~derivation.state.allowed & (lower == upper))


def present_bound(name: str, derivation: Derivation, dtype: str) -> Bound:
    """Return the bound of returned keys or values: only rounding on entry or to a coarser `dtype` errs."""
    problem = derivation.state.problem
    returned = finite(getattr(problem, name.removeprefix("present_")))
    nothing = np.zeros(returned.shape)
    stored = UNIT[dtype] if UNIT[dtype] > UNIT[problem.dtype] else 0.0
    moved = (derivation.rounds.entry + stored) * np.abs(returned)
    return Bound(moved, nothing, moved, np.ones(returned.shape, dtype=bool), np.ones(returned.shape), nothing)


__all__ = ["UnderivedBound", "bound_reply", "need_bound"]

# The arithmetic of the oracle itself.
ORACLE = Profile.uniform("float64")

# Number of axes of weights per head; averaged weights have fewer.
PER_HEAD = 4


def bound_reply(answer: OracleAnswer, profile: Profile) -> dict[str, Bound]:
    """
    Return the bounds of all outputs of `answer.reply` under `profile`.

    Raises:
        UnderivedBound: no bound is derived for the dialect of the answer; it can be diagnosed but not declared.
    """
    with np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore"):
        bounds = _bounds(answer, profile)
        if "float64" in profile.record().values():
            reference = bounds if profile == ORACLE else _bounds(answer, ORACLE)
            bounds = {name: _both(bound, reference[name]) for name, bound in bounds.items()}
        return {name: _finished(name, bound, answer, profile) for name, bound in bounds.items()}


def need_bound(answer: OracleAnswer, profile: Profile) -> None:
    """
    Check, without deriving it, that `bound_reply` has a bound for `answer`.

    Raises:
        UnderivedBound: it has none.
    """
    if not all(name.startswith(GRADIENT) for name in answer.reply):
        derived_softmax(answer, composed(answer, profile.score))


def _bounds(answer: OracleAnswer, profile: Profile) -> dict[str, Bound]:
    """Return the bounds of the reply before its output is rearranged by `_finished`."""
    made = gradient_bounds(answer, profile)
    if len(made) == len(answer.reply):
        return made
    derivation = derive(answer, profile)
    for name, expected in answer.reply.items():
        if name in made:
            continue
        if name == "output":
            made[name] = _output_bound(derivation, expected.dtype)
        elif name in SCORES:
            made[name] = score_bound(_computed(name, answer), derivation, expected.dtype)
        elif name in PRESENTS:
            made[name] = present_bound(name, derivation, expected.dtype)
        else:
            bound = weights_bound(derivation, expected.dtype)
            averaged = expected.values.ndim < PER_HEAD
            made[name] = mean_bound(bound, derivation, expected) if averaged else bound
    return made


def _computed(score: str, answer: OracleAnswer) -> str:
    """Return which score is returned under this name: a dialect may return the capped product as the scaled one."""
    return score if score in answer.state.problem.outputs else "capped"


def _output_bound(derivation: Derivation, dtype: str) -> Bound:
    problem = derivation.state.problem
    if problem.operator == "sdpa":
        return context_bound(derivation, dtype)
    projected = "wo" in problem.params
    bound = output_bound(derivation, dtype) if projected else merged_bound(derivation, context_bound(derivation, dtype))
    return with_residual(derivation, bound, dtype) if problem.residual else bound


def context_bound(derivation: Derivation, dtype: str) -> Bound:
    """
    Return the bound of the output of sdpa, returned as `dtype`, (b, h, q, e).

    sigma^2 = core(V) + ind; h = u |o| + 2 scale |(p a) V - (sum p a) o| + lost |V| + eta, eta only where some
    number is not zero. Values projected by a truncated product add shift |o|; each product of truncated operands
    adds shrink |o|.
    """
    rounds, rows, entering = derivation.rounds, derivation.rows, derivation.operands
    context = derivation.context
    unit, eta = result_rounding(derivation.profile, dtype)
    sizes = np.abs(entering.value)
    lost = rows.lost @ sizes
    tiny = np.where((rows.probs @ sizes > 0.0) | (lost > 0.0), eta, 0.0)
    top, low = extremes(rows.reachable, entering.value)
    moved = worst_context(rows, derivation.worst, entering, context, farthest(top, low, context), rounds)
    common = constants_error(rows, entering.value, rounds)
    too_small = rounds.shrink
    if derivation.state.problem.operator == "mha":
        too_small += rounds.shift + rounds.shrink
    variances = carried(rows, entering.key, entering.value, context)
    variances += summed(rows, entering.value, entering.var_value, context, rounds)
    return Bound(
        hard=(unit + too_small) * np.abs(context) + common + lost + tiny,
        sigma=np.sqrt(variances),
        worst=moved + unit * (np.abs(context) + moved) + tiny,
        judged=np.broadcast_to(derivation.judged[..., None], context.shape),
        spread=np.broadcast_to(spread(top, low), context.shape),
        common=common,
    )


def weights_bound(derivation: Derivation, dtype: str) -> Bound:
    """Return the bound of the weights per head, returned as `dtype`, (b, h, q, k); their spread is 1."""
    rounds, rows = derivation.rounds, derivation.rows
    unit, eta = result_rounding(derivation.profile, dtype)
    return Bound(
        hard=weights_hard(rows, rounds, unit, eta),
        sigma=weights_deviation(rows, derivation.operands),
        worst=worst_weights(rows, derivation.worst, rounds, unit, eta),
        judged=np.broadcast_to(derivation.judged[..., None], rows.probs.shape),
        spread=np.ones(rows.probs.shape),
        common=constant_error(rows, rounds),
    )


def mean_bound(weights: Bound, derivation: Derivation, expected: Expected) -> Bound:
    """
    Return the bound of weights averaged over the heads, (b, q, k).

    Heads are independent rows, so their variances add: sigma^2 = sum sigma_h^2 / h^2 + D(h, mean, sum p^2 / h^2, acc).
    Hard errors add linearly, and the mean is stored once more.
    """
    rounds, probs = derivation.rounds, derivation.rows.probs
    heads = probs.shape[1]
    unit, eta = result_rounding(derivation.profile, expected.dtype)
    mean = probs.mean(axis=1)
    sums = recursive_sum(heads, mean, (probs**2).sum(axis=1) / heads**2, rounds.acc)
    stored = unit * mean + np.where(derivation.rows.reachable.any(axis=1), eta, 0.0)
    return Bound(
        hard=weights.hard.mean(axis=1) + stored,
        sigma=np.sqrt((weights.sigma**2).sum(axis=1) / heads**2 + sums),
        worst=weights.worst.mean(axis=1) * (1.0 + unit) + gamma(heads + 1, rounds.acc) * mean + stored,
        judged=np.asarray(weights.judged.all(axis=1)),
        spread=np.ones(mean.shape),
        common=weights.common.mean(axis=1),
    )


def _both(one: Bound, other: Bound) -> Bound:
    """Return the bound of the difference of two computations that both have errors."""
    added = ("hard", "sigma", "worst", "common")
    return replace(one, **{name: getattr(one, name) + getattr(other, name) for name in added})


def _finished(name: str, bound: Bound, answer: OracleAnswer, profile: Profile) -> Bound:
    """
    Return the final bound: rearranged like the output, and exact where the expected value is not finite.

    Not judged: elements whose bound is NaN, or whose result may overflow the dtypes in which it is stored.
    """
    expected = answer.reply[name]
    bound = _rearranged(bound, answer) if name == "output" else bound
    regular = np.isfinite(expected.values)
    known = ~np.isnan(bound.hard) & ~np.isnan(bound.sigma)
    top = min(largest(profile.store), largest(expected.dtype))
    fits = ~(np.abs(expected.values) + bound.hard + SIGMAS * bound.sigma > top)
    hard, sigma, worst = (np.where(regular, array, 0.0) for array in (bound.hard, bound.sigma, bound.worst))
    return Bound(
        hard=np.where(np.isnan(hard), np.inf, hard),
        sigma=np.where(np.isnan(sigma), np.inf, sigma),
        worst=np.where(np.isnan(worst), np.inf, worst),
        judged=np.asarray((bound.judged & known & fits) | ~regular),
        spread=bound.spread,
        common=np.where(regular & ~np.isnan(bound.common), bound.common, 0.0),
    )


def _rearranged(bound: Bound, answer: OracleAnswer) -> Bound:
    """Apply the deviations of the reply, which move axes of the output, to every part of its bound."""

    def rearranged(array: Array) -> Array:
        reply: Reply = {"output": Expected(array, "float64")}
        for deviation in answer.deviations:
            if deviation.reply is not None:
                reply = deviation.reply(reply)
        return reply["output"].values

    return Bound(**{field.name: rearranged(getattr(bound, field.name)) for field in fields(bound)})
