"""
onnxruntime's own operator com.microsoft.GroupQueryAttention, as a graph of one node.

What this adapter translates, and nothing else:
* arrays are given (batch, num_heads, seq_len, head_dim); the operator takes and returns (batch, seq_len, width).
* `attention_bias`: added to the logits.
* softcap: passed as an attribute.
* `causal`: the causal mask is aligned top-left and shifted by the length of a past. It is the default of the operator;
  the adapter sets the attribute to 0 if the call does not use it.
* `local_window_size`: it counts the query itself, so it is the number of keys to the left plus one. It is used only
  together with `causal`.
* `seqlens_k`: the number of keys of each batch element that are not padding, minus one.
* `total_sequence_length`: the number of all keys, including a past.
* `past_key` and `past_value`, `present_key` and `present_value`: as in the call.
* The outputs logits and weights are `output_qk`, before or after the softmax (`qk_output` 1 or 2).
"""

NAME = "ort.contrib_gqa"
OPERATORS = ["sdpa"]
REQUIRES = ["onnx>=1.17", "onnxruntime>=1.19", "ml_dtypes>=0.4"]
EXTRA = "onnx"
OUTPUTS = ["output", "weights", "present", "logits"]
DTYPES = ["float32", "float16", "bfloat16"]
DEVICES = ["cpu", "cuda"]
CAPABILITIES = ["scale", "grouped_heads", "softcap", "past", "mistakes", "mistaken_heads"]
DECLINES = {
    "float64": "the operator documents float, float16 and bfloat16",
    "value_dim": "the operator documents one kv_hidden_size for key and value",
    "layout": "onnxruntime's Python interface copies what is not contiguous: "
    "https://github.com/microsoft/onnxruntime/blob/main/onnxruntime/python/onnxruntime_pybind_mlvalue.cc",
}
SLOTS = {
    "attention_bias": {
        "role": "mask",
        "takes": ["additive", "attention", "key_padding"],
        "axes": [["b", "h", "q", "k"]],
        "broadcast": ["b", "h"],
        "float": "add",
    },
    "seqlens_k": {
        "role": "lengths",
        "takes": ["key_padding"],
        "axes": [["b", "k"]],
        "about": "the number of keys that are not padding, minus 1",
        "without": ["past"],  # with a past it says where the new keys are stored
    },
    "causal": {"role": "causal", "alignment": "past"},
    "local_window_size": {
        "role": "window",
        "alignment": "past",
        "about": "the number of keys on the left plus 1, only with causal",
    },
}

from functools import partial
from typing import Any

import numpy as np

from conformance.bridge import Call, Declaration, Facts, Unsupported, framework_call

from ._arrays import to_numpy
from ._node import CONTRIB, OLD_OPSET, PASTS, PRESENTS, merged, microsoft, model, past, split
from ._ort import fed, ort_devices, ort_evidence, ort_profile, run_model
from ._ort_release import in_release

QKV = ("query", "key", "value")
# Output -> the value of qk_output that returns it in output_qk.
QK = {"logits": 1, "weights": 2}

# Arguments that mask keys but are not added to the logits.
HIDING = {"seqlens_k", "causal", "local_window_size"}


def declare(facts: Facts) -> Declaration:
    """Declare canonical attention: ContribOperators.md documents no deviation from it."""
    return Declaration(ort_profile(facts.dtype), evidence="measured: docs/tolerance.md, section 5")


def sdpa(call: Call) -> dict[str, Any]:
    """Answer the call with a graph of one node."""
    sizes = call.facts.sizes
    if "past" in sizes and sizes["seq_len_q"] > 1 and sizes["batch"] > 1:
        raise Unsupported(f"with a past, sequence_length > 1 requires batch_size == 1: {CONTRIB}")
    score, width = score_asked(call), window(call)
    inputs = arrays(call)
    bias = ["", "", "", "attention_bias"] if "attention_bias" in inputs else []
    pasts = [name if name in inputs else "" for name in PASTS]
    outputs = {"output": "Y"} | (dict(zip(PRESENTS, PRESENTS, strict=True)) if call.past_key is not None else {})
    outputs |= {score: "output_qk"} if score else {}
    node = microsoft(
        "GroupQueryAttention",
        [*QKV, *pasts, "seqlens_k", "total", *bias],
        more=[*PRESENTS, *(["output_qk"] if score else [])],
        num_heads=sizes["num_heads"],
        kv_num_heads=sizes["num_kv_heads"],
        scale=call.scale,
        softcap=call.softcap,
        causal=None if "causal" in call.arguments else 0,
        local_window_size=width,
        qk_output=QK[score] if score else None,
    )
    graph = model([in_release(node)], inputs, list(outputs.values()), OLD_OPSET)
    given = fed(inputs)
    with framework_call():
        found = dict(zip(outputs, run_model(graph, given, call.facts.device, optimised=False), strict=True))
    return found | {"output": split(found["output"], sizes["num_heads"])}


def score_asked(call: Call) -> str | None:
    """Return what the call requests in output_qk, "logits" or "weights", or None."""
    asked = [name for name in QK if name in call.facts.outputs]
    if len(asked) > 1:
        raise Unsupported(f"qk_output is one number, for logits or weights: {CONTRIB}")
    if "logits" in asked and HIDING & call.arguments.keys():
        raise Unsupported(
            f"of keys that an argument hides output_qk holds before the softmax what the page leaves open: {CONTRIB}"
        )
    return asked[0] if asked else None


def arrays(call: Call) -> dict[str, Any]:
    """Return the inputs of the graph by name."""
    batch, length = call.facts.sizes["batch"], call.facts.sizes["seq_len_k"]
    lengths = to_numpy(call.arguments["seqlens_k"]) if "seqlens_k" in call.arguments else np.full(batch, length)
    found = {name: merged(to_numpy(getattr(call, name))) for name in QKV}
    found |= {"seqlens_k": (lengths - 1).astype(np.int32), "total": np.array(length, np.int32)}
    if "attention_bias" in call.arguments:
        found["attention_bias"] = to_numpy(call.arguments["attention_bias"])
    return found | past(call)


def window(call: Call) -> int | None:
    """Return the attribute local_window_size, or None (its default) if no window limits the keys on the left."""
    left, right = call.arguments.get("local_window_size", (None, None))
    if right is not None and not (right == 0 and "causal" in call.arguments):
        raise Unsupported(f"local_window_size has no bound on the right: {CONTRIB}")
    if left is None:
        return None
    if "causal" not in call.arguments:
        raise Unsupported(f"local_window_size must be -1 when causal is 0: {CONTRIB}")
    return int(left) + 1


devices = ort_devices
evidence = partial(ort_evidence, "onnx")
