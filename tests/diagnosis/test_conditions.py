"""The words of conditions, and two of them combined; tests of known deviations check that each can hold and fail."""

import pytest

from conformance.diagnosis.conditions import OF_CALL, OF_MASKS, OF_PROBLEM, OF_SIZES, Condition, always, condition_text

WORDS = [
    ({}, ""),
    ({"dtype": ["float16", "bfloat16"]}, "in float16 or bfloat16"),
    ({"operator": "mha", "alias": ["kv"]}, "in calls of mha and with one tensor for key and value"),
    (
        {"outputs": ["weights"], "without_outputs": ["weights_mean"]},
        "with weights requested and with no weights_mean requested",
    ),
    ({"requirements": ["scale"], "without_requirements": ["past"]}, "with an explicit scale and without a past"),
    ({"masks": False, "scaled": True}, "with a scale given and without a mask"),
    ({"slots": ["bias"], "without_slots": ["mask"]}, "with bias given and without mask"),
    (
        {"elements": {"bias": "float"}, "verbatim": True},
        "with a mask array passed unchanged and with bias of type float",
    ),
    (
        {"kinds": ["causal"], "without_kinds": ["additive"], "dead_row": True},
        "with a causal mask and without an additive mask and with a fully masked row",
    ),
    (
        {"sizes": {"batch": 1}, "sizes_differ": [("seq_len_q", "seq_len_k")]},
        "with batch = 1 and with seq_len_q != seq_len_k",
    ),
    ({"sizes_less": [("seq_len_k", "seq_len_q")]}, "with seq_len_k < seq_len_q"),
    (
        {"sizes_above": {"seq_len_k": 16}, "sizes_up_to": {"seq_len_q": 8}},
        "with seq_len_k > 16 and with seq_len_q <= 8",
    ),
    (
        {"sizes_multiple": {"head_dim": 8}, "sizes_not_multiple": {"seq_len_k": 64}, "sizes_equal": [("kdim", "vdim")]},
        "with kdim = vdim and with head_dim a multiple of 8 and with seq_len_k not a multiple of 64",
    ),
]


@pytest.mark.parametrize(("fields", "words"), WORDS)
def test_every_condition_has_words(fields: dict[str, object], words: str) -> None:
    assert Condition.model_validate(fields).words == words


def test_two_conditions_together_ask_for_both() -> None:
    one = Condition(dtype=["float16"], sizes={"batch": 1}, kinds=["causal"])
    other = Condition(masks=True, sizes={"head_dim": 3}, kinds=["window"])
    assert one.and_also(other) == Condition(
        dtype=["float16"], sizes={"batch": 1, "head_dim": 3}, kinds=["causal", "window"], masks=True
    )
    assert one.and_also(always()) == one


def test_a_condition_is_recorded_by_what_it_asks_for() -> None:
    assert always().record() == {}
    assert Condition(sizes={"batch": 1}, fully_masked_row=False).record() == {
        "sizes": {"batch": 1},
        "fully_masked_row": False,
    }


def test_where_many_conditions_fit_it_is_said_what_the_calls_have_in_common() -> None:
    fit = [Condition(dtype=["float16"]), Condition(sizes={"batch": 1}), Condition(masks=True)]
    assert condition_text(fit[:1]) == "only in float16"
    assert condition_text(fit[:2]) == "only in float16, or only with batch = 1 (no case tells which)"
    assert condition_text(fit) == "only in some of the calls in float16"


def test_every_field_is_looked_at() -> None:
    """A field in none of the groups would be ignored, so its condition would hold everywhere."""
    groups = [OF_CALL, OF_MASKS, OF_SIZES, OF_PROBLEM]
    assert sorted(name for group in groups for name in group) == sorted(Condition.model_fields)
