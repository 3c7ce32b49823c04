"""
The catalogue of all deviations that have a name, and the oracle, which computes the expected reply under a dialect.

Within a stage, the deviations of a dialect are applied in the order of `names.toml`. If several deviations explain a
reply, they are reported in that order.
"""

from collections.abc import Callable, Collection, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, partial

import numpy as np

from conformance.deviations import (
    edges,
    key_blocks,
    layout,
    logits,
    nonfinite,
    projections,
    regions,
    returned,
    softmax,
    tiles,
)
from conformance.deviations.deviation import Deviation, Dialect, Expected, Reply
from conformance.deviations.mask_arguments import slot_deviations
from conformance.deviations.measured import find_measured, kinds_of, of_argument
from conformance.deviations.names import rank, slot_of
from conformance.deviations.nonfinite import OF_MASKED_NAN
from conformance.reference.gradients import gradients
from conformance.reference.pipeline import STEPS, Step, Steps, insert_after, run
from conformance.reference.steps import State
from conformance.spec.problem import SCORES, Array, Problem
from conformance.spec.rounding import round_to
from conformance.spec.texts import one_of

_MODULES = (edges, regions, tiles, logits, softmax, key_blocks, nonfinite, layout, projections, returned)

# All deviations except those of one mask argument (`mask_arguments`), key loops (`tiles`), and measured ones.
TABLE: tuple[Deviation, ...] = tuple(
    sorted((row for module in _MODULES for row in module.ROWS), key=lambda row: rank(row.decision, row.name))
)

# Decisions with too many deviations for the table.
FITTED = frozenset({tiles.DECISION})

_RANK = {deviation.key: index for index, deviation in enumerate(TABLE)}
_RANK_OF_DECISION = {deviation.decision: index for index, deviation in reversed(list(enumerate(TABLE)))}


def find(decision: str, name: str) -> Deviation:
    """
    Find the deviation of a decision by name.

    Raises:
        KeyError: there is no such deviation; the message lists the names of that decision.
    """
    if decision in FITTED:
        return tiles.find_key_loop(name)
    family, slot = slot_of(decision)
    rows = _by_key(slot)
    key = f"{decision}={name}"
    if key in rows:
        return rows[key]
    if (measured := find_measured(decision, name)) is not None:
        kind, number = measured
        return kind.deviation(number)
    names = names_of(decision)
    hint = f"expected {one_of(names)}" if names else _no_decision(family, slot, name)
    raise KeyError(f"no deviation {key}: {hint}")


def names_of(decision: str) -> list[str]:
    """Return the names of the deviations of a decision, those with a number as patterns; none if it is unknown."""
    rows = _by_key(slot_of(decision)[1]).values()
    return [*(row.name for row in rows if row.decision == decision), *(kind.pattern for kind in kinds_of(decision))]


def _no_decision(family: str, slot: str | None, name: str) -> str:
    """Explain why a decision is unknown, with a suggestion."""
    decisions = (*(row.decision for row in slot_deviations("mask")), *(kind.decision for kind in of_argument("mask")))
    about_slots = {slot_of(decision)[0] for decision in decisions}
    if slot is None and family in about_slots:
        return f"this decision needs the name of a mask argument in brackets, such as {family}[mask]={name}"
    known = {row.decision for row in TABLE}
    if slot is not None and family in known:
        return f"this decision takes no argument in brackets: write {family}={name}"
    near = get_close_matches(family, sorted({*known, *about_slots}), 1)
    return f"there is no decision {family!r}" + (f"; did you mean {near[0]}?" if near else "")


def has_row(decision: str, name: str) -> bool:
    """Whether a table lists this deviation; those with a measured number and key loops are only found by `find`."""
    return decision not in FITTED and f"{decision}={name}" in _by_key(slot_of(decision)[1])


@cache
def _by_key(slot: str | None) -> dict[str, Deviation]:
    """Return the deviations of one mask argument by key; for None, those of the table."""
    return {row.key: row for row in (TABLE if slot is None else slot_deviations(slot))}


def compose(dialect: Dialect) -> tuple[Deviation, ...]:
    """Return the deviations of a dialect in the order of application."""
    return in_order(find(decision, name) for decision, name in dialect.items())


def concerned(problem: Problem, dialect: Dialect) -> Dialect:
    """
    Return the dialect, or the canonical one if none of its deviations can affect this problem.

    Otherwise all of them stay, because one deviation may make numbers on which another one acts.

    Raises:
        KeyError: there is no such deviation.
    """
    rows = [find(decision, name) for decision, name in dialect.items()]
    return dialect if any(row.concerns(problem) for row in rows) else {}


# Decisions about the fill of the logits that one mask argument masks.
FILLS_OF_ONE = ("argument_fill", "causal_fill")


def in_order(deviations: Iterable[Deviation]) -> tuple[Deviation, ...]:
    """
    Sort deviations in the order of application: by stage, then in the order of the table.

    A deviation that no table lists is sorted like the first one of its decision. The fill of one mask argument comes
    after the fill of all others. Deviations about NaN at a masked key come last, because the fill determines whether it
    reaches the output.
    """

    def place(row: Deviation) -> tuple[bool, bool, bool, int, str]:
        of_argument = slot_of(row.decision)[0] in FILLS_OF_ONE
        return row.stage != "problem", row.decision in OF_MASKED_NAN, of_argument, _rank(row), row.key

    return tuple(sorted(deviations, key=place))


def _rank(row: Deviation) -> int:
    return _RANK.get(row.key, _RANK_OF_DECISION.get(row.decision, -1))


# Fills that give a masked key a weight of exactly 0 if another key of the row is attended.
LOW_FILLS = frozenset(
    f"mask_fill={name}" for name in ("minus_1e4", "minus_1e9", "minus_65504", "minus_45856", "finite_minimum")
)


def candidates(problem: Problem, among: Collection[tuple[str, str]] | None = None) -> tuple[Deviation, ...]:
    """
    Return all deviations that are tried on this problem: those of its mask arguments, then those of the table.

    among: if given, only deviations with these decisions and names.
    """
    slots = dict.fromkeys(operand.slot for operand in problem.mask_operands)
    every = (*(row for slot in slots for row in slot_deviations(slot)), *TABLE)
    chosen = (row for row in every if among is None or (row.decision, row.name) in among)
    relevant = tuple(row for row in chosen if row.concerns(problem) and row.distinguishes(problem))
    if not problem.differentiated:
        return tuple(row for row in relevant if row.decision != softmax.RECOMPUTED)
    return tuple(row for row in relevant if keeps_gradients(row, problem))


def keeps_gradients(row: Deviation, problem: Problem) -> bool:
    """
    Whether the gradients of `reference.gradients` are valid under a deviation.

    They are valid if attention is still the same function of the same arrays, with other masks or another scale, and if
    only fully masked rows have other weights. A deviation that does not change the problem is excluded.
    """
    if row.problem is None:
        return row.decision in ("fully_masked_row", softmax.RECOMPUTED) or row.key in LOW_FILLS
    changed = row.posed(problem)
    arrays = ("query", "key", "value", "params", "num_heads", "num_kv_heads")
    return changed is not problem and all(getattr(changed, name) is getattr(problem, name) for name in arrays)


CANONICAL: Dialect = {}


@dataclass(frozen=True, eq=False)
class OracleAnswer:
    """The expected reply, the state from which bounds are derived, and the deviations that applied."""

    reply: Reply
    state: State
    deviations: tuple[Deviation, ...]


def evaluate(problem: Problem, dialect: Dialect = CANONICAL, score: str = "float64") -> OracleAnswer:
    """
    Compute the answer to `problem` under `dialect`.

    score: the dtype to which the declared arithmetic rounds logits; only finite fills depend on it.
    """
    return evaluate_deviations(problem, compose(dialect), score)


def evaluate_deviations(problem: Problem, deviations: tuple[Deviation, ...], score: str) -> OracleAnswer:
    """
    Compute the answer to `problem` under sorted deviations; those that do not change the problem are dropped.

    Deviations overflow, divide by zero and make NaN on purpose, so NumPy's warnings are only enabled if there are none.
    """
    with np.errstate(over="ignore", invalid="ignore", divide="ignore") if deviations else nullcontext():
        return _answer(problem, deviations, score)


def _answer(problem: Problem, deviations: tuple[Deviation, ...], score: str) -> OracleAnswer:
    applied = []
    for deviation in deviations:
        changed = deviation.posed(problem)
        if deviation.problem is None or changed is not problem:
            applied.append(deviation)
        problem = changed
    state = run(problem, varied_steps(problem.operator, applied, score))
    reply = requested(state)
    for deviation in applied:
        if deviation.reply is not None:
            reply = deviation.reply(reply)
    return OracleAnswer(reply, state, tuple(applied))


def varied_steps(operator: str, deviations: Iterable[Deviation], score: str) -> Steps:
    """Return the steps of an operator under sorted deviations; maps of heads become steps, in order."""
    steps = STEPS[operator]
    previous = "split" if operator == "mha" else "group"
    for deviation in deviations:
        if deviation.steps is not None:
            steps = deviation.steps(steps, score)
        elif deviation.heads is not None:
            steps = insert_after(steps, previous, Step(deviation.key, deviation.heads))
            previous = deviation.key
    return steps


def requested(state: State) -> Reply:
    """Return the outputs that the problem requests, in the dtype of the input."""
    problem, dtype = state.problem, state.problem.dtype
    made: dict[str, Callable[[], Array]] = {
        "output": lambda: state.output,
        "weights": lambda: state.weights,
        "weights_mean": lambda: np.asarray(state.weights.mean(axis=1)),
        **{name: partial(getattr, state, name) for name in SCORES},
        "logits": lambda: _in_range(state.logits, dtype),
        "present_key": lambda: problem.key,
        "present_value": lambda: problem.value,
    }
    if problem.differentiated:
        by_name = gradients(state)
        made |= {name: partial(by_name.__getitem__, name) for name in by_name}
    return {name: Expected(made[name](), dtype) for name in problem.outputs}


def _in_range(values: Array, dtype: str) -> Array:
    """Return values with infinities where `dtype` has no such large number: a fill of -1e9 is -inf in float16."""
    rounded = round_to(values, dtype)
    return np.where(np.isinf(rounded), rounded, values)
