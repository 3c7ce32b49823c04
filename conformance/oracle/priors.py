"""
How often people make a mistake: what a variation costs before anything is measured, in bits.

A mistake that people ship is cheap, one that only a kernel can make is dear. `judge.bits` adds what a condition costs.
The numbers are chosen by argument, never fitted to a set of bugs.
"""

import re

from conformance.oracle.measured import MEASURED
from conformance.oracle.variation import slot_of

USUAL_BITS, COMMON_BITS, FRAMEWORK_BITS, KERNEL_BITS, RARE_BITS = 1.0, 3.0, 5.0, 8.0, 12.0

USUAL = {"nonfinite_key": "leaks", "nonfinite_value": "leaks", "fully_masked_row": "nan"}
"""Decision -> what plain code does where nobody thought of it: zero times NaN is NaN, and so is zero over zero."""

COMMON = {
    "polarity": "*",
    "number_mask": "*",
    "use": "ignored ignored_beside_others",
    "mask_axes": "transposed first_item first_head",
    "float_mask": "subtracted cast_to_bool",
    "causal_mask": "ignored ignored_beside_others unasked",
    "causal_alignment": "bottom_right strict one_ahead reversed future always_top_left",
    "window_edges": "exclusive left_shorter left_longer right_shorter right_longer sides_exchanged",
    "mask_combination": "*",
    "mask_fill": "minus_1e4 minus_1e9 plus_1e10 finite_minimum zero times_mask zero_after_softmax",
    "scale": "none ignored all_heads value_dim seq_len squared given_times_default inverted",
    "bias_scale": "scaled doubled",
    "softcap": "ignored before_scale after_bias after_mask",
    "softmax_axis": "*",
    "softmax_count": "*",
    "softmax_base": "*",
    "softmax_maximum": "missing",
    "softmax_denominator": "missing plus_one",
    "fully_masked_row": "*",
    "nonfinite_key": "*",
    "nonfinite_value": "*",
    "grouped_heads": "tile",
    "head_split": "interleaved untransposed",
    "head_merge": "*",
    "weight_orientation": "*",
    "projection_order": "*",
    "projection_bias": "ignored without_bq without_bk without_bv without_bo",
    "output_projection": "*",
    "value_path": "key reversed next_head",
    "arguments": "query_key key_value",
    "input_axes": "*",
    "output_axes": "*",
    "key_tail": "last_dropped first_dropped",
    "returned_weights": "averaged not_averaged before_softmax masked_logits",
    "result_dtype": "*",
}
"""Decision -> the ways of it that people ship every day, or all."""

FRAMEWORK = {
    "attended_nonfinite": "*",
    "appended_keys": "*",
    "lowest_bias": "*",
    "recomputed_weights": "*",
    "returned_scores": "*",
    "penalty": "*",
    "causal_with_past": "*",
    "window_with_past": "*",
    "mask_fill": "minus_65504 minus_45856",
    "scale": "square_root",
    "float_mask": "one_minus above_half",
    "mask_axes": "items_as_heads",
    "causal_alignment": "last_row_open first_row",
    "use": "ignored_with_weights",
}
"""Decision -> the ways of it that a released framework takes, or took (conformance/gate/known.yaml has the links)."""

KERNEL = {
    "online_softmax": "*",
    "causal_query_tile": "*",
    "causal_key_tile": "*",
    "mask_rows": "*",
    "mask_columns": "*",
    "leading_masked_keys": "*",
    "query_tail": "*",
    "key_tail": "*",
    "head_result": "*",
    "causal_loop": "*",
}
"""Decision -> the ways of it that only a kernel takes which goes through tiles or blocks."""

PLAIN = frozenset({0.0, 1.0, 2.0, 0.5, 10.0, 100.0, *(10.0**n for n in range(-12, 10)), 65504.0})
"""Numbers with a plain name, of either sign."""
PLAIN_BITS, NUMBER_BITS, BLOCK_BITS = 4.0, 10.0, 3.0


def bits_of(decision: str, name: str) -> float:
    """What taking a decision in this way costs: its prior, and the number in its name."""
    return prior(decision, name) + _number_bits(decision, name)


def prior(decision: str, name: str) -> float:
    """What the kind of mistake costs, without the number in it."""
    family = slot_of(decision)[0]
    if _measured(decision, name) is not None:
        return COMMON_BITS
    for bits, table in ((USUAL_BITS, USUAL), (COMMON_BITS, COMMON), (FRAMEWORK_BITS, FRAMEWORK), (KERNEL_BITS, KERNEL)):
        if table.get(family) == "*" or name in table.get(family, "").split():
            return bits
    return RARE_BITS


def _measured(decision: str, name: str) -> float | None:
    found = (kind.number(name) for kind in MEASURED if kind.decision == decision)
    return next((number for number in found if number is not None), None)


def _number_bits(decision: str, name: str) -> float:
    if (number := _measured(decision, name)) is not None:
        return PLAIN_BITS if any(abs(abs(number) - plain) <= 1e-9 * plain for plain in PLAIN) else NUMBER_BITS
    return BLOCK_BITS * len(re.findall(r"\d+", name)) if prior(decision, name) > FRAMEWORK_BITS else 0.0
