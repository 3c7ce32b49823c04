"""
onnxruntime's own operator com.microsoft.MultiHeadAttention, as a graph of one node.

What this adapter translates, and nothing else:
* arrays are given (batch, num_heads, seq_len, head_dim); the operator takes and returns (batch, seq_len, width).
* `key_padding_mask`: int32, 1 means attend, with the axes (batch, seq_len_k) or (batch, seq_len_q, seq_len_k). With one
  axis (here called `key_lengths`), it is the number of keys of each batch element that are not padding.
* `attention_bias`: added to the logits.
* `unidirectional`: the causal mask is aligned top-left and shifted by the length of a past.
* `past_key` and `past_value`, `present_key` and `present_value`: as in the call.
* The output logits is `qk`, which the page calls "normalized Q * K".
* `mask_filter_value` keeps its default of -10000.
"""

NAME = "ort.contrib_mha"
OPERATORS = ["sdpa"]
REQUIRES = ["onnx>=1.17", "onnxruntime>=1.19", "ml_dtypes>=0.4"]
EXTRA = "onnx"
OUTPUTS = ["output", "present", "logits"]
DTYPES = ["float32", "float16", "bfloat16"]
DEVICES = ["cpu", "cuda"]
CAPABILITIES = ["scale", "value_dim", "past", "mistakes", "mistaken_heads"]
DECLINES = {
    "float64": "the operator documents float, float16 and bfloat16",
    "layout": "onnxruntime's Python interface copies what is not contiguous: "
    "https://github.com/microsoft/onnxruntime/blob/main/onnxruntime/python/onnxruntime_pybind_mlvalue.cc",
}
SLOTS = {
    "key_padding_mask": {
        "role": "mask",
        "takes": ["key_padding", "attention"],
        "axes": [["b", "k"], ["b", "q", "k"]],
        "int": "attend",
    },
    "key_lengths": {
        "role": "lengths",
        "takes": ["key_padding"],
        "axes": [["b", "k"]],
        "arguments": ["key_padding_mask"],
        "excludes": ["key_padding_mask"],  # one argument in two forms
    },
    "attention_bias": {
        "role": "mask",
        "takes": ["additive", "attention", "window"],
        "axes": [["b", "h", "q", "k"]],
        "broadcast": ["b", "h"],
        "float": "add",
    },
    "unidirectional": {"role": "causal", "alignment": "past"},
}

from functools import partial
from typing import Any

from conformance.bridge import Call, Declaration, Facts, Unsupported, framework_call

from ._arrays import to_numpy
from ._node import CONTRIB, OLD_OPSET, PASTS, PRESENTS, contrib_dialect, merged, microsoft, model, past, split
from ._ort import fed, ort_devices, ort_evidence, ort_profile, run_model
from ._ort_release import in_release

# Slot -> input of the operator.
MASKS = {"key_padding_mask": "key_padding_mask", "key_lengths": "key_padding_mask", "attention_bias": "attention_bias"}


def declare(facts: Facts) -> Declaration:
    """Declare the deviation that ContribOperators.md documents: the fill value of the mask."""
    return Declaration(
        ort_profile(facts.dtype),
        (*contrib_dialect(facts, "key_padding_mask"), *contrib_dialect(facts, "key_lengths")),
        "measured: docs/tolerance.md, section 5",
    )


def sdpa(call: Call) -> dict[str, Any]:
    """Answer the call with a graph of one node."""
    sizes = call.facts.sizes
    if call.past_value is not None and sizes["value_dim"] != sizes["head_dim"]:
        raise Unsupported(f"one head_size for past_key and past_value: {CONTRIB}")
    names = ("query", "key", "value")
    inputs = {name: merged(to_numpy(getattr(call, name))) for name in names}
    inputs |= {MASKS[name]: to_numpy(array) for name, array in call.arguments.items() if name in MASKS} | past(call)
    slots = [*names, "", *(name if name in inputs else "" for name in ("key_padding_mask", "attention_bias", *PASTS))]
    presents = PRESENTS if call.past_key is not None else ("", "")
    outputs = {"output": "Y", **{name: name for name in presents if name}}
    outputs |= {"logits": "qk"} if "logits" in call.facts.outputs else {}
    node = microsoft(
        "MultiHeadAttention",
        slots,
        more=[*presents, *(["qk"] if "logits" in outputs else [])],
        num_heads=sizes["num_heads"],
        scale=call.scale,
        unidirectional=1 if "unidirectional" in call.arguments else None,
    )
    graph = model([in_release(node)], inputs, list(outputs.values()), OLD_OPSET)
    given = fed(inputs)
    with framework_call():
        found = dict(zip(outputs, run_model(graph, given, call.facts.device, optimised=False), strict=True))
    return found | {"output": split(found["output"], sizes["num_heads"])}


devices = ort_devices
evidence = partial(ort_evidence, "onnx")
