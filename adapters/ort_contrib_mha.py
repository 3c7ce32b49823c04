"""
onnxruntime's own operator com.microsoft.MultiHeadAttention, as a graph of one node.

What this adapter translates, and nothing else:
* arrays are given (batch, num_heads, seq_len, head_dim); the operator takes and returns (batch, seq_len, width)
* key_padding_mask: int32, 1 means attend, over keys or over queries and keys; attention_bias: added to the logits
* unidirectional: top-left aligned, after a past shifted by its length
* past_key and past_value, present_key and present_value: as in the call
* mask_filter_value is left at its default of -10000
"""

NAME = "ort.contrib_mha"
OPERATORS = ["sdpa"]
REQUIRES = ["onnx", "onnxruntime", "ml_dtypes"]
EXTRA = "onnx"
OUTPUTS = ["output", "present"]
DTYPES = ["float32", "float16"]
DEVICES = ["cpu", "cuda"]
CAPABILITIES = ["scale", "value_dim", "past", "mistakes", "mistaken_heads"]
DECLINES = {
    "float64": "the operator documents float, float16 and bfloat16",
    "bfloat16": "onnxruntime's Python interface takes NumPy arrays, which have no bfloat16",
    "layout": "onnxruntime's Python interface copies what is not contiguous",
}
SLOTS = {
    "key_padding_mask": {
        "role": "mask",
        "takes": ["key_padding", "attention"],
        "axes": [["b", "k"], ["b", "q", "k"]],
        "int": "attend",
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
from ._node import OLD_OPSET, PASTS, PRESENTS, contrib_dialect, merged, microsoft, model, past, split
from ._ort import ort_devices, ort_evidence, ort_profile, run_model


def declare(facts: Facts) -> Declaration:
    """What ContribOperators.md says: the fill of the mask."""
    return Declaration(
        ort_profile(facts.dtype), contrib_dialect(facts, "key_padding_mask"), "measured: docs/tolerance.md, section 5"
    )


def sdpa(call: Call) -> dict[str, Any]:
    """Answer the call with a graph of one node."""
    sizes = call.facts.sizes
    heads = sizes["num_heads"]
    if call.past_value is not None and sizes["value_dim"] != sizes["head_dim"]:
        raise Unsupported("the operator documents one head_size for past_key and past_value")
    names = ("query", "key", "value")
    inputs = {name: merged(to_numpy(getattr(call, name))) for name in names}
    masks = {name: to_numpy(call.arguments[name]) for name in SLOTS if name in call.arguments and name[0] in "ka"}
    inputs |= masks | past(call)
    slots = [*names, "", *(name if name in inputs else "" for name in ("key_padding_mask", "attention_bias", *PASTS))]
    outputs = ["Y", *(PRESENTS if call.past_key is not None else ())]
    node = microsoft(
        "MultiHeadAttention",
        slots,
        more=outputs[1:],
        num_heads=heads,
        scale=call.scale,
        unidirectional=int(call.arguments.get("unidirectional", False)),
    )
    with framework_call():
        found = run_model(model([node], inputs, outputs, OLD_OPSET), inputs, call.facts.device, optimised=False)
    return {"output": split(found[0], heads), **dict(zip(outputs[1:], found[1:], strict=True))}


devices = ort_devices
evidence = partial(ort_evidence, "onnx")
