"""
The errors of query, key and value before they are multiplied: errors of inputs, parameters and projections.

`var_*` are variances, `err_*` worst cases; shapes are those of the operand, (batch, num_heads, seq_len, dim).
"""

from dataclasses import dataclass

import numpy as np

from conformance.bounds.roundings import Real, Roundings, gamma, recursive_sum, variance
from conformance.deviations.catalogue import OracleAnswer, varied_steps
from conformance.reference.pipeline import Step, Steps
from conformance.reference.steps import State, begin, linear
from conformance.spec.problem import Array, Problem

# Parameters that are appended to the projected key and value.
APPENDED = ("bias_k", "bias_v")

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
    w, u = variance(rounds.entry), rounds.entry
    return Operands(
        query,
        key,
        value,
        *(w * array**2 for array in (query, key, value)),
        *(u * np.abs(array) for array in (query, key, value)),
    )


def _projected(state: State, steps: Steps, rounds: Roundings) -> tuple[Array, ...]:
    """Return variances and worst errors of the projections, split and grouped as the answer does."""
    problem = state.problem
    inputs = (("q", problem.query), ("k", problem.key), ("v", problem.value))
    pairs = [
        _activated(problem, letter, x, projection_error(x, *parameters(problem, letter), rounds))
        for letter, x in ((letter, finite(x)) for letter, x in inputs)
    ]
    arranged = []
    for (query, key, value), entry in zip(zip(*pairs, strict=True), (_squared_entry, _entry), strict=True):
        learned = {name: entry(problem.params[name], rounds) for name in APPENDED if name in problem.params}
        given = problem.but(params={**problem.params, **learned})
        moved = begin(given).but(query=query, key=key, value=value)
        for step in _arrangement(steps):
            moved = step.apply(moved)
        arranged += [moved.query, moved.key, moved.value]
    return tuple(arranged)


def _squared_entry(learned: Array, rounds: Roundings) -> Array:
    return variance(rounds.entry) * learned**2


def _entry(learned: Array, rounds: Roundings) -> Array:
    return rounds.entry * np.abs(learned)


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
    terms = x.shape[-1]
    product = x @ weight
    squares = x**2 @ weight**2
    sizes = np.abs(x) @ np.abs(weight)
    operand = 2.0 * (variance(rounds.mm) + variance(rounds.entry)) * squares
    inexact = 2.0 * (rounds.mm + rounds.entry) * sizes + rounds.eta_store
    if bias is None:
        moved = recursive_sum(terms, product, squares, rounds.acc) + operand + variance(rounds.store) * product**2
        return moved, gamma(terms, rounds.acc) * sizes + inexact + rounds.store * np.abs(product)
    total = product + bias
    stored = variance(rounds.store) * (2.0 * total**2 + bias**2) + variance(rounds.entry) * bias**2
    moved = recursive_sum(terms + 1, total, squares + bias**2, rounds.acc) + operand + stored
    shift = np.abs(bias)
    worst = gamma(terms + 1, rounds.acc) * (sizes + shift) + inexact + rounds.entry * shift
    return moved, worst + rounds.store * (2.0 * np.abs(total) + shift)


def squared(operand: Array, known: Array, rounds: Roundings) -> Array:
    """Return the variance of a query or key as it is multiplied: `known` + (w(pre) + w(mm)) operand^2."""
    w = variance(rounds.pre) + variance(rounds.mm)
    return known + w * operand**2 if w else known


def sized(operand: Array, known: Array, rounds: Roundings) -> Array:
    """Return the worst error of a query or key as it is multiplied: `known` + (pre + mm) |operand|."""
    u: Real = rounds.pre + rounds.mm
    return known + u * np.abs(operand) if u else known
