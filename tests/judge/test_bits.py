"""What explanations cost: people's mistakes before kernels', plain numbers before others, one cause before two."""

import pytest

from conformance.judge.bits import ALIKE, BESIDE, UNEXPLAINED, of_change, of_condition, saved
from conformance.oracle.priors import COMMON, COMMON_BITS, FRAMEWORK, KERNEL, KERNEL_BITS, RARE_BITS, bits_of, prior
from conformance.oracle.variations import FITTED, TABLE, slot_variations


def test_what_people_ship_is_cheaper_than_what_kernels_do() -> None:
    everyday, kernel = bits_of("causal_mask", "ignored"), bits_of("causal_query_tile", "last_128")
    assert everyday == COMMON_BITS
    assert kernel > KERNEL_BITS > everyday + ALIKE
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


def test_a_condition_costs_what_it_was_chosen_from() -> None:
    assert of_condition(0, 64) == 0.0
    assert of_condition(1, 64) == 6.0
    assert of_condition(2, 64) == 12.0


def test_one_failing_cell_pays_for_an_everyday_mistake_and_not_for_a_rare_one() -> None:
    assert saved(1, COMMON_BITS) > saved(1, COMMON_BITS + BESIDE) > 0.0 > saved(1, RARE_BITS)
    assert saved(3, RARE_BITS) == 3 * UNEXPLAINED - RARE_BITS


@pytest.mark.parametrize("table", [COMMON, FRAMEWORK, KERNEL], ids=["common", "framework", "kernel"])
def test_whatever_has_a_prior_of_its_own_is_a_decision_and_a_way_of_it(table: dict[str, str]) -> None:
    known: dict[str, set[str]] = {}
    for row in (*TABLE, *slot_variations("mask")):
        known.setdefault(row.decision.partition("[")[0], set()).add(row.name)
    for decision, names in table.items():
        assert decision in known or decision in FITTED, decision
        assert set(names.split()) - {"*"} <= known.get(decision, set()), decision
