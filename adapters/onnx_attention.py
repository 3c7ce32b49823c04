"""
The ONNX operator Attention in onnx's own reference implementation, as a graph of one node.

What this adapter translates, and nothing else:
* arrays are (batch, num_heads, seq_len, head_dim), as in the call; [reference-3d] merges heads: (batch, seq_len, width)
* attn_mask: True means attend, floats are added to the logits; it broadcasts, but for the keys
* is_causal: top-left aligned, after a past shifted by its length; since opset 25 left_window_size and
  right_window_size: inclusive, shifted alike
* softcap: an attribute
* attn_mask of fewer keys than there are, since opset 24: the others are masked
* nonpad_kv_seqlen, since opset 24: how many keys of each item are not padding; not beside a past. It moves is_causal
  and the window of each item, so that one that does not move is written out beside it
* past_key and past_value, present_key and present_value: as in the call
* scaled, capped, logits, weights: qk_matmul_output in modes 0 to 3
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
            },
            "is_causal": {"role": "causal", "alignment": "past", "moved_by": ["nonpad_kv_seqlen"]},
            "window": {"role": "window", "alignment": "past", "moved_by": ["nonpad_kv_seqlen"]},
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
    """What the operator's page says; NumPy computes in the dtype of its arrays, and the attribute scale is float32."""
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
    """An evaluator of the graph, made once."""
    return ReferenceEvaluator(onnx.load_model_from_string(model))


def evidence() -> dict[str, Any]:
    """What runs."""
    return {"versions": {"onnx": onnx.__version__, "numpy": np.__version__}, "device": "cpu", "ran_on": ["cpu"]}
