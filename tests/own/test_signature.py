"""What a signature says: operator, mask, keywords; and what it must not ask for."""

import ast
import re

import pytest

from conformance.engine.slots import parse_slots
from conformance.own.errors import CheckError
from conformance.own.facts import AT_END, capabilities, facts_of, outputs, slots
from conformance.own.signature import KEYWORDS, Signature, read_signature


def signature(arguments: str, operator: str | None = None) -> Signature:
    (definition,) = ast.parse(f"def attend({arguments}): ...").body
    assert isinstance(definition, ast.FunctionDef)
    return read_signature(definition, operator)


@pytest.mark.parametrize(
    ("arguments", "operator", "mask", "by_name"),
    [
        ("query, key, value, mask", "sdpa", "mask", False),
        ("q, k, v, attn_mask=None", "sdpa", "attn_mask", False),
        ("q, k, v, mask, /", "sdpa", "mask", False),
        ("q, k, v, is_causal=False, mask=None", "sdpa", "mask", True),
        ("q, k, v, *, mask=None", "sdpa", "mask", True),
        ("q, k, v, scale=None", "sdpa", None, False),
        ("query, key, value, params, num_heads, mask", "mha", "mask", False),
        ("x, y, z, weights, num_heads, m=None", "mha", "m", False),
        ("x, y, z, params, heads", "mha", None, False),
    ],
)
def test_operator_and_mask_are_read_from_the_arguments(
    arguments: str, operator: str, mask: str | None, *, by_name: bool
) -> None:
    read = signature(arguments)
    assert (read.operator, read.mask, read.mask_by_name) == (operator, mask, by_name)


def test_the_operator_can_be_said() -> None:
    assert signature("q, k, v, p, n, mask=None", "mha").operator == "mha"


def test_further_arguments_are_passed_only_if_they_are_named() -> None:
    read = signature(f"q, k, v, mask=None, *, {', '.join(f'{name}=None' for name in KEYWORDS)}")
    assert read.keywords == KEYWORDS
    assert signature("q, k, v, mask=None, **options").keywords == ()


def test_an_unknown_argument_keeps_its_default_and_is_told() -> None:
    assert signature("q, k, v, mask=None, causal=False, *, block=64").defaults == ("causal", "block")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("q, k", "attend(q, k) takes 2 arguments by position; sdpa is called as attend(query, key, value, mask)"),
        (
            "q, k, v, mask, block",
            "needs an argument 'block' that check does not pass: give it a default; mask, is_causal",
        ),
        ("q, k, v, mask, *, is_casual", "needs an argument 'is_casual'"),
        ("q, k, v, mask, *, is_casual", "did you mean is_causal?"),
    ],
)
def test_what_cannot_be_called_says_why(arguments: str, said: str) -> None:
    with pytest.raises(CheckError, match=re.escape(said)):
        signature(arguments)


def test_too_few_for_mha_says_how_it_is_called() -> None:
    with pytest.raises(CheckError, match="mha is called as attend\\(query, key, value, params, num_heads, mask\\)"):
        signature("q, k, v", "mha")


def test_a_plain_mask_takes_every_boolean_mask() -> None:
    (slot,) = parse_slots(slots(signature("q, k, v, mask"), {})).values()
    assert set(slot.takes) == {"key_padding", "attention", "causal", "window"}
    assert slot.broadcast == ("b", "h", "q", "k")
    assert slot.meaning("bool") == "attend"
    assert slot.meaning("float") is None


def test_what_is_named_has_an_argument_of_its_own() -> None:
    named = signature(
        "q, k, v, mask=None, *, is_causal=False, causal_alignment='', window=None, bias=None, key_padding_mask=None"
    )
    found = parse_slots(slots(named, {"key_padding_mask": "ignore"}))
    assert set(found) == {"mask", "is_causal", AT_END, "window", "bias", "key_padding_mask"}
    assert found[AT_END].alignment == "bottom_right"
    assert found["key_padding_mask"].meaning("bool") == "ignore"
    assert found["mask"].meaning("bool") == "attend"


def test_without_a_mask_there_is_no_argument_for_one() -> None:
    assert slots(signature("q, k, v"), {}) == {}


def test_a_scale_and_fewer_key_heads_need_an_argument() -> None:
    assert capabilities(signature("q, k, v, mask")) == ["layout", "value_dim"]
    assert set(capabilities(signature("q, k, v, mask, *, scale, num_kv_heads"))) >= {"scale", "grouped_heads"}
    assert "softcap" in capabilities(signature("q, k, v, mask, *, softcap"))
    assert "no_bias" in capabilities(signature("q, k, v, params, num_heads, mask"))


def test_weights_are_asked_for_where_they_can_be() -> None:
    assert outputs(signature("q, k, v, mask")) == ["output"]
    assert outputs(signature("q, k, v, mask, *, need_weights")) == ["output", "weights"]
    assert outputs(signature("q, k, v, mask, *, need_weights, average_weights")) == [
        "output",
        "weights",
        "weights_mean",
    ]


def test_facts_are_complete() -> None:
    facts = facts_of(signature("q, k, v, mask"), "mine.attend", {})
    assert facts["NAME"] == "mine.attend"
    assert facts["DTYPES"] == ["float64", "float32", "float16"]
