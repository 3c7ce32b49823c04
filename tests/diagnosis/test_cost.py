"""Explanations have costs: human mistakes before kernel mistakes, plain numbers before others, one cause before two."""

import pytest

from conformance.deviations.catalogue import TABLE, find
from conformance.deviations.deviation import Deviation
from conformance.deviations.mask_arguments import slot_deviations
from conformance.deviations.measured import MEASURED, of_argument
from conformance.deviations.names import (
    BITS,
    COMMON_BITS,
    KERNEL_BITS,
    LINES,
    RARE_BITS,
    USUAL_BITS,
    bits_of,
    line_of,
    prior,
)
from conformance.deviations.tiles import key_loop, key_loops
from conformance.diagnosis.explanation import (
    MAX_EXTRA_COST,
    SECOND_DEVIATION,
    UNEXPLAINED,
    of_change,
    of_condition,
    saved,
)


def test_what_people_ship_is_cheaper_than_what_kernels_do() -> None:
    everyday, kernel = bits_of("causal_mask", "ignored"), bits_of("causal_query_tile", "last_128")
    assert everyday == COMMON_BITS
    assert kernel > KERNEL_BITS > everyday + MAX_EXTRA_COST
    assert prior("exchange", "whatever") == RARE_BITS


@pytest.mark.parametrize(
    ("plainer", "other"), [("puts_-10", "puts_-10.3"), ("puts_-10000", "puts_-9999"), ("adds_0", "adds_0.7")]
)
def test_a_plain_number_is_cheaper_than_any_other(plainer: str, other: str) -> None:
    assert bits_of("mask_fill", plainer) < bits_of("mask_fill", other)


def test_an_argument_is_as_likely_as_any_other() -> None:
    assert bits_of("use[mask]", "ignored") == bits_of("use[key_padding_mask]", "ignored") == COMMON_BITS


def test_two_decisions_cost_more_than_each() -> None:
    one, other = ("scale", "none"), ("softmax_axis", "heads")
    assert of_change((one, other)) > of_change((one,)) + of_change((other,))
    assert of_change((("fully_masked_row", "canonical"),)) == 0.0
    assert of_change((), coarser=True) > 0.0


def test_a_usual_deviation_beside_a_mistake_costs_its_prior_alone() -> None:
    mistake, usual = ("scale", "none"), ("nonfinite_value", "leaks")
    assert of_change((mistake, usual)) == of_change((usual, mistake)) == of_change((mistake,)) + USUAL_BITS
    assert of_change((usual, ("fully_masked_row", "nan"))) == 2 * USUAL_BITS


def test_a_condition_costs_what_it_was_chosen_from() -> None:
    assert of_condition(0, 64) == 0.0
    assert of_condition(1, 64) == 6.0
    assert of_condition(2, 64) == 12.0
    assert of_condition(2, 64, limits=1) == 15.0


def test_one_failing_cell_pays_for_an_everyday_mistake_and_not_for_a_rare_one() -> None:
    assert saved(1, COMMON_BITS) > saved(1, COMMON_BITS + SECOND_DEVIATION) > 0.0 > saved(1, RARE_BITS)
    assert saved(3, RARE_BITS) == 3 * UNEXPLAINED - RARE_BITS


def test_every_line_of_the_names_is_a_deviation() -> None:
    """A line without a deviation is a sentence that nobody reads; a row of the table without a line is an error."""
    kinds = (*MEASURED, *of_argument("mask"))
    rows = [*TABLE, *slot_deviations("mask"), *(kind.deviation(0.5) for kind in kinds), key_loop(next(key_loops()))]
    named = [line_of(row.decision, row.name) for row in rows]
    # Numbers with their own words.
    named += [line_of("bias_scale", name) for name in ("times_0", "times_-1")]
    named += [line_of(kind.decision, kind.name(-1e9)) for kind in kinds]
    assert {line[0] for line in named if line is not None} == set(LINES)
    assert {kind for kind, *_ in LINES.values()} == set(BITS)


def test_a_deviation_without_a_line_is_refused() -> None:
    with pytest.raises(KeyError, match=r"scale=unheard_of has no line in names\.toml"):
        Deviation("scale", "unheard_of", problem=lambda problem: problem)


def test_the_number_of_a_name_is_put_into_its_sentence() -> None:
    assert find("mask_fill", "puts_-10").sentence == "fills masked logits with -10, not with -inf"
    assert find("logit_limit", "30_after_bias").sentence == "clips the logits to [-30, 30] after the bias is added"
    assert find("key_tail", "dropped_16").sentence == "drops the keys after the last full block of 16 keys"
    assert find("polarity[attn_mask]", "ignore").remedy == "pass ~attn_mask"


def test_a_number_of_more_than_six_digits_costs_little_more() -> None:
    """Otherwise a number of six digits plus some failing float64 calls would be the shorter description."""
    numbers = ("0.693147", "0.69314718", "0.6931471805599453")
    six, *more = (bits_of("bias_scale", f"times_{number}") for number in numbers)
    assert [each - six for each in more] == [2.0, 2.0]
    assert bits_of("bias_scale", "times_0.7") == six
