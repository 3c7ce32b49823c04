"""
onnxruntime's own operator com.microsoft.Attention (self attention, packed projections), then an output projection.

What this adapter translates, and nothing else:
* The operator has one input, so the adapter takes only calls whose query, key and value are one object.
* The weights of query, key and value are concatenated on the second axis, and their biases on their only axis. The
  output projection is a separate MatMul and Add.
* `mask_index`: int32, 1 means attend, with the axes (batch, seq_len_k) or (batch, seq_len_q, seq_len_k). With one axis
  (here called `key_lengths`), it is the number of keys of each batch element that are not padding.
* `attention_bias`: added to the logits.
* `unidirectional`: the causal mask is aligned top-left.
* `mask_filter_value` keeps its default of -10000.
"""

NAME = "ort.contrib_attention"
OPERATORS = ["mha"]
REQUIRES = ["onnx>=1.17", "onnxruntime>=1.19", "ml_dtypes>=0.4"]
EXTRA = "onnx"
OUTPUTS = ["output"]
DTYPES = ["float32", "float16", "bfloat16"]
DEVICES = ["cpu", "cuda"]
CAPABILITIES = ["value_dim", "query_dim", "output_dim", "no_bias", "mistakes", "mistaken_heads"]
DECLINES = {
    "float64": "the operator documents float, float16 and bfloat16",
    "layout": "onnxruntime's Python interface copies what is not contiguous: "
    "https://github.com/microsoft/onnxruntime/blob/main/onnxruntime/python/onnxruntime_pybind_mlvalue.cc",
}
SLOTS = {
    "mask_index": {
        "role": "mask",
        "takes": ["key_padding", "attention"],
        "axes": [["b", "k"], ["b", "q", "k"]],
        "int": "attend",
    },
    "key_lengths": {
        "role": "lengths",
        "takes": ["key_padding"],
        "axes": [["b", "k"]],
        "arguments": ["mask_index"],
        "excludes": ["mask_index"],  # one argument in two forms
    },
    "attention_bias": {
        "role": "mask",
        "takes": ["additive", "attention", "window"],
        "axes": [["b", "h", "q", "k"]],
        "broadcast": ["b", "h"],
        "float": "add",
    },
    "unidirectional": {"role": "causal", "alignment": "top_left"},
}

from functools import partial
from typing import Any

import numpy as np
from onnx import helper

from conformance.bridge import Call, Declaration, Facts, Unsupported, framework_call

from ._arrays import to_numpy
from ._node import CONTRIB, OLD_OPSET, contrib_dialect, microsoft, model
from ._ort import fed, ort_devices, ort_evidence, ort_profile, run_model
from ._ort_release import in_release

# Slot -> input of the operator.
MASKS = {"mask_index": "mask_index", "key_lengths": "mask_index", "attention_bias": "attention_bias"}


def declare(facts: Facts) -> Declaration:
    """Declare the deviation that ContribOperators.md documents: the fill value of the mask."""
    return Declaration(
        ort_profile(facts.dtype),
        (*contrib_dialect(facts, "mask_index"), *contrib_dialect(facts, "key_lengths")),
        "measured: docs/tolerance.md, section 5",
    )


def mha(call: Call) -> dict[str, Any]:
    """Answer the call with a graph of at most three nodes."""
    facts = call.facts
    if facts.alias != "qkv":
        raise Unsupported(f"the operator has one input: query, key and value must be one object: {CONTRIB}")
    params = {name: to_numpy(tensor) for name, tensor in call.params.items()}
    inputs = {"X": to_numpy(call.query), "W": np.concatenate([params["wq"], params["wk"], params["wv"]], axis=1)}
    if "bq" in params:
        inputs["B"] = np.concatenate([params["bq"], params["bk"], params["bv"]])
    inputs |= {MASKS[name]: to_numpy(array) for name, array in call.arguments.items() if name in MASKS}
    inputs |= {name: params[name] for name in ("wo", "bo") if name in params}
    graph = model(nodes(call, inputs), inputs, ["Y"], OLD_OPSET)
    given = fed(inputs)
    with framework_call():
        output = run_model(graph, given, facts.device, optimised=False)[0]
    return {"output": output}


def nodes(call: Call, inputs: dict[str, Any]) -> list[Any]:
    """Return the nodes of the operator and of the output projection."""
    sizes = call.facts.sizes
    width, value_width = (sizes["num_heads"] * sizes[name] for name in ("head_dim", "value_dim"))
    slots = [name if name in inputs else "" for name in ("X", "W", "B", "mask_index", "", "attention_bias")]
    attention = microsoft(
        "Attention",
        slots,
        output="core",
        num_heads=sizes["num_heads"],
        qkv_hidden_sizes=[width, width, value_width],
        unidirectional=1 if "unidirectional" in call.arguments else None,
    )
    projected = "sum" if "bo" in inputs else "Y"
    made = [in_release(attention), helper.make_node("MatMul", ["core", "wo"], [projected])]
    return [*made, helper.make_node("Add", ["sum", "bo"], ["Y"])] if "bo" in inputs else made


devices = ort_devices
evidence = partial(ort_evidence, "onnx")
