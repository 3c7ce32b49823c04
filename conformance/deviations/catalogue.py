"""
The catalogue: every deviation that the harness has words for.

Within a stage, a dialect is composed in the order of `names.toml`, and of several deviations that explain a reply the
first is named first.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache

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
from conformance.deviations.deviation import Deviation, Dialect
from conformance.deviations.mask_arguments import slot_deviations
from conformance.deviations.measured import find_measured
from conformance.deviations.names import rank, slot_of
from conformance.spec.problem import Problem

_MODULES = (edges, regions, tiles, logits, softmax, key_blocks, nonfinite, layout, projections, returned)

# Every deviation but those that are made for an argument (`masks`), fitted (`key_loops`) or measured.
TABLE: tuple[Deviation, ...] = tuple(
    sorted((row for module in _MODULES for row in module.ROWS), key=lambda row: rank(row.decision, row.name))
)

# Decisions that can be taken in too many ways for the table.
FITTED = frozenset({tiles.DECISION})

_RANK = {deviation.key: place for place, deviation in enumerate(TABLE)}
_RANK_OF_DECISION = {deviation.decision: place for place, deviation in reversed(list(enumerate(TABLE)))}


def find(decision: str, name: str) -> Deviation:
    """
    The deviation of one decision by name.

    Raises:
        KeyError: there is none of that name; the message lists the names of that decision.
    """
    if decision in FITTED:
        return tiles.find_key_loop(name)
    family, slot = slot_of(decision)
    rows = _by_key(slot)
    key = f"{decision}={name}"
    if key in rows:
        return rows[key]
    if (measured := find_measured(decision, name)) is not None:
        return measured
    names = [row.name for row in rows.values() if row.decision == decision]
    hint = f"expected one of {', '.join(names)}" if names else _no_decision(family, slot, name)
    raise KeyError(f"no deviation {key}: {hint}")


def _no_decision(family: str, slot: str | None, name: str) -> str:
    """What is wrong with the decision itself, and what may be meant."""
    about_slots = {slot_of(row.decision)[0] for row in slot_deviations("mask")}
    if slot is None and family in about_slots:
        return f"this decision needs the name of a mask argument in brackets, such as {family}[mask]={name}"
    known = {row.decision for row in TABLE}
    if slot is not None and family in known:
        return f"this decision takes no argument in brackets: write {family}={name}"
    near = get_close_matches(family, sorted({*known, *about_slots}), 1)
    return f"there is no decision {family!r}" + (f"; did you mean {near[0]}?" if near else "")


def has_row(decision: str, name: str) -> bool:
    """Whether the table has it; what is fitted, or has a number in it, is found by its name alone."""
    return decision not in FITTED and f"{decision}={name}" in _by_key(slot_of(decision)[1])


@cache
def _by_key(slot: str | None) -> dict[str, Deviation]:
    """The deviations of one argument, or those of none."""
    return {row.key: row for row in (TABLE if slot is None else slot_deviations(slot))}


def compose(dialect: Dialect) -> tuple[Deviation, ...]:
    """The deviations of a dialect in their fixed order."""
    return in_order(find(decision, name) for decision, name in dialect.items())


def in_order(deviations: Iterable[Deviation]) -> tuple[Deviation, ...]:
    """
    Deviations in their fixed order: by stage as applied, then as the table lists them.

    One that is found by its name alone has the place of the first row of its decision.
    """
    return tuple(sorted(deviations, key=lambda row: (row.stage != "problem", _rank(row), row.key)))


def _rank(row: Deviation) -> int:
    return _RANK.get(row.key, _RANK_OF_DECISION.get(row.decision, -1))


# Fills under which a masked key beside an attended one has a weight of exactly 0.
LOW_FILLS = frozenset(
    f"mask_fill={name}" for name in ("minus_1e4", "minus_1e9", "minus_65504", "minus_45856", "finite_minimum")
)


def candidates(problem: Problem) -> tuple[Deviation, ...]:
    """Every deviation that this problem could show: those of the arguments it uses, then the table."""
    slots = dict.fromkeys(operand.slot for operand in problem.mask_operands)
    every = (*(row for slot in slots for row in slot_deviations(slot)), *TABLE)
    found = tuple(row for row in every if row.concerns(problem))
    if not problem.differentiated:
        return tuple(row for row in found if row.decision != softmax.RECOMPUTED)
    return tuple(row for row in found if keeps_gradients(row, problem))


def keeps_gradients(row: Deviation, problem: Problem) -> bool:
    """
    Whether the gradients that `gradients` derives hold under a deviation.

    They do where attention is the same function of the same arrays under other masks or another scale, and where a
    fully masked row has other weights. One that leaves the problem as it is says nothing.
    """
    if row.problem is None:
        return row.decision in ("fully_masked_row", softmax.RECOMPUTED) or row.key in LOW_FILLS
    varied = row.posed(problem)
    arrays = ("query", "key", "value", "params", "num_heads", "num_kv_heads")
    return varied is not problem and all(getattr(varied, name) is getattr(problem, name) for name in arrays)
