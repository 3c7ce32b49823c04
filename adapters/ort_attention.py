"""
The ONNX operator Attention in onnxruntime, as a graph of one node.

What this adapter translates, and nothing else:
* arrays are (batch, num_heads, seq_len, head_dim), as in the call; [3d] merges the heads: (batch, seq_len, width)
* attn_mask: True means attend, floats are added to the logits; written out over queries and keys but for [broadcast]
* is_causal: top-left aligned, after a past shifted by its length
* softcap: an attribute
* attn_mask of fewer keys than there are, since opset 24: the others are masked
* nonpad_kv_seqlen, since opset 24: how many keys of each item are not padding; not beside a past. It moves is_causal of
  each item, so that a causal mask that does not move is written out beside it
* past_key and past_value, present_key and present_value: as in the call
* scaled, capped, logits, weights: qk_matmul_output in modes 0 to 3
"""

NAME = "ort.attention"
OPERATORS = ["sdpa"]
REQUIRES = ["onnx>=1.17", "onnxruntime>=1.23", "ml_dtypes>=0.4"]
EXTRA = "onnx"
OUTPUTS = ["output", "weights", "present", "scaled", "capped", "logits"]
DTYPES = ["float64", "float32", "float16", "bfloat16"]
DEVICES = ["cpu", "cuda"]
CAPABILITIES = ["scale", "grouped_heads", "value_dim", "softcap", "past", "mistakes"]
DECLINES = {
    "layout": "onnxruntime's Python interface copies what is not contiguous: "
    "https://github.com/microsoft/onnxruntime/blob/main/onnxruntime/python/onnxruntime_pybind_mlvalue.cc",
}
SLOTS = {
    "attn_mask": {
        "role": "mask",
        "takes": ["key_padding", "attention", "causal", "window", "additive"],
        "axes": [["q", "k"], ["b", "h", "q", "k"]],
        "broadcast": ["b", "h"],
        "bool": "attend",
        "int": "undocumented",
        "float": "add",
    },
    "is_causal": {"role": "causal", "alignment": "past"},
}
VARIANTS = {
    "opset23": {"summary": "opset 23, graph optimisation off"},
    "opset23-optimised": {"summary": "opset 23, every graph optimisation"},
    "opset24": {
        "summary": "opset 24, the first with nonpad_kv_seqlen, graph optimisation off",
        "REQUIRES": ["onnx>=1.17", "onnxruntime>=1.24", "ml_dtypes>=0.4"],
        "SLOTS": {
            "attn_mask": {
                "role": "mask",
                "takes": ["key_padding", "attention", "causal", "window", "additive"],
                "axes": [["q", "k"], ["b", "h", "q", "k"]],
                "broadcast": ["b", "h"],
                "short": True,
                "bool": "attend",
                "int": "undocumented",
                "float": "add",
            },
            "nonpad_kv_seqlen": {
                "role": "lengths",
                "takes": ["key_padding"],
                "axes": [["b", "k"]],
                "without": ["past"],
            },
            "is_causal": {"role": "causal", "alignment": "past", "moved_by": ["nonpad_kv_seqlen"]},
        },
    },
    "3d": {
        "summary": "opset 23, inputs with merged heads, graph optimisation off",
        "CAPABILITIES": ["scale", "grouped_heads", "value_dim", "softcap", "past", "mistakes", "mistaken_heads"],
    },
    "broadcast": {
        "summary": "opset 23, masks broadcast over queries, as the operator's page allows",
        "SLOTS": {
            "attn_mask": {
                "role": "mask",
                "takes": ["key_padding", "attention", "causal", "window", "additive"],
                "axes": [["q", "k"], ["b", "h", "q", "k"]],
                "broadcast": ["b", "h", "q"],
                "bool": "attend",
                "int": "undocumented",
                "float": "add",
            },
            "is_causal": {"role": "causal", "alignment": "past"},
        },
    },
}

from functools import partial
from typing import Any

from conformance.bridge import Call, Declaration, Facts, Profile, framework_call

from ._node import attention, attention_dialect, attention_reply
from ._ort import fed, ort_devices, ort_evidence, run_model


def declare(facts: Facts) -> Declaration:
    """What the operator's page says; the scale is an attribute in float32, and keys past the lengths are not read."""
    profile = Profile.uniform(facts.dtype).but(scale="float32")
    if facts.dtype == "float16":
        profile = Profile.naive("float16")
    dialect = attention_dialect()
    if [mask.slot for mask in facts.masks] == ["nonpad_kv_seqlen"]:
        dialect = tuple(deviation for deviation in dialect if deviation.decision != "nonfinite_key")
    return Declaration(profile, dialect, "measured: docs/tolerance.md, section 5")


def sdpa(call: Call) -> dict[str, Any]:
    """Answer the call with a graph of one node."""
    facts = call.facts
    rank = 3 if facts.variant == "3d" else 4
    model, inputs = attention(call, 24 if facts.variant == "opset24" else 23, rank=rank)
    given = fed(inputs)
    with framework_call():
        results = run_model(model, given, facts.device, optimised=facts.variant.endswith("optimised"))
    return attention_reply(facts, results, rank=rank)


devices = ort_devices
evidence = partial(ort_evidence, "onnx")
