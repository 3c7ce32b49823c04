"""
The table of variations: every non-canonical way of attention that the harness has words for.

Order matters: within a stage, a dialect is composed in the order of this table, and of several that explain a reply
the first is named first.
"""

from collections.abc import Iterable
from functools import cache

from conformance.oracle import (
    key_loops,
    other_appended,
    other_backward,
    other_caps,
    other_cleaning,
    other_columns,
    other_fills,
    other_habits,
    other_kernels,
    other_lowest,
    other_masks,
    other_overflow,
    other_padding,
    other_parts,
    other_problems,
    other_projections,
    other_readings,
    other_replies,
    other_slips,
    other_softmax,
    other_steps,
    other_tails,
    other_tiles,
    other_weights,
    other_windows,
)
from conformance.oracle.measured import find_measured
from conformance.oracle.misread_masks import slot_variations
from conformance.oracle.other_masks import causal
from conformance.oracle.variation import Dialect, Variation, slot_of
from conformance.spec.problem import Problem

TABLE: tuple[Variation, ...] = (
    *other_masks.ROWS,
    *other_lowest.ROWS,
    *other_problems.ROWS,
    *other_projections.ROWS,
    *other_appended.ROWS,
    *other_steps.ROWS,
    *other_cleaning.ROWS,
    *other_weights.ROWS,
    *other_caps.ROWS,
    *other_softmax.ROWS,
    *other_fills.ROWS,
    *other_slips.ROWS,
    *other_windows.ROWS,
    *other_overflow.ROWS,
    *other_tails.ROWS,
    *other_kernels.ROWS,
    *other_padding.ROWS,
    *other_tiles.ROWS,
    *other_columns.ROWS,
    *other_parts.ROWS,
    *other_habits.ROWS,
    *other_readings.ROWS,
    *other_replies.ROWS,
    *other_backward.ROWS,
)

CANONICAL_NAMES: dict[str, str] = {
    "causal_alignment": "top_left",
    "scale": "1/sqrt(head_dim) or as given",
    "causal_with_past": "shifted by its length",
    "window_with_past": "shifted by its length",
    "window_edges": "inclusive",
    "mask_combination": "and",
    "bias_scale": "unscaled",
    "arguments": "query, key, value",
    "input_axes": "as declared",
    "attention_axis": "positions",
    "projection_order": "qkv",
    "projection_bias": "applied",
    "projection_activation": "as asked for",
    "residual": "as asked for",
    "bias_kv": "appended after the projection",
    "zero_key": "appended",
    "appended_keys": "last, and attended whatever masks say",
    "weight_orientation": "(in, out)",
    "value_path": "the values of the head",
    "head_split": "consecutive",
    "head_merge": "consecutive",
    "grouped_heads": "repeat",
    "logit_limit": "none",
    "softcap": "after the scale, before bias and mask",
    "mask_fill": "-inf",
    "fully_masked_row": "zero",
    "softmax_axis": "keys",
    "softmax_count": "once",
    "softmax_denominator": "the sum of exponentials",
    "inactive_dropout": "without effect",
    "nonfinite_key": "isolated",
    "nonfinite_value": "isolated",
    other_cleaning.DECISION: "reaches those that attend it",
    "returned_weights": "per head, after the softmax",
    "returned_scores": "those that are asked for",
    "result_dtype": "the input's",
    "softmax_base": "e",
    "softmax_maximum": "subtracted",
    "output_projection": "applied",
    "key_tail": "attended",
    "query_tail": "answered",
    "online_softmax": "rescaled",
    "head_result": "of the head",
    "causal_query_tile": "each its own",
    "causal_key_tile": "each by itself",
    "mask_rows": "for all queries",
    "mask_columns": "for all keys",
    "leading_masked_keys": "without effect",
    "causal_mask": "as asked for",
    "always_attended": "what masks allow",
    key_loops.DECISION: "to the last key that is attended",
    "padded_keys": "masked",
    "padded_queries": "answered like others",
    "recomputed_weights": "normalised",
    "lowest_bias": "added",
}
"""What canonical is called, for sentences; decisions that are absent are called canonical."""

FITTED = {key_loops.DECISION: key_loops.FAMILY}
"""Decisions that can be taken in too many ways for the table."""

_RANK = {variation.key: rank for rank, variation in enumerate(TABLE)}
_RANK_OF_DECISION = {variation.decision: rank for rank, variation in reversed(list(enumerate(TABLE)))}


def find(decision: str, name: str) -> Variation:
    """
    The variation of one decision by name.

    Raises:
        KeyError: the table has no such row; the message lists the names of that decision.
    """
    if decision in FITTED:
        return FITTED[decision].find(name)
    family, slot = slot_of(decision)
    rows = _by_key(slot)
    key = f"{decision}={name}"
    if key in rows:
        return rows[key]
    if (measured := find_measured(decision, name)) is not None:
        return measured
    names = [row.name for row in rows.values() if row.decision == decision]
    hint = f"it is one of {', '.join(names)}" if names else f"there is no decision {family!r}"
    raise KeyError(f"no variation {key}: {hint}")


def has_row(decision: str, name: str) -> bool:
    """Whether the table has it; what is fitted, or has a number in it, is found by its name alone."""
    return decision not in FITTED and f"{decision}={name}" in _by_key(slot_of(decision)[1])


@cache
def _by_key(slot: str | None) -> dict[str, Variation]:
    """The variations of one argument, or those of none."""
    return {variation.key: variation for variation in (TABLE if slot is None else slot_variations(slot))}


def compose(dialect: Dialect) -> tuple[Variation, ...]:
    """The variations of a dialect in their fixed order."""
    return in_order(find(decision, name) for decision, name in dialect.items())


def in_order(variations: Iterable[Variation]) -> tuple[Variation, ...]:
    """
    Variations in their fixed order: by stage as applied, then as the table lists them.

    One that is found by its name alone has the place of the first row of its decision.
    """
    return tuple(sorted(variations, key=lambda v: (v.stage != "problem", _rank(v), v.key)))


def _rank(variation: Variation) -> int:
    return _RANK.get(variation.key, _RANK_OF_DECISION.get(variation.decision, -1))


LOW_FILLS = frozenset(
    f"mask_fill={name}" for name in ("minus_1e4", "minus_1e9", "minus_65504", "minus_45856", "finite_minimum")
)
"""Fills under which a masked key beside an attended one has a weight of exactly 0."""


def candidates(problem: Problem) -> tuple[Variation, ...]:
    """Every variation that this problem could show: those of the arguments it uses, then the table."""
    slots = dict.fromkeys(group.slot for group in problem.groups)
    every = (*(v for slot in slots for v in slot_variations(slot)), *TABLE)
    found = tuple(v for v in every if v.concerns(problem))
    if not problem.differentiated:
        return tuple(v for v in found if v.decision != other_backward.RECOMPUTED)
    return tuple(v for v in found if keeps_gradients(v, problem))


def keeps_gradients(variation: Variation, problem: Problem) -> bool:
    """
    Whether the gradients that `gradients` derives hold under a variation.

    They do where attention is the same function of the same arrays under other masks or another scale, and where a
    fully masked row has other weights. One that leaves the problem as it is says nothing.
    """
    if variation.problem is None:
        return variation.decision in ("fully_masked_row", other_backward.RECOMPUTED) or variation.key in LOW_FILLS
    varied = variation.posed(problem)
    arrays = ("query", "key", "value", "params", "num_heads", "num_kv_heads")
    return varied is not problem and all(getattr(varied, name) is getattr(problem, name) for name in arrays)


__all__ = ["CANONICAL_NAMES", "TABLE", "candidates", "causal", "compose", "find", "has_row", "slot_variations"]
