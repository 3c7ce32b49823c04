"""What is read from a signature: operator, mask and keywords; and which arguments are refused."""

import ast
import re
from collections.abc import Mapping
from dataclasses import replace

import pytest

from conformance.checking.adapter_text import AT_END, capabilities, facts_of, outputs, slots
from conformance.checking.signature import (
    BIASES,
    KEYWORDS,
    WEIGHTS,
    MaskForm,
    Parameter,
    Signature,
    parameters_of,
    read_signature,
)
from conformance.checking.target import CheckError
from conformance.engine.adapter_facts import parse_slots


def signature(arguments: str, operator: str | None = None, mapping: Mapping[str, str] | None = None) -> Signature:
    (definition,) = ast.parse(f"def attend({arguments}): ...").body
    assert isinstance(definition, ast.FunctionDef)
    return read_signature(definition.name, parameters_of(definition), operator, mapping)


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
    assert (read.operator, read.mask, "mask" in read.by_name) == (operator, mask, by_name)


def test_an_argument_that_is_the_mask_only_by_its_place_is_marked() -> None:
    assert signature("q, k, v, slopes=None").mask_by_place
    assert not signature("q, k, v, attn_mask=None").mask_by_place
    required = signature("q, k, v, slopes")
    assert (required.mask, required.mask_by_place) == ("slopes", True)
    without = required.without("mask")
    assert (without.mask, without.names["nothing"], without.placed[-1]) == (None, "slopes", "nothing")
    assert not signature("q, k, v, scale=None").mask_by_place


def test_an_argument_can_be_left_at_its_default() -> None:
    read = signature("q, k, v, slopes=None, is_causal=False", mapping={"slopes": "default"})
    assert (read.mask, read.defaults, read.placed) == (None, ("slopes",), ("query", "key", "value"))
    required = signature("q, k, v, slopes, is_causal=False", mapping={"slopes": "default"})
    assert (required.mask, required.defaults, required.placed) == (None, (), ("query", "key", "value", "nothing"))
    with pytest.raises(CheckError, match="attend needs an argument 'bias_table' that check does not know"):
        signature("q, k, v, slopes, bias_table", mapping={"slopes": "default", "bias_table": "default"})


def test_the_operator_can_be_said() -> None:
    assert signature("q, k, v, p, n, mask=None", "mha").operator == "mha"


def test_further_arguments_are_passed_only_if_they_are_named() -> None:
    read = signature(f"q, k, v, mask=None, *, {', '.join(f'{name}=0' for name in KEYWORDS)}")
    assert read.keywords == KEYWORDS
    assert signature("q, k, v, mask=None, **options").keywords == ()


def test_a_dropout_of_none_is_a_module_and_keeps_its_default() -> None:
    assert signature("query, key, value, mask=None, dropout=None").defaults == ("dropout",)
    assert signature("query, key, value, mask=None, dropout_p=None").defaults == ("dropout_p",)
    assert signature("query, key, value, mask=None, dropout=0.1").names["dropout_p"] == "dropout"


def test_an_unknown_argument_keeps_its_default_and_is_told() -> None:
    assert signature("q, k, v, mask=None, chunk=False, *, block=64").defaults == ("chunk", "block")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("q, k", "attend(q, k) takes 2 arguments by position; sdpa is called as attend(query, key, value, mask)"),
        (
            "x, params",
            (
                "attend(x, params) takes 2 arguments by position; mha is called as "
                "attend(query, key, value, params, num_heads, mask), where only mask is optional; name the argument "
                "for its key with --map ARGUMENT=key, or check a wrapper of attend that is called in this way"
            ),
        ),
        (
            "x, y, z, m, block",
            (
                "dropout_p, need_weights, average_weights, enable_gqa, training, deterministic; "
                "sdpa is called as attend(query, key, value, mask), where only mask is optional"
            ),
        ),
        (
            "q, k, v, mask, block",
            "'block' that check does not know: give it a default, or name its role with --map block=ROLE; roles",
        ),
        ("q, k, v, mask, *, is_casual", "needs an argument 'is_casual'"),
        ("q, k, v, mask, *, is_casual", "did you mean is_causal?"),
    ],
)
def test_what_cannot_be_called_says_why(arguments: str, said: str) -> None:
    with pytest.raises(CheckError, match=re.escape(said)):
        signature(arguments)


def test_too_few_for_mha_says_how_it_is_called() -> None:
    with pytest.raises(CheckError, match=r"mha is called as attend\(query, key, value, params, num_heads, mask\)"):
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
    facts = facts_of(replace(signature("q, k, v, mask"), dtypes=("float64", "float32", "float16")), "mine.attend", {})
    assert facts["NAME"] == "mine.attend"
    assert facts["DTYPES"] == ["float64", "float32", "float16"]


@pytest.mark.parametrize(
    ("arguments", "names", "placed"),
    [
        ("value, key, query, mask=None", {"value": "value", "query": "query"}, ("value", "key", "query", "mask")),
        ("Q, K, V, M=None", {"query": "Q", "mask": "M"}, ("query", "key", "value", "mask")),
        (
            "xq, xk, xv, causal=False, sm_scale=None",
            {"is_causal": "causal", "scale": "sm_scale"},
            ("query", "key", "value"),
        ),
        ("q, k, v, attn_bias=None", {"bias": "attn_bias"}, ("query", "key", "value")),
        ("q, k, v, block=64", {}, ("query", "key", "value")),
    ],
)
def test_arguments_are_known_by_usual_names_in_any_order(
    arguments: str, names: dict[str, str], placed: tuple[str, ...]
) -> None:
    read = signature(arguments)
    assert names.items() <= read.names.items()
    assert read.placed == placed


def test_each_weight_may_be_an_argument() -> None:
    read = signature("X, W_Q, W_K, W_V, W_O, num_heads, mask=None")
    assert (read.operator, read.has_own_weights, read.is_self_attention, read.mask) == ("mha", True, True, "mask")
    assert {role: read.names[role] for role in WEIGHTS} == {"wq": "W_Q", "wk": "W_K", "wv": "W_V", "wo": "W_O"}
    biased = signature("q, k, v, wq, query_bias, wk, bk, wv, bv, out_weight, bo, num_heads")
    assert [biased.names[role] for role in ("query", "wo", *BIASES)] == [
        "q",
        "out_weight",
        "query_bias",
        "bk",
        "bv",
        "bo",
    ]
    assert "kdim" not in capabilities(biased)
    assert signature("x, a, b, c, d, num_heads", mapping=dict(zip("abcd", WEIGHTS, strict=True))).has_own_weights
    assert not signature("q, k, v, params, num_heads").has_own_weights
    assert not signature("q, k, v, mask=None, wq=None, wk=None, wv=None, wo=None", "sdpa").has_own_weights


def test_weights_may_lack_an_output_projection_and_the_number_of_heads() -> None:
    assert signature("x, wq, wk, wv, wo, num_heads").projected
    head = signature("x, wq, wk, wv, mask=None")
    assert (head.operator, head.projected, head.has("num_heads"), head.mask) == ("mha", False, False, "mask")
    assert "no_output_projection" in capabilities(head)
    with pytest.raises(CheckError, match=r"mha is called as .* the argument for its wv with --map ARGUMENT=wv"):
        signature("x, wq, wk, d, num_heads", "mha", mapping={"wq": "wq", "wk": "wk"})


def test_a_context_is_key_and_value_unless_it_has_a_default() -> None:
    weights = "wq, wk, wv, wo, num_heads"
    assert signature(f"x, context, {weights}").alias == "kv"
    assert signature(f"q, encoder_hidden_states, {weights}").alias == "kv"
    assert signature(f"x, {weights}, context=None").alias == "qkv"
    assert signature(f"x, {weights}, context=None", mapping={"context": "context"}).alias == "kv"
    assert signature(f"q, k, v, {weights}, context=None").alias == "none"
    layer = read_signature("layer", (Parameter("q"), Parameter("kv", default="None")), "mha", layer=True)
    assert (layer.alias, layer.names["inputs"], layer.defaults) == ("qkv", "q", ("kv",))


def test_the_argument_after_the_weights_is_the_mask_if_it_may_be_none() -> None:
    assert signature("x, wq, wk, wv, adj=None").mask == "adj"
    assert signature("x, wq, bq, wk, bk, wv, bv, adj=None").mask == "adj"
    assert signature("x, wq, wk, wv, groups=3").mask is None


def test_what_is_mapped_overrules_the_name() -> None:
    parameters = (Parameter("q"), Parameter("k"), Parameter("v"), Parameter("mask"), Parameter("extra", default="0"))
    read = read_signature("attend", parameters, mapping={"mask": "bias", "extra": "is_causal"})
    assert read.names == {"query": "q", "key": "k", "value": "v", "is_causal": "extra", "bias": "mask"}
    assert read.kept == ("is_causal",)
    with pytest.raises(CheckError, match=r"--map m=bias: attend has no argument m; it has q, k, v, mask, extra"):
        read_signature("attend", parameters, mapping={"m": "bias"})
    with pytest.raises(CheckError, match=r"--map mask=baas: there is no role baas"):
        read_signature("attend", parameters, mapping={"mask": "baas"})


@pytest.mark.parametrize(
    ("arguments", "alone"),
    [
        ("x", True),
        ("x, mask=None", True),
        ("hidden_states, attention_mask=None", True),
        ("query, key, value", False),
        ("x, key, value", False),
        ("a, b, c", False),
    ],
)
def test_a_layer_may_take_one_array(arguments: str, *, alone: bool) -> None:
    (definition,) = ast.parse(f"def attend({arguments}): ...").body
    assert isinstance(definition, ast.FunctionDef)
    assert read_signature("attend", parameters_of(definition), "mha", layer=True).is_self_attention == alone


def test_a_mask_of_floats_takes_no_booleans_and_has_its_own_axes() -> None:
    read = replace(signature("q, k, v, attn_mask=None"), form=MaskForm(("q", "k"), boolean=False, added=True))
    (slot,) = parse_slots(slots(read, {})).values()
    assert slot.meaning("bool") is None
    assert slot.meaning("float") == "add"
    assert set(slot.takes) == {"attention", "causal", "window", "additive"}


def test_jax_has_no_float64_unless_it_is_told_to() -> None:
    plain = replace(signature("q, k, v, mask"), framework="jax", dtypes=("float32", "float16", "bfloat16"))
    assert facts_of(plain, "mine.attend", {})["DTYPES"] == ["float32", "float16", "bfloat16"]
    assert "layout" not in capabilities(plain)
    assert "value_dim" not in capabilities(replace(plain, wide=False))


@pytest.mark.parametrize(
    ("parameter", "sides"),
    [
        ("window_size=(-1, -1)", (("window", "window_size"), -1)),
        ("window_size=(None, None)", (("window", "window_size"), None)),
        ("local_window_size=(-1, 0)", (("window", "local_window_size"), -1)),
        ("window=(-1, -1)", (("window", "window"), -1)),
        ("window=None", (("window", "window"), None)),
        ("window_size=128", None),
        ("window_size=None", None),
        ("window_size=(2, 3, 5)", None),
        ("window_size=SIDES", None),
    ],
)
def test_a_pair_is_a_window(parameter: str, sides: tuple[tuple[str, str], int | None] | None) -> None:
    found = signature(f"q, k, v, mask=None, *, {parameter}")
    if sides is None:
        assert (found.has("window"), found.defaults) == (False, ("window_size",))
    else:
        assert ((("window", found.names["window"]), found.unlimited), found.defaults) == (sides, ())
