"""
The bound of the output of multi-head attention: the errors of the heads, propagated through the output projection.

All features of a context row share weights, so their errors are correlated. Therefore the values are projected first,
V' = V Wo per head, and the variance is that of weights . V': errors that cancel in the projection cancel in the bound.
Shapes: b batch, h heads, q queries, k keys, e features of a head, o features of the output.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np

from conformance.bounds.bound import Bound
from conformance.bounds.derivation import Derivation, worst_context
from conformance.bounds.roundings import finite, gamma, recursive_sum, result_rounding, step_of, variance
from conformance.bounds.rows import carried, constants_error, extremes, farthest, spread, summed
from conformance.spec.problem import Array

Gather = Callable[[Array], Array]


@dataclass(frozen=True, eq=False)
class BoundSlot:
    """
    A set of rows of the output projection by which the contexts of the heads are multiplied.

    weight: those rows, (h or 1, e, o). gather: converts (b, h, q, o) to the contribution of this slot, (b, q, o).
    """

    weight: Array
    gather: Gather


def slots(derivation: Derivation) -> list[BoundSlot]:
    """
    Determine where the merge of this answer puts each head, by merging column numbers.

    There is one slot if the merge keeps the heads of each query together, in whatever order. A merge without
    transposition reshapes (b, h, q, e) to (b, q, h * e): output row r holds context rows r * heads to
    (r + 1) * heads - 1, counted over all (h, q), so slot s gets the rows s, s + heads, s + 2 * heads, ... of each head.
    """
    state = derivation.state
    weight = state.problem.params["wo"]
    heads, queries, dim = state.context.shape[1:]
    columns = np.arange(heads * dim, dtype=np.float64).reshape(1, heads, 1, dim)
    numbered = state.but(context=np.broadcast_to(columns, (1, heads, queries, dim)))
    order = step_of(derivation.steps, "merge").apply(numbered).output[0]
    if (order == order[0]).all():
        own = weight[np.argsort(order[0])].reshape(heads, dim, -1)
        return [BoundSlot(own, lambda part: part.sum(axis=1))]
    return [BoundSlot(block[None], _every(slot, heads)) for slot, block in enumerate(weight.reshape(heads, dim, -1))]


def _every(slot: int, heads: int) -> Gather:
    """Make a function that takes the rows slot, slot + heads, ... counted over all (h, q)."""

    def gather(part: Array) -> Array:
        return part.reshape(part.shape[0], -1, part.shape[-1])[:, slot::heads]

    return gather


def output_bound(derivation: Derivation, dtype: str) -> Bound:
    """
    Return the bound of y = merge(o) Wo + bo, returned as `dtype`, (b, q, o) (section 3, "multi-head attention").

    var = sum_h [core(V') + (ind + (w(store) + w(mm)) o^2) Wo^2] + D(h e + 1, y, t2, acc) + (w(mm) + w(entry)) t2 +
    w(store) (y^2 + bo^2), t2 = sum_h o^2 Wo^2 + bo^2; h = sum_h [scale error through V' + (lost |V|) |Wo|] + u |y| +
    (2 shift + 3 shrink) |y - bo| + eta, since truncated values and heads are both too small, and each of the three
    products of truncated operands is. It is exact where no head contributes an error, i.e. where all rows are fully
    masked: y is bo.
    """
    state, rounds = derivation.state, derivation.rounds
    weight = state.problem.params["wo"]
    bias = state.problem.params.get("bo", np.zeros(1))
    output = finite(state.output) - (finite(state.problem.query) if state.problem.residual else 0.0)
    variances, hard, extent, common = (
        sum(parts) for parts in zip(*map(_slot_terms(derivation), slots(derivation)), strict=True)
    )
    exact = (variances == 0.0) & (hard == 0.0)
    merged = _merged(derivation, derivation.context)
    squares = merged**2 @ weight**2
    terms = weight.shape[0] + ("bo" in state.problem.params)
    variances = variances + recursive_sum(terms, output, squares + bias**2, rounds.acc)
    variances += (variance(rounds.mm) + variance(rounds.entry)) * (squares + bias**2)
    variances += variance(rounds.store) * (output**2 + bias**2)
    unit, eta = result_rounding(derivation.profile, dtype)
    unjudged = np.broadcast_to(~derivation.judged[..., None], state.context.shape)
    judged = ~np.any(_merged(derivation, unjudged), axis=-1, keepdims=True)
    shift = (unit - rounds.store + rounds.entry) * np.abs(bias)
    too_small = (2.0 * rounds.shift + 3.0 * rounds.shrink) * np.abs(output - bias)
    return Bound(
        hard=np.where(exact, shift, hard + unit * np.abs(output) + too_small + eta),
        sigma=np.where(exact, 0.0, np.sqrt(variances)),
        worst=np.where(exact, shift, _worst_output(derivation, merged, output, unit) + eta),
        judged=np.broadcast_to(judged, output.shape),
        spread=np.broadcast_to(extent, output.shape),
        common=np.where(exact, 0.0, common),
    )


def _merged(derivation: Derivation, context: Array) -> Array:
    """Merge `context` (b, h, q, e) to (b, q, h * e) as the answer does."""
    return step_of(derivation.steps, "merge").apply(derivation.state.but(context=context)).output


def merged_bound(derivation: Derivation, context: Bound) -> Bound:
    """Return the bound of merged heads without a projection, (b, q, h * e): that of each context, moved."""
    return Bound(**{field.name: _merged(derivation, getattr(context, field.name)) for field in fields(Bound)})


def with_residual(derivation: Derivation, bound: Bound, dtype: str) -> Bound:
    """
    Return the bound of y + x from that of y, the stored output, (b, q, o).

    The query x has an error if inputs are rounded on entry: w(entry) x^2. The sum is stored once more: u |y + x| + eta.
    The spread is that of y plus |x|.
    """
    rounds, query = derivation.rounds, finite(derivation.state.problem.query)
    unit, eta = result_rounding(derivation.profile, dtype)
    stored = unit * np.abs(finite(derivation.state.output)) + eta
    return replace(
        bound,
        hard=bound.hard + stored,
        sigma=np.sqrt(bound.sigma**2 + variance(rounds.entry) * query**2),
        worst=(1.0 + unit) * (bound.worst + rounds.entry * np.abs(query)) + stored,
        spread=bound.spread + np.abs(query),
    )


def _slot_terms(derivation: Derivation) -> Callable[[BoundSlot], tuple[Array, Array, Array, Array]]:
    """Make a function that returns variance, hard part, spread and common part of one slot, each (b, q, o)."""
    rounds, rows, operands = derivation.rounds, derivation.rows, derivation.operands
    context = derivation.context
    own = summed(rows, operands.value, operands.var_value, context, rounds)
    own = own + (variance(rounds.store) + variance(rounds.mm)) * context**2
    lost = rows.lost @ np.abs(operands.value)

    def terms(slot: BoundSlot) -> tuple[Array, Array, Array, Array]:
        values = operands.value @ slot.weight
        variances = carried(rows, operands.key, values, context @ slot.weight) + own @ slot.weight**2
        common = constants_error(rows, values, rounds)
        hard = common + lost @ np.abs(slot.weight)
        extent = np.broadcast_to(spread(*extremes(rows.reachable, values)), variances.shape)
        return slot.gather(variances), slot.gather(hard), slot.gather(extent), slot.gather(common)

    return terms


def _worst_output(derivation: Derivation, merged: Array, output: Array, unit: float) -> Array:
    """
    Return (A) for the output, before eta: the worst contexts through |Wo|, and the sum of the projection.

    A |Wo| + gamma_{h e + 1}(acc) ((|o| + A) |Wo| + |bo|) + 2 (mm + entry) |o| |Wo| + store (|y| + |bo|) + entry |bo| +
    u |y|, where A holds the store of the context: A = A' + store (|o| + A') + eta.
    """
    rounds, state = derivation.rounds, derivation.state
    weight = np.abs(state.problem.params["wo"])
    bias = np.abs(state.problem.params.get("bo", np.zeros(1)))
    top, low = extremes(derivation.rows.reachable, derivation.operands.value)
    distances = farthest(top, low, derivation.context)
    heads = worst_context(derivation.rows, derivation.worst, derivation.operands, derivation.context, distances, rounds)
    heads = heads + rounds.store * (np.abs(derivation.context) + heads) + rounds.eta_store
    heads = np.where(derivation.rows.terms > 0, heads, 0.0)
    passed: Array = _merged(derivation, heads) @ weight
    sizes = np.abs(merged) @ weight
    moved = passed + gamma(weight.shape[0] + 1, rounds.acc) * (sizes + passed + bias)
    moved = moved + 2.0 * (rounds.mm + rounds.entry) * sizes + (rounds.store + rounds.entry) * bias
    moved = moved + rounds.store * np.abs(output)
    return moved + unit * (np.abs(output) + moved)
