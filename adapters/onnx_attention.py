"""
The ONNX operator Attention in onnx's own reference implementation, as a graph of one node.

What this adapter translates, and nothing else:
* arrays are (batch, num_heads, seq_len, head_dim), as in the call. [reference-3d] merges the heads:
  (batch, seq_len, width).
* `attn_mask`: True means attend; floats are added to the logits. Every axis except the key axis may have size 1.
* `attn_mask` with fewer columns than there are keys, since opset 24: the remaining keys are masked.
* `is_causal`: top-left aligned. After a past, the diagonal is shifted by the length of the past.
* `left_window_size` and `right_window_size`, since opset 25: inclusive. A past shifts the window in the same way.
* `nonpad_kv_seqlen`, since opset 24: the number of keys of each batch element that are not padding. It is not used
  together with a past. It shifts the causal mask of `is_causal` and the window for each batch element. A causal mask or
  window that must not be shifted is passed in `attn_mask`, together with `nonpad_kv_seqlen`.
* `softcap`: an attribute of the operator.
* `past_key` and `past_value`, `present_key` and `present_value`: as in the call.
* The outputs scaled, capped, logits and weights are `qk_matmul_output` in modes 0 to 3.
"""

NAME = "onnx.attention"
OPERATORS = ["sdpa"]
REQUIRES = ["onnx>=1.18", "ml_dtypes>=0.4"]
EXTRA = "onnx"
OUTPUTS = ["output", "weights", "present", "scaled", "capped", "logits"]
DTYPES = ["float64", "float32", "float16", "bfloat16"]
DEVICES = ["cpu"]
CAPABILITIES = ["scale", "grouped_heads", "value_dim", "softcap", "past", "mistakes"]
SLOTS = {
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
}
VARIANTS = {
    "reference": {
        "summary": "opset 25, the first with windows",
        "REQUIRES": ["onnx>=1.23", "ml_dtypes>=0.4"],
        "SLOTS": {
            "attn_mask": {
                "role": "mask",
                "takes": ["key_padding", "attention", "causal", "window", "additive"],
                "axes": [["q", "k"], ["b", "h", "q", "k"]],
                "broadcast": ["b", "h", "q"],
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
            "window": {
                "role": "window",
                "arguments": ["left_window_size", "right_window_size"],
                "alignment": "past",
                "moved_by": ["nonpad_kv_seqlen"],
                "since": "opset 25",
            },
        },
    },
    "reference-24": {
        "summary": "opset 24, the first with nonpad_kv_seqlen",
        "REQUIRES": ["onnx>=1.19", "ml_dtypes>=0.4"],
        "SLOTS": {
            "attn_mask": {
                "role": "mask",
                "takes": ["key_padding", "attention", "causal", "window", "additive"],
                "axes": [["q", "k"], ["b", "h", "q", "k"]],
                "broadcast": ["b", "h", "q"],
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
    "reference-23": {"summary": "opset 23, the first that has the operator"},
    "reference-3d": {
        "summary": "opset 23, inputs with merged heads",
        "CAPABILITIES": ["scale", "grouped_heads", "value_dim", "softcap", "past", "mistakes", "mistaken_heads"],
    },
}

from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from conformance.bridge import Call, Declaration, Facts, Profile, Unsupported, framework_call

from ._node import attention, attention_dialect, attention_reply

OPSET = {"reference": 25, "reference-24": 24, "reference-23": 23, "reference-3d": 23}


def declare(facts: Facts) -> Declaration:
    """
    Declare what the operator's page documents, and the arithmetic of NumPy.

    NumPy computes in the dtype of its arrays. The attribute scale is float32.
    """
    single = Profile.uniform(facts.dtype).but(pre=facts.dtype)
    half = Profile.naive(facts.dtype).but(soft=facts.dtype, sum=facts.dtype)
    profile = half if facts.dtype in ("float16", "bfloat16") else single
    if "scale" in facts.requirements:
        profile = profile.but(scale="float32")
    return Declaration(profile, attention_dialect(), "onnx/reference/ops/op_attention.py")


def sdpa(call: Call) -> dict[str, Any]:
    """Answer the call with a graph of one node."""
    if call.facts.dtype == "bfloat16" and helper.tensor_dtype_to_np_dtype(TensorProto.BFLOAT16).name != "bfloat16":
        raise Unsupported(f"the reference of onnx {onnx.__version__} holds bfloat16 in arrays of float32")
    rank = 3 if call.facts.variant == "reference-3d" else 4
    model, inputs = attention(call, OPSET[call.facts.variant], rank=rank)
    evaluator = evaluator_of(model)
    with framework_call():
        results = evaluator.run(None, inputs)
    return attention_reply(call.facts, results, rank=rank)


@cache
def evaluator_of(model: bytes) -> Any:
    """The evaluator of a graph, created once for each model."""
    return ReferenceEvaluator(onnx.load_model_from_string(model))


def evidence() -> dict[str, Any]:
    """The versions and the device."""
    return {"versions": {"onnx": onnx.__version__, "numpy": np.__version__}, "device": "cpu", "ran_on": ["cpu"]}
