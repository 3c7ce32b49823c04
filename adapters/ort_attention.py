"""
The ONNX operator Attention in onnxruntime, as a graph of one node.

What this adapter translates, and nothing else:
* arrays are (batch, num_heads, seq_len, head_dim), as in the call. [3d] merges the heads: (batch, seq_len, width).
* `attn_mask`: True means attend; floats are added to the logits. It is expanded to (..., seq_len_q, seq_len_k), except
  in [broadcast], where the query axis may have size 1.
* `attn_mask` with fewer columns than there are keys, since opset 24: the remaining keys are masked.
* `is_causal`: the causal mask is aligned top-left and shifted by the length of a past.
* `nonpad_kv_seqlen`, since opset 24: the number of keys of each batch element that are not padding. It is not used
  together with a past. It shifts the causal mask of `is_causal` for each batch element. A causal mask that must not be
  shifted is passed in `attn_mask`.
* softcap: passed as an attribute.
* `past_key` and `past_value`, `present_key` and `present_value`: as in the call.
* The outputs scaled, capped, logits and weights are `qk_matmul_output` in modes 0 to 3.
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
                "since": "opset 24",
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
    """
    Declare what the operator's page documents, and the measured arithmetic.

    Every step rounds to the dtype of the call, except that the scale is a float32 attribute. float16 has the profile
    `naive` instead. If nonpad_kv_seqlen is the only mask argument, keys beyond these lengths are not read, so NaN or
    infinity in such a key does not reach the output.
    """
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
