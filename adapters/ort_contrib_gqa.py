"""
onnxruntime's own operator com.microsoft.GroupQueryAttention, as a graph of one node.

What this adapter translates, and nothing else:
* arrays are given (batch, num_heads, seq_len, head_dim); the operator takes and returns (batch, seq_len, width)
* attention_bias: added to the logits; softcap: an attribute
* causal: top-left aligned, after a past shifted by its length; 0 where the call has no causal mask
* local_window_size: counts the query itself, one more than the keys to its left; only with a causal mask
* seqlens_k: the whole length of every item, less one; total_sequence_length: the whole length
* past_key and past_value, present_key and present_value: as in the call
"""

NAME = "ort.contrib_gqa"
OPERATORS = ["sdpa"]
REQUIRES = ["onnx", "onnxruntime", "ml_dtypes"]
EXTRA = "onnx"
OUTPUTS = ["output", "present"]
DTYPES = ["float32", "float16"]
DEVICES = ["cpu", "cuda"]
CAPABILITIES = ["scale", "grouped_heads", "softcap", "past", "mistakes"]
DECLINES = {
    "float64": "the operator documents float, float16 and bfloat16",
    "bfloat16": "onnxruntime's Python interface takes NumPy arrays, which have no bfloat16",
    "layout": "onnxruntime's Python interface copies what is not contiguous",
}
SLOTS = {
    "attention_bias": {
        "role": "mask",
        "takes": ["additive", "attention", "key_padding"],
        "axes": [["b", "h", "q", "k"]],
        "broadcast": ["b", "h"],
        "float": "add",
    },
    "causal": {"role": "causal", "alignment": "past"},
    "local_window_size": {"role": "window", "alignment": "past"},
}

from functools import partial
from typing import Any

import numpy as np

from conformance.bridge import Call, Declaration, Facts, Unsupported, framework_call

from ._arrays import to_numpy
from ._node import OLD_OPSET, PASTS, PRESENTS, merged, microsoft, model, past, split
from ._ort import ort_devices, ort_evidence, ort_profile, run_model

BLOCK = 8


def declare(facts: Facts) -> Declaration:
    """Canonical, as far as ContribOperators.md says anything."""
    return Declaration(ort_profile(facts.dtype), evidence="measured: docs/tolerance.md, section 5")


def sdpa(call: Call) -> dict[str, Any]:
    """Answer the call with a graph of one node."""
    sizes = call.facts.sizes
    batch, length = sizes["batch"], sizes["seq_len_k"]
    if sizes["seq_len_q"] != length - sizes.get("past", 0):
        raise Unsupported("the operator needs as many queries as keys, those of a past aside")
    if "past" in sizes and sizes["seq_len_q"] > 1 and batch > 1:
        raise Unsupported("with a past the operator takes several queries of one item, or one query of several items")
    if sizes["head_dim"] % BLOCK:
        raise Unsupported(f"the kernel takes a head_dim that is a multiple of {BLOCK}")
    names = ("query", "key", "value")
    inputs = {name: merged(to_numpy(getattr(call, name))) for name in names}
    inputs |= {"seqlens_k": np.full(batch, length - 1, np.int32), "total": np.array(length, np.int32)}
    if "attention_bias" in call.arguments:
        inputs["attention_bias"] = to_numpy(call.arguments["attention_bias"])
    inputs |= past(call)
    bias = ["", "", "", "attention_bias"] if "attention_bias" in inputs else []
    pasts = [name if name in inputs else "" for name in PASTS]
    outputs = ["Y", *(PRESENTS if call.past_key is not None else ())]
    node = microsoft(
        "GroupQueryAttention",
        [*names, *pasts, "seqlens_k", "total", *bias],
        more=PRESENTS,
        num_heads=sizes["num_heads"],
        kv_num_heads=sizes["num_kv_heads"],
        scale=call.scale,
        softcap=call.softcap,
        causal=int("causal" in call.arguments),
        local_window_size=window(call),
    )
    with framework_call():
        found = run_model(model([node], inputs, outputs, OLD_OPSET), inputs, call.facts.device, optimised=False)
    return {"output": split(found[0], sizes["num_heads"]), **dict(zip(outputs[1:], found[1:], strict=True))}


def window(call: Call) -> int:
    """The attribute: -1 is no window."""
    left, right = call.arguments.get("local_window_size", (None, None))
    if right is not None and not (right == 0 and "causal" in call.arguments):
        raise Unsupported("a window has no bound on the right")
    if left is None:
        return -1
    if "causal" not in call.arguments:
        raise Unsupported("a window needs a causal mask")
    return int(left) + 1


devices = ort_devices
evidence = partial(ort_evidence, "onnx")
