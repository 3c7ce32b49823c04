"""Routing: native arguments first, exclusions and requirements, folding without loss, declining with a reason."""

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from conformance.bridge.tensor import Tensor
from conformance.deviations.catalogue import evaluate
from conformance.engine.adapter_facts import Slot, parse_slots
from conformance.engine.adapters import read_adapters, subjects_of
from conformance.engine.cells import call_digest, make_call, signature
from conformance.engine.routing import Declined, Route, route, route_dense
from conformance.spec.problem import Array, MaskOperand

from ..problems import BATCH, DIM, HEADS, KEYS, QUERIES, random_sdpa

ADAPTERS = Path(__file__).parents[2] / "adapters"
B, H, Q, K, D = BATCH, HEADS, QUERIES, KEYS, DIM

TORCH_MHA: dict[str, dict[str, Any]] = {
    "key_padding_mask": {
        "role": "mask",
        "takes": ["key_padding"],
        "axes": [["b", "k"]],
        "bool": "ignore",
        "float": "add",
        "same_element_as": ["attn_mask"],
    },
    "attn_mask": {
        "role": "mask",
        "takes": ["attention", "additive", "causal", "window"],
        "axes": [["q", "k"], ["b*h", "q", "k"]],
        "bool": "ignore",
        "float": "add",
    },
    "is_causal": {"role": "causal", "alignment": "top_left", "hint": True, "requires": ["attn_mask"]},
}
TORCH_SDPA: dict[str, dict[str, Any]] = {
    "is_causal": {"role": "causal", "alignment": "top_left", "excludes": ["attn_mask"]},
    "attn_mask": {
        "role": "mask",
        "takes": ["attention", "additive", "key_padding", "causal", "window"],
        "axes": [["b", "h", "q", "k"]],
        "broadcast": ["b", "h", "q"],
        "bool": "attend",
        "float": "add",
    },
}
JAX: dict[str, dict[str, Any]] = {
    "is_causal": {"role": "causal"},
    "local_window_size": {"role": "window"},
    "mask": {
        "role": "mask",
        "takes": ["attention", "key_padding"],
        "axes": [["b", "h", "q", "k"]],
        "broadcast": ["b", "h"],
        "bool": "attend",
    },
    "bias": {"role": "mask", "takes": ["additive"], "axes": [["b", "h", "q", "k"]], "float": "add"},
}
KERAS: dict[str, dict[str, Any]] = {
    "attention_mask": {
        "role": "mask",
        "takes": ["attention", "key_padding"],
        "axes": [["b", "q", "k"], ["b", "h", "q", "k"]],
        "bool": "attend",
        "int": "attend",
        "float": "undocumented",
    },
    "use_causal_mask": {"role": "causal"},
}
LENGTHS: dict[str, dict[str, Any]] = {
    **JAX,
    "key_value_seq_lengths": {"role": "lengths", "takes": ["key_padding"], "axes": [["b", "k"]]},
    "query_seq_lengths": {"role": "lengths", "takes": ["attention"], "axes": [["b", "q"]]},
}
ALL = {"lengths": LENGTHS, "torch.mha": TORCH_MHA, "torch.sdpa": TORCH_SDPA, "jax": JAX, "keras": KERAS}


def slots(name: str) -> dict[str, Slot]:
    return parse_slots(ALL[name])


def padding() -> MaskOperand:
    values = np.arange(K)[None, :] < np.array([7, 4])[:, None]
    return MaskOperand("", ("key_padding",), "bool", values[:, None, None, :])


def attention(shape: tuple[int, ...] = (1, 1, Q, K), element: str = "bool", *, verbatim: bool = False) -> MaskOperand:
    allowed = np.random.default_rng(3).random(shape) < 0.6
    values = np.where(allowed, 0.0, -np.inf) if element == "float" else allowed
    return MaskOperand("", ("attention",), element, values, verbatim=verbatim)


def causal(offset: int = 0) -> MaskOperand:
    values = np.arange(K)[None, :] <= np.arange(Q)[:, None] + offset
    return MaskOperand("", ("causal",), "bool", values[None, None], offset=offset)


def window() -> MaskOperand:
    gap = np.arange(K)[None, :] - np.arange(Q)[:, None]
    return MaskOperand("", ("window",), "bool", ((gap >= -2) & (gap <= 1))[None, None], window=(2, 1))


def additive() -> MaskOperand:
    return MaskOperand("", ("additive",), "float", np.arange(Q * K).reshape(1, 1, Q, K) / 16.0)


def bits(routed: Route, slot: str) -> Array:
    tensor = routed.arguments[slot]
    assert isinstance(tensor, Tensor)
    return tensor.bits


def test_padding_and_attention_masks_go_to_their_own_arguments_inverted() -> None:
    routed = route(random_sdpa(0, padding(), attention()), slots("torch.mha"))
    assert set(routed.arguments) == {"key_padding_mask", "attn_mask"}
    assert np.array_equal(bits(routed, "key_padding_mask"), ~padding().values[:, 0, 0, :])
    assert np.array_equal(bits(routed, "attn_mask"), ~attention().values[0, 0])
    assert bits(routed, "attn_mask").shape == (Q, K)


def test_a_mask_per_head_is_folded_batch_major() -> None:
    mask = attention((B, H, Q, K))
    routed = route(random_sdpa(0, mask), slots("torch.mha"))
    assert np.array_equal(bits(routed, "attn_mask"), ~mask.values.reshape(B * H, Q, K))


def test_a_hint_is_set_only_beside_the_causal_mask_alone() -> None:
    alone = route(random_sdpa(0, causal()), slots("torch.mha"))
    assert alone.arguments["is_causal"] is True
    assert np.array_equal(bits(alone, "attn_mask"), ~causal().values[0, 0])
    together = route(random_sdpa(0, causal(), attention()), slots("torch.mha"))
    assert "is_causal" not in together.arguments
    assert np.array_equal(bits(together, "attn_mask"), ~(causal().values & attention().values)[0, 0])


def test_bool_padding_becomes_float_beside_a_float_attention_mask() -> None:
    routed = route(random_sdpa(0, padding(), additive()), slots("torch.mha"))
    assert {mask.element for mask in routed.masks} == {"float"}
    assert bits(routed, "key_padding_mask")[1].tolist() == [0, 0, 0, 0, -np.inf, -np.inf, -np.inf]


def test_a_flag_takes_the_causal_mask_unless_it_excludes_the_other_argument() -> None:
    assert route(random_sdpa(0, causal()), slots("torch.sdpa")).arguments == {"is_causal": True}
    both = route(random_sdpa(0, causal(), padding()), slots("torch.sdpa"))
    assert set(both.arguments) == {"attn_mask"}
    assert np.array_equal(
        np.broadcast_to(bits(both, "attn_mask"), (B, H, Q, K)), random_sdpa(0, causal(), padding()).attended()
    )


def test_a_causal_mask_of_another_anchor_is_written_out() -> None:
    routed = route(random_sdpa(0, causal(offset=K - Q)), slots("torch.sdpa"))
    assert set(routed.arguments) == {"attn_mask"}
    assert routed.problem.mask_operands[0].offset is None
    bottom = {**TORCH_SDPA, "is_causal": {"role": "causal", "alignment": "bottom_right"}}
    assert route(random_sdpa(0, causal(offset=K - Q)), parse_slots(bottom)).arguments == {"is_causal": True}


@pytest.mark.parametrize(
    ("only", "edges", "taken"),
    [
        ({"left_only": True}, (2, None), True),
        ({"left_only": True}, (2, 1), False),
        ({"symmetric": True}, (2, 2), True),
        ({"symmetric": True}, (2, None), False),
    ],
)
def test_a_window_that_an_argument_does_not_take_is_passed_as_a_mask(
    only: dict[str, bool], edges: tuple[int, int | None], *, taken: bool
) -> None:
    asked = random_sdpa(0, replace(window(), window=edges))
    mask = {"role": "mask", "takes": ["window"], "axes": [["q", "k"]], "bool": "attend"}
    slot = {"window": {"role": "window", **only}}
    assert list(route(asked, parse_slots({"mask": mask, **slot})).arguments) == (["window"] if taken else ["mask"])
    if not taken:
        sides = f"left {edges[0]}, right {'unlimited' if edges[1] is None else edges[1]}"
        with pytest.raises(Declined, match=rf"no argument can express this mask \(window, {sides}\) over q k"):
            route(asked, parse_slots(slot))


def test_booleans_and_numbers_go_to_two_arguments_where_there_are_two() -> None:
    routed = route(random_sdpa(0, padding(), additive(), causal(), window()), slots("jax"))
    assert set(routed.arguments) == {"mask", "bias", "is_causal", "local_window_size"}
    assert routed.arguments["local_window_size"] == (2, 1)
    assert bits(routed, "mask").shape == (B, 1, Q, K)
    assert bits(routed, "bias").shape == (B, H, Q, K)


def test_what_nothing_can_express_is_declined_with_a_reason() -> None:
    with pytest.raises(Declined, match=r"no argument can express this mask \(additive\) over q k"):
        route(random_sdpa(0, additive()), slots("keras"))
    narrow = parse_slots({"mask": {"role": "mask", "takes": ["key_padding"], "axes": [["b", "k"]], "bool": "attend"}})
    with pytest.raises(Declined, match=r"this mask \(attention\) over q k, seq_len_q 5, seq_len_k 7$"):
        route(random_sdpa(0, attention()), narrow)


def test_a_mask_without_keys_has_one_column_where_that_is_documented_and_is_written_out_elsewhere() -> None:
    whole = attention((B, 1, Q, 1))
    written = np.broadcast_to(whole.values, (B, 1, Q, K))
    assert np.array_equal(bits(route(random_sdpa(0, whole), slots("torch.sdpa")), "attn_mask"), written)
    mask = TORCH_SDPA["attn_mask"] | {"broadcast": ["b", "h", "q", "k"]}
    alone = route(random_sdpa(0, whole), parse_slots({"attn_mask": mask}))
    assert np.array_equal(bits(alone, "attn_mask"), whole.values)
    beside = route(random_sdpa(0, whole, padding()), parse_slots({"attn_mask": mask}))
    assert np.array_equal(bits(beside, "attn_mask"), whole.values & padding().values)
    queries = {"role": "mask", "takes": ["attention"], "axes": [["b", "q"]], "bool": "attend"}
    assert np.array_equal(
        bits(route(random_sdpa(0, whole), parse_slots({"query_mask": queries})), "query_mask"), whole.values[:, 0, :, 0]
    )


def test_verbatim_masks_are_handed_over_unconverted_and_change_the_declared_dialect() -> None:
    mask = attention(verbatim=True)
    torch = route(random_sdpa(0, mask), slots("torch.mha"))
    assert np.array_equal(bits(torch, "attn_mask"), mask.values[0, 0])
    assert torch.dialect == {"polarity[attn_mask]": "ignore"}
    jax = route(random_sdpa(0, mask), slots("jax"))
    assert np.array_equal(np.broadcast_to(bits(jax, "mask"), (B, H, Q, K))[0, 0], mask.values[0, 0])
    assert jax.dialect == {}


def test_an_undocumented_element_is_handed_over_and_expected_canonical() -> None:
    mask = attention(element="float", verbatim=True)
    routed = route(random_sdpa(0, mask), slots("keras"))
    assert routed.dialect == {}
    assert routed.masks[0].element == "float"
    with pytest.raises(Declined, match="no argument is documented to take a verbatim float mask"):
        route(random_sdpa(0, mask), slots("jax"))


def test_a_verbatim_mask_is_never_folded() -> None:
    with pytest.raises(Declined, match="verbatim"):
        route(random_sdpa(0, attention(verbatim=True), causal()), slots("torch.sdpa"))


def test_a_float_padding_mask_stays_float_where_that_is_documented() -> None:
    values = np.where(padding().values, 0.0, -np.inf)
    group = MaskOperand("", ("key_padding",), "float", values)
    torch = route(random_sdpa(0, group), slots("torch.mha"))
    assert torch.masks[0].element == "float"
    keras = route(random_sdpa(0, group), slots("keras"))
    assert keras.masks[0].element == "bool"
    assert np.array_equal(bits(keras, "attention_mask")[:, 0, :], padding().values[:, 0, 0, :])


def test_zero_and_minus_infinity_are_handed_over_as_booleans_where_floats_are_cast_to_bool() -> None:
    flax = parse_slots({"mask": {"role": "mask", "axes": [["b", "h", "q", "k"]], "bool": "attend", "float": "attend"}})
    hidden = np.where(np.arange(K) < 2, -np.inf, 0.0) * np.ones((B, H, Q, 1))
    routed = route(random_sdpa(0, MaskOperand("mask", ("additive",), "float", hidden)), flax)
    np.testing.assert_array_equal(bits(routed, "mask"), hidden == 0.0)


def test_integers_are_handed_over_as_int32() -> None:
    group = MaskOperand("", ("attention",), "int", attention().values)
    routed = route(random_sdpa(0, group), slots("keras"))
    assert bits(routed, "attention_mask").dtype == np.int32


def test_dense_folds_everything_and_exists_only_where_the_route_differs() -> None:
    dense = route_dense(random_sdpa(0, causal(), padding()), slots("jax"))
    assert dense is not None
    assert set(dense.arguments) == {"mask"}
    assert route_dense(random_sdpa(0, padding()), slots("jax")) is None
    assert route_dense(random_sdpa(0), slots("jax")) is None
    assert route_dense(random_sdpa(0, attention(verbatim=True), causal()), slots("jax")) is None


def test_the_record_says_which_route_each_mask_took() -> None:
    record = route(random_sdpa(0, padding(), causal()), slots("keras")).record()
    assert record == [
        {
            "slot": "attention_mask",
            "kinds": ["key_padding"],
            "element": "bool",
            "axes": ["b", "q", "k"],
            "verbatim": False,
        },
        {"slot": "use_causal_mask", "kinds": ["causal"], "element": "flag", "axes": [], "verbatim": False},
    ]


def past_both() -> MaskOperand:
    """Return a mask of the first 3 queries and 7 keys of one batch element, and the first 5 and 2 of the other."""
    rows = np.arange(Q)[None, :] < np.array([3, 5])[:, None]
    keys = np.arange(K)[None, :] < np.array([7, 2])[:, None]
    return MaskOperand("", ("attention",), "bool", (rows[:, :, None] & keys[:, None, :])[:, None])


def test_padding_at_the_end_goes_where_lengths_are_taken() -> None:
    routed = route(random_sdpa(0, padding(), causal()), slots("lengths"))
    assert set(routed.arguments) == {"key_value_seq_lengths", "is_causal"}
    assert bits(routed, "key_value_seq_lengths").tolist() == [7, 4]
    assert bits(routed, "key_value_seq_lengths").dtype == np.int32
    assert routed.record()[1] == {
        "slot": "key_value_seq_lengths",
        "kinds": ["key_padding"],
        "element": "flag",
        "axes": ["b", "k"],
        "verbatim": False,
    }


def test_a_flag_and_a_window_count_from_the_end_of_a_past_where_that_is_documented() -> None:
    asked = random_sdpa(0, causal(2), replace(window(), window=(0, 3))).but(past=2)
    counting = parse_slots(
        {
            **JAX,
            "is_causal": {"role": "causal", "alignment": "past"},
            "local_window_size": {"role": "window", "alignment": "past"},
        }
    )
    assert dict(route(asked, counting).arguments) == {"is_causal": True, "local_window_size": (2, 1)}
    assert "is_causal" not in route(asked, slots("jax")).arguments  # the mask is written out
    assert "is_causal" not in route(random_sdpa(0, causal()).but(past=2), counting).arguments


def test_a_flag_that_a_cache_stands_for_is_there_with_a_past_alone() -> None:
    cached = parse_slots({**KERAS, "cache": {"role": "causal", "alignment": "past", "only_with": ["past"]}})
    assert set(route(random_sdpa(0, causal(2)).but(past=2), cached).arguments) == {"cache"}
    assert set(route(random_sdpa(0, causal()), cached).arguments) == {"use_causal_mask"}


def test_a_past_is_handed_over_apart_and_reckoned_in_the_digest() -> None:
    asked = random_sdpa(0).but(past=3)
    subject = subjects_of(read_adapters([ADAPTERS / "numpy_sdpa.py"]))[0]
    call = make_call(asked, subject, route(asked, subject.slots))
    assert call.past_key is not None
    assert (call.past_key.shape, call.key.shape) == ((B, H, 3, D), (B, H, K - 3, D))
    joined = np.concatenate([call.past_key.bits, call.key.bits], axis=2)
    assert np.array_equal(joined, asked.key.astype(np.float32))
    other = make_call(asked.but(past=2), subject, route(asked.but(past=2), subject.slots))
    assert call_digest(other, signature(other)) != call_digest(call, signature(call))
    one = asked.but(value=asked.key, alias="kv")
    shared = make_call(one, subject, route(one, subject.slots))
    assert (shared.past_value, shared.value) == (shared.past_key, shared.key)


def test_a_mask_past_queries_and_keys_is_two_lengths() -> None:
    routed = route(random_sdpa(0, past_both()), slots("lengths"))
    assert {name: bits(routed, name).tolist() for name in routed.arguments} == {
        "query_seq_lengths": [3, 5],
        "key_value_seq_lengths": [7, 2],
    }


def test_a_mask_past_queries_and_keys_is_two_masks_where_an_argument_takes_each() -> None:
    apart = parse_slots(
        {
            "query_mask": {"role": "mask", "takes": ["attention"], "axes": [["b", "q"]], "bool": "attend"},
            "value_mask": {"role": "mask", "takes": ["key_padding"], "axes": [["b", "k"]], "bool": "attend"},
        }
    )
    routed = route(random_sdpa(0, past_both()), apart)
    assert {name: bits(routed, name).sum(axis=1).tolist() for name in routed.arguments} == {
        "query_mask": [3, 5],
        "value_mask": [7, 2],
    }


def test_lengths_that_cut_nothing_are_not_handed_over() -> None:
    rows = past_both().values.any(axis=3, keepdims=True)
    for alone, name in (
        (rows, "query_seq_lengths"),
        (past_both().values.any(axis=2, keepdims=True), "key_value_seq_lengths"),
    ):
        whole = MaskOperand("", ("attention",), "bool", np.broadcast_to(alone, (B, 1, Q, K)))
        assert set(route(random_sdpa(0, whole), slots("lengths")).arguments) == {name}


def test_an_item_that_attends_nowhere_has_no_lengths_at_all() -> None:
    group = past_both()
    group.values[1] = False
    routed = route(random_sdpa(0, group), slots("lengths"))
    assert {name: bits(routed, name).tolist() for name in routed.arguments} == {
        "query_seq_lengths": [3, 0],
        "key_value_seq_lengths": [7, 0],
    }


def test_a_second_padding_mask_goes_beside_the_lengths() -> None:
    shorter = MaskOperand("", ("key_padding",), "bool", np.arange(K)[None, None, None, :] < np.full((B, 1, 1, 1), 6))
    routed = route(random_sdpa(0, padding(), shorter), slots("lengths"))
    assert bits(routed, "key_value_seq_lengths").tolist() == [7, 4]
    assert bits(routed, "mask")[:, 0, 0].sum(axis=-1).tolist() == [6, 6]


@pytest.mark.parametrize(
    "group",
    [
        MaskOperand("", ("key_padding",), "bool", padding().values[..., ::-1]),
        MaskOperand("", ("key_padding",), "bool", padding().values, verbatim=True),
        MaskOperand("", ("attention",), "bool", past_both().values[:, :, ::-1]),
        MaskOperand("", ("attention",), "bool", np.broadcast_to(past_both().values, (B, H, Q, K))),
        MaskOperand("", ("attention",), "bool", past_both().values | np.eye(Q, K, dtype=bool)),
    ],
    ids=["leading", "verbatim", "leading queries", "over heads", "no product"],
)
def test_what_is_no_prefix_is_written_out_beside_lengths(group: MaskOperand) -> None:
    routed = route(random_sdpa(0, group), slots("lengths"))
    assert set(routed.arguments) == {"mask"}
    assert np.array_equal(
        np.broadcast_to(bits(routed, "mask"), (B, H, Q, K)), np.broadcast_to(group.values, (B, H, Q, K))
    )


def float_padding() -> MaskOperand:
    """Return `padding` as zeros and minus infinity."""
    return MaskOperand("", ("key_padding",), "float", np.where(padding().values, 0.0, -np.inf))


def test_padding_in_floats_is_handed_over_as_lengths() -> None:
    routed = route(random_sdpa(0, float_padding()), slots("lengths"))
    assert bits(routed, "key_value_seq_lengths").tolist() == [7, 4]
    assert np.array_equal(routed.problem.allowed(), random_sdpa(0, padding()).allowed())


MAKERS = (
    past_both,
    float_padding,
    padding,
    attention,
    causal,
    window,
    additive,
    lambda: attention((B, H, Q, K)),
    lambda: causal(2),
)


@settings(deadline=None)
@given(st.lists(st.sampled_from(MAKERS), max_size=4), st.sampled_from(sorted(ALL)))
def test_routing_and_folding_change_nothing_that_the_oracle_sees(makers: list[Any], name: str) -> None:
    plain = random_sdpa(0, *(make() for make in makers))
    routes = []
    with contextlib.suppress(Declined):
        routes.append(route(plain, slots(name)))
    if (dense := route_dense(plain, slots(name))) is not None:
        routes.append(dense)
    expected = evaluate(plain).reply["output"].values
    for routed in routes:
        actual = evaluate(routed.problem).reply["output"].values
        assert np.array_equal(actual, expected)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"role": "window", "symmetric": True, "left_only": True}, "slot m: a window is either symmetric or left_only"),
        ({"role": "maks"}, "slot m: role is 'maks', expected one of mask, causal, window, lengths"),
        ({"role": "mask", "axis": []}, "slot m: unknown key 'axis'"),
        ({"role": "mask", "axes": [["b", "x"]], "bool": "attend"}, "slot m: axes is 'x'"),
        ({"role": "mask", "axes": [["b", "k"]], "bool": "keep"}, "slot m: bool is 'keep'"),
        ({"role": "mask", "bool": "attend"}, "slot m: a mask needs axes"),
        ({"role": "lengths", "takes": ["key_padding"], "axes": [["q", "k"]]}, "slot m: lengths need axes"),
        (
            {"role": "lengths", "axes": [["b", "k"]]},
            "slot m: lengths need the kinds of mask that they replace: 'takes'",
        ),
        (
            {"role": "causal", "always": True},
            "slot m: always needs the role mask or lengths, and the kinds of mask that it takes",
        ),
        ({"role": "causal", "excludes": ["n"]}, "slot m: excludes names 'n', which is not a slot"),
    ],
)
def test_a_wrong_slot_says_what_is_allowed(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_slots({"m": fields})


def test_arguments_that_need_a_mask_in_every_call_get_one_that_masks_nothing() -> None:
    always = parse_slots(
        {
            "mask": {
                "role": "mask", "takes": ["attention"], "axes": [["b", "h", "q", "k"]], "broadcast": ["b", "h"],
                "bool": "ignore", "always": True,
            },
            "padding": {
                "role": "mask", "takes": ["key_padding"], "axes": [["b", "k"]], "int": "attend", "always": True
            },
            "bias": {"role": "mask", "takes": ["additive"], "axes": [["q", "k"]], "float": "add", "always": True},
            "lengths": {"role": "lengths", "takes": ["key_padding"], "axes": [["b", "k"]], "always": True},
            "other": {"role": "mask", "takes": ["key_padding"], "axes": [["b", "k"]], "bool": "attend"},
        }
    )  # fmt: skip
    plain = random_sdpa(0)
    done = route(plain, always)
    arrays = {name: array.bits for name, array in done.arguments.items()}
    assert list(arrays) == ["mask", "padding", "bias", "lengths"]
    assert arrays["mask"].shape == (B, 1, Q, K)
    assert not arrays["mask"].any()  # True = ignore
    assert arrays["padding"].tolist() == [[1] * K] * B
    assert done.arguments["bias"].float64().tolist() == [[0.0] * K] * Q
    assert arrays["lengths"].tolist() == [K] * B
    assert done.masks == ()
    assert np.array_equal(evaluate(done.problem).reply["output"].values, evaluate(plain).reply["output"].values)


def test_of_two_arguments_that_exclude_each_other_the_one_that_can_carry_both_stays() -> None:
    fields = {"role": "mask", "axes": [["b", "h", "q", "k"]]}
    both = parse_slots(
        {
            "bias": {**fields, "takes": ["additive"], "float": "add", "excludes": ["mask"]},
            "mask": {**fields, "takes": ["attention"], "bool": "attend", "excludes": ["bias"]},
        }
    )
    for groups in ((additive(), attention()), (attention(), additive())):
        assert set(route(random_sdpa(0, *groups), both).arguments) == {"bias"}


# Like ONNX Attention since opset 24.
NONPAD: dict[str, dict[str, Any]] = {
    "attn_mask": {
        "role": "mask",
        "takes": ["attention", "key_padding", "causal", "window"],
        "axes": [["b", "h", "q", "k"]],
        "broadcast": ["b", "h"],
        "short": True,
        "bool": "attend",
    },
    "nonpad_kv_seqlen": {"role": "lengths", "takes": ["key_padding"], "axes": [["b", "k"]], "without": ["past"]},
    "is_causal": {"role": "causal", "alignment": "past", "moved_by": ["nonpad_kv_seqlen"]},
}


def moved() -> MaskOperand:
    """Return a causal mask that moves with the lengths of `padding`."""
    place = np.arange(Q)[:, None] + np.array([7, 4])[:, None, None] - Q
    return MaskOperand("", ("causal",), "bool", (np.arange(K) <= place)[:, None], moved=(None, 0))


def test_a_diagonal_that_lengths_move_is_a_flag_beside_them_and_a_mask_elsewhere() -> None:
    native = route(random_sdpa(0, padding(), moved()), parse_slots(NONPAD))
    assert native.arguments["is_causal"] is True
    assert "attn_mask" not in native.arguments
    apart = route(random_sdpa(0, padding(), causal()), parse_slots(NONPAD))
    assert set(apart.arguments) == {"nonpad_kv_seqlen", "attn_mask"}
    assert np.array_equal(bits(apart, "attn_mask")[0, 0], causal().values[0, 0])
    elsewhere = route(random_sdpa(0, padding(), moved()), slots("torch.sdpa"))
    assert set(elsewhere.arguments) == {"attn_mask"}
    assert np.array_equal(bits(elsewhere, "attn_mask")[:, :1], padding().values & moved().values)


def test_lengths_that_do_not_go_with_a_past_are_a_mask_beside_one() -> None:
    assert set(route(random_sdpa(0, padding()), parse_slots(NONPAD)).arguments) == {"nonpad_kv_seqlen"}
    assert set(route(random_sdpa(0, padding()).but(past=2), parse_slots(NONPAD)).arguments) == {"attn_mask"}


def test_a_mask_leaves_out_keys_that_it_masks_where_that_is_documented() -> None:
    mask = replace(attention(), values=attention().values & (np.arange(K) < K - 2), short=2)
    short = bits(route(random_sdpa(0, mask), parse_slots(NONPAD)), "attn_mask")
    assert np.array_equal(short[0, 0], mask.values[0, 0, :, :-2])
    assert bits(route(random_sdpa(0, mask), slots("torch.sdpa")), "attn_mask").shape[-1] == K
    shown = replace(mask, values=attention().values | True)
    assert bits(route(random_sdpa(0, shown), parse_slots(NONPAD)), "attn_mask").shape[-1] == K


@pytest.mark.parametrize(
    ("native", "groups", "lacking"),
    [
        (("lengths",), (padding(),), "lengths"),
        (("causal", "lengths"), (padding(), moved()), "a causal argument and lengths"),
        (("window",), (window(),), "a window argument"),
        (("window",), (), "a window argument"),
        (("short",), (attention(),), "a mask of fewer keys"),
    ],
)
def test_what_is_asked_as_it_stands_is_never_folded(
    native: tuple[str, ...], groups: tuple[MaskOperand, ...], lacking: str
) -> None:
    asked = random_sdpa(0, *groups).but(native=native)
    only_mask = {"attn_mask": NONPAD["attn_mask"]}
    with pytest.raises(Declined, match=f"the case requires {lacking}, and the subject has no such argument$"):
        route(asked, parse_slots(only_mask))
    assert route_dense(asked, parse_slots(NONPAD)) is None
    if native != ("short",):
        assert route(asked, parse_slots({**NONPAD, "window": {"role": "window"}})) is not None


CARRIED: dict[str, dict[str, Any]] = {
    "value_mask": {"role": "mask", "takes": ["key_padding"], "axes": [["b", "k"]], "bool": "attend"},
    "carried": {"role": "mask", "takes": ["key_padding"], "axes": [["b", "k"]], "bool": "attend", "attached": True},
    **KERAS,
}


def test_an_attached_mask_goes_where_a_tensor_carries_it_and_no_other_does() -> None:
    routed = route(random_sdpa(0, replace(padding(), attached=True), padding(), attention()), parse_slots(CARRIED))
    assert set(routed.arguments) == {"value_mask", "carried", "attention_mask"}
    alone = route(random_sdpa(0, padding(), padding()), parse_slots(CARRIED))
    assert "carried" not in alone.arguments


@pytest.mark.parametrize("name", [*ALL])
def test_an_attached_mask_is_declined_where_nothing_carries_it(name: str) -> None:
    with pytest.raises(Declined, match="no tensor carries an attached mask of kind key_padding"):
        route(random_sdpa(0, replace(padding(), attached=True)), slots(name))


def test_an_attached_mask_is_never_folded() -> None:
    assert route_dense(random_sdpa(0, replace(padding(), attached=True), causal()), parse_slots(CARRIED)) is None
    with pytest.raises(Declined, match="no tensor carries an attached mask of kind attention"):
        route(random_sdpa(0, replace(attention(), attached=True)), parse_slots(CARRIED))


def test_a_flag_is_not_attached() -> None:
    with pytest.raises(ValueError, match="only a mask can be attached, not an argument with role causal"):
        parse_slots({"is_causal": {"role": "causal", "attached": True}})
