"""What `conformance port` says if one side lacks something that another variant of the same adapter has."""

from typing import Any

import pytest

from conformance import places
from conformance.diagnosis.behaviour_profile import BehaviourProfile
from conformance.engine.adapters import read_adapters, subjects_of
from conformance.report.port_differences import PortedSubject, port
from conformance.report.port_text import record
from conformance.report.probe_report import Pictured

ATTENTION = "onnx.attention[reference]"


def unprobed(here: str, there: str) -> dict[str, Any]:
    """Return the record of two subjects, if no behaviour of either was probed."""
    subjects = {each.name: each for each in subjects_of(read_adapters([places.adapters()]))}
    pictured = (Pictured(name, BehaviourProfile((), ()), frozenset(), (), {}, 0) for name in (here, there))
    sides = [PortedSubject(subjects[each.name], each, ()) for each in pictured]
    return record(port(*sides), {})


def notes(here: str, there: str) -> list[str]:
    """Return the notes on what only one of two subjects has."""
    return list(unprobed(here, there)["notes"])


def arguments(here: str, there: str) -> dict[str, dict[str, Any]]:
    """Return what is said about the arguments, by kind of mask."""
    return {each["kind"]: each for each in unprobed(here, there)["arguments"]}


def test_arguments_have_their_documented_names_and_the_version_that_they_need() -> None:
    told = {kind: each["described"]["to"] for kind, each in arguments("jax.sdpa[jit]", ATTENTION).items()}
    assert told["key_padding"] == "nonpad_kv_seqlen (the number of leading positions, since opset 24)"
    assert told["causal"] == "is_causal (top left, shifted by the number of past keys)"
    assert told["window"] == (
        "left_window_size and right_window_size "
        "(left and right width, shifted by the number of past keys, since opset 25)"
    )
    told = {kind: each["described"]["to"] for kind, each in arguments(ATTENTION, "ort.contrib_mha").items()}
    assert told["key_padding"] == "key_padding_mask (the number of leading positions)"
    told = {kind: each["described"]["to"] for kind, each in arguments("keras.mha[jax]", "tf_keras.mha[eager]").items()}
    assert told["key_padding"] == "attached_to_value (True attends, carried by a tensor)"


def test_lengths_that_shift_a_causal_mask_come_with_what_to_pass_instead() -> None:
    told = arguments("jax.sdpa[jit]", ATTENTION)
    for kind in ("causal", "window"):
        (change,) = told[kind]["changes"]
        assert change.startswith(f"pass the {kind} mask in attn_mask if nonpad_kv_seqlen is given: it shifts")
    (change,) = told["key_padding"]["changes"]
    assert change.endswith("; pass padding that is not at the end as a mask in attn_mask")
    (change,) = arguments(ATTENTION, "ort.contrib_mha")["causal"]["changes"]
    assert change.startswith("pass the causal mask in key_padding_mask, shifted by ")  # it takes attention masks


def test_lengths_of_queries_are_no_attention_mask() -> None:
    assert arguments("jax.sdpa[lengths]", ATTENTION)["attention"]["from"] == "mask"


@pytest.mark.parametrize("turned", [False, True])
def test_what_another_variant_has_is_not_only_on_one_side(turned: bool) -> None:  # noqa: FBT001 - a parameter of the test
    pair = ("torch.mha[eval]", "keras.mha[jax]")
    said = notes(*(reversed(pair) if turned else pair))
    assert "torch.mha[eval] lacks what keras.mha[jax] and torch.mha[train] have: outputs gradients" in said
    (only,) = [line for line in said if line.startswith("Only keras.mha[jax] has: ")]
    assert "gradients" not in only
    assert "value_dim" in only


def test_what_no_variant_has_is_only_on_one_side() -> None:
    said = notes("torch.mha[train]", "keras.mha[jax]")
    assert not any("gradients" in line for line in said)
    assert any(line.startswith("Only torch.mha[train] has: ") and "weights_mean" in line for line in said)
