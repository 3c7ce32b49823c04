"""
OpenVINO, through the operation ScaledDotProductAttention of opset 13 on its CPU plugin.

What this adapter translates, and nothing else:
* arrays are (batch, num_heads, seq_len, head_dim), as in the call; batch and lengths are dynamic in the graph
* attention_mask: True means attend, floats are added to the logits
* causal: top-left aligned; the mask is then ignored, so that they exclude each other
* the model is compiled with INFERENCE_PRECISION_HINT f32, so that the plugin does not choose another one
"""

NAME = "openvino.sdpa"
OPERATORS = ["sdpa"]
REQUIRES = ["openvino>=2024.4", "ml_dtypes>=0.4"]
EXTRA = "openvino"
OUTPUTS = ["output"]
DTYPES = ["float32"]
DEVICES = ["cpu"]
CAPABILITIES = ["scale", "value_dim"]
SLOTS = {
    "attention_mask": {
        "role": "mask",
        "takes": ["key_padding", "attention", "causal", "window", "additive"],
        "axes": [["q", "k"], ["b", "h", "q", "k"]],
        "bool": "attend",
        "float": "add",
    },
    "causal": {"role": "causal", "alignment": "top_left", "excludes": ["attention_mask"]},
}
DECLINES = {
    "float64": "the CPU plugin computes in float32 at most",
    "bfloat16": "OpenVINO's Python interface takes NumPy arrays, which have no bfloat16",
    "float16": "with the hint f32 the plugin computes in float32 what is asked in float16",
    "mistakes": "arrays that do not fit are read beyond their ends: later calls err, or the process crashes (2026.4.1)",
}

import os
from functools import cache
from typing import Any

import numpy as np
import openvino
from openvino import opset13

from conformance.bridge import Call, Declaration, Deviation, Facts, Profile, framework_call

from ._arrays import to_numpy

SPEC = (
    "https://docs.openvino.ai/2025/documentation/openvino-ir-format/operation-sets/operation-specs/sequence/"
    "scaled-dot-product-attention.html"
)
CORE = openvino.Core()
CPU = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1}


def declare(facts: Facts) -> Declaration:
    """What the operation's page says: masked logits get -inf added, and the weights are multiplied by every value."""
    leaks = tuple(Deviation(f"nonfinite_{what}", "leaks", SPEC) for what in ("value", "key"))
    return Declaration(Profile.uniform(facts.dtype), leaks, evidence="measured: docs/tolerance.md, section 5")


def sdpa(call: Call) -> dict[str, Any]:
    """Answer the call with a graph of one operation."""
    arrays = [to_numpy(tensor) for tensor in (call.query, call.key, call.value)]
    if "attention_mask" in call.arguments:
        arrays.append(to_numpy(call.arguments["attention_mask"]))
    widths = tuple((array.dtype.name, array.shape[1], array.shape[-1]) for array in arrays[:3])
    mask = (arrays[3].dtype.name, arrays[3].ndim) if arrays[3:] else None
    scale = call.scale
    if scale is not None:
        arrays.append(np.asarray(scale, arrays[0].dtype))
    with framework_call():
        compiled = built(widths, mask, scaled=scale is not None, causal="causal" in call.arguments)
        output = compiled(arrays)[0]
    return {"output": np.array(output)}


@cache
def built(widths: tuple[tuple[str, int, int], ...], mask: tuple[str, int] | None, *, scaled: bool, causal: bool) -> Any:
    """The compiled graph for these widths, with or without a mask and a scale."""
    inputs = [opset13.parameter([-1, heads, -1, dim], np.dtype(dtype)) for dtype, heads, dim in widths]
    more: dict[str, Any] = {"causal": causal}
    if mask is not None:
        more["attention_mask"] = opset13.parameter([-1] * mask[1], np.dtype(mask[0]))
    elif scaled:
        more["attention_mask"] = opset13.constant(np.zeros((), widths[0][0]))
    if scaled:
        more["scale"] = opset13.parameter([], np.dtype(widths[0][0]))
    found = opset13.scaled_dot_product_attention(*inputs, **more)
    given = [more[name] for name in ("attention_mask", "scale") if name in more and (name == "scale" or mask)]
    return CORE.compile_model(openvino.Model([found], [*inputs, *given]), "CPU", CPU)


def evidence() -> dict[str, Any]:
    """What runs."""
    return {
        "versions": {"openvino": openvino.__version__, "numpy": np.__version__},
        "device": "cpu",
        "ran_on": ["cpu"],
        "threads": os.environ.get("OMP_NUM_THREADS"),
    }
