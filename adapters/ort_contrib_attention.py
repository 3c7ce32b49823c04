"""
onnxruntime's own operator com.microsoft.Attention (self attention, packed projections), then an output projection.

What this adapter translates, and nothing else:
* one input: calls whose query, key and value are one object
* the weights of query, key and value are stacked on the second axis, as are their biases; the output projection is a
  MatMul and an Add of its own
* mask_index: int32, 1 means attend, over keys or over queries and keys; attention_bias: added to the logits
* unidirectional: top-left aligned
* mask_filter_value is left at its default of -10000
"""

NAME = "ort.contrib_attention"
OPERATORS = ["mha"]
REQUIRES = ["onnx", "onnxruntime", "ml_dtypes"]
EXTRA = "onnx"
OUTPUTS = ["output"]
DTYPES = ["float32", "float16"]
DEVICES = ["cpu", "cuda"]
CAPABILITIES = ["value_dim", "query_dim", "output_dim", "no_bias", "mistakes"]
DECLINES = {
    "float64": "the operator documents float, float16 and bfloat16",
    "bfloat16": "onnxruntime's Python interface takes NumPy arrays, which have no bfloat16",
    "layout": "onnxruntime's Python interface copies what is not contiguous",
}
SLOTS = {
    "mask_index": {
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
    "unidirectional": {"role": "causal", "alignment": "top_left"},
}

from functools import partial
from typing import Any

import numpy as np
from onnx import helper

from conformance.bridge import Call, Declaration, Facts, Unsupported, framework_call

from ._arrays import to_numpy
from ._node import OLD_OPSET, contrib_dialect, microsoft, model
from ._ort import ort_devices, ort_evidence, ort_profile, run_model


def declare(facts: Facts) -> Declaration:
    """What ContribOperators.md says: the fill of the mask."""
    return Declaration(
        ort_profile(facts.dtype), contrib_dialect(facts, "mask_index"), "measured: docs/tolerance.md, section 5"
    )


def mha(call: Call) -> dict[str, Any]:
    """Answer the call with a graph of at most three nodes."""
    facts = call.facts
    if facts.alias != "qkv":
        raise Unsupported("the operator has one input: query, key and value must be one object")
    params = {name: to_numpy(tensor) for name, tensor in call.params.items()}
    inputs = {"X": to_numpy(call.query), "W": np.concatenate([params["wq"], params["wk"], params["wv"]], axis=1)}
    if "bq" in params:
        inputs["B"] = np.concatenate([params["bq"], params["bk"], params["bv"]])
    inputs |= {
        name: to_numpy(call.arguments[name]) for name in ("mask_index", "attention_bias") if name in call.arguments
    }
    inputs |= {name: params[name] for name in ("wo", "bo") if name in params}
    with framework_call():
        output = run_model(model(nodes(call, inputs), inputs, ["Y"], OLD_OPSET), inputs, facts.device, optimised=False)[
            0
        ]
    return {"output": output}


def nodes(call: Call, inputs: dict[str, Any]) -> list[Any]:
    """The operator and the output projection."""
    sizes = call.facts.sizes
    width, value_width = (sizes["num_heads"] * sizes[name] for name in ("head_dim", "value_dim"))
    slots = [name if name in inputs else "" for name in ("X", "W", "B", "mask_index", "", "attention_bias")]
    attention = microsoft(
        "Attention",
        slots,
        output="core",
        num_heads=sizes["num_heads"],
        qkv_hidden_sizes=[width, width, value_width],
        unidirectional=int(call.arguments.get("unidirectional", False)),
    )
    projected = "sum" if "bo" in inputs else "Y"
    made = [attention, helper.make_node("MatMul", ["core", "wo"], [projected])]
    return [*made, helper.make_node("Add", ["sum", "bo"], ["Y"])] if "bo" in inputs else made


devices = ort_devices
evidence = partial(ort_evidence, "onnx")
