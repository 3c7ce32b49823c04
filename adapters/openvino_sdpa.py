"""
OpenVINO, through the operation ScaledDotProductAttention of opset 13 on its CPU plugin.

What this adapter translates, and nothing else:
* arrays are (batch, num_heads, seq_len, head_dim), as in the call. Batch and lengths are dynamic in the graph.
* `attention_mask`: True means attend; floats are added to the logits.
* `causal`: top-left aligned. The page says that a causal call ignores the mask, so the two exclude each other.
* `INFERENCE_PRECISION_HINT`: f32, so that the plugin does not choose another precision.
* bfloat16: an openvino.Tensor with the same bits, for the inputs and for the output.
* arrays that do not fit (`mistakes`) are passed to a separate process, which runs only this call. After such a call,
  later calls fail or the process crashes (2026.4.1). If a signal kills the separate process, the adapter kills its own
  process with the same signal.
"""

NAME = "openvino.sdpa"
OPERATORS = ["sdpa"]
REQUIRES = ["openvino>=2025.0", "ml_dtypes>=0.4"]
EXTRA = "openvino"
OUTPUTS = ["output"]
DTYPES = ["float32", "float16", "bfloat16"]
DEVICES = ["cpu"]
CAPABILITIES = ["scale", "grouped_heads", "value_dim", "mistakes"]
SLOTS = {
    "attention_mask": {
        "role": "mask",
        "takes": ["key_padding", "attention", "causal", "window", "additive"],
        "axes": [["q", "k"], ["b", "h", "q", "k"]],
        "broadcast": ["b", "h", "q"],
        "bool": "attend",
        "float": "add",
    },
    "causal": {"role": "causal", "alignment": "top_left", "excludes": ["attention_mask"]},
}
DECLINES = {
    "float64": "no inference precision of the CPU device: "
    "https://docs.openvino.ai/2024/openvino-workflow/running-inference/inference-devices-and-modes/cpu-device.html",
}

import os
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import openvino
from openvino import opset13

from conformance.bridge import Call, Declaration, Deviation, Facts, Profile, Tensor, Unsupported, framework_call

from ._alone import alone

SPEC = (
    "https://docs.openvino.ai/2025/documentation/openvino-ir-format/operation-sets/operation-specs/sequence/"
    "scaled-dot-product-attention.html"
)
CORE = openvino.Core()
CPU = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1}
ELEMENTS = {"float32": openvino.Type.f32, "float16": openvino.Type.f16, "bfloat16": openvino.Type.bf16}
ELEMENTS |= {"bool": openvino.Type.boolean}


def declare(facts: Facts) -> Declaration:
    """Declare what the operation's page documents: -inf is added to masked logits; weights multiply every value."""
    leaks = (Deviation("nonfinite_value", "leaks", SPEC), Deviation("nonfinite_key", "leaks", SPEC))
    return Declaration(Profile.uniform(facts.dtype), leaks, evidence="measured: docs/tolerance.md, section 5")


def sdpa(call: Call) -> dict[str, Any]:
    """Answer the call with a graph of one operation."""
    if call.facts.sizes["num_kv_heads"] not in (1, call.facts.sizes["num_heads"]):
        raise Unsupported(f"axes before the last two are broadcast, so that key heads are one or all: {SPEC}")
    tensors = [call.query, call.key, call.value]
    if "attention_mask" in call.arguments:
        tensors.append(call.arguments["attention_mask"])
    widths = tuple((tensor.dtype, tensor.shape[1], tensor.shape[-1]) for tensor in tensors[:3])
    mask = (tensors[3].dtype, len(tensors[3].shape)) if tensors[3:] else None
    if call.scale is not None:
        tensors.append(scale(call))
    flags = {"scaled": call.scale is not None, "causal": "causal" in call.arguments}
    with framework_call():
        if "mistakes" in call.facts.requirements:
            return {"output": alone(graph(widths, mask, **flags), [each.bits for each in tensors], CPU)}
        request = built(widths, mask, **flags)
        request.infer([openvino.Tensor(each.bits, list(each.shape), ELEMENTS[each.dtype]) for each in tensors])
        output = np.array(request.get_output_tensor(0).data)
    half = call.query.dtype == "bfloat16"
    return {"output": Tensor("bfloat16", output.view(np.uint16)) if half else output}


def scale(call: Call) -> Tensor:
    """The scale in the dtype of the query, as a scalar."""
    if call.query.dtype != "bfloat16":
        return Tensor.of(np.asarray(call.scale, call.query.dtype))
    return Tensor.of(np.asarray(call.scale, ml_dtypes.bfloat16))


Kind = tuple[str, int, int]


def graph(widths: tuple[Kind, ...], mask: tuple[str, int] | None, *, scaled: bool, causal: bool) -> Any:
    """The model for (dtype, heads, dim) of query, key and value, with or without a mask and a scale."""
    inputs = [opset13.parameter([-1, heads, -1, dim], ELEMENTS[dtype]) for dtype, heads, dim in widths]
    more: dict[str, Any] = {"causal": causal}
    kind = ELEMENTS[widths[0][0]]
    if mask is not None:
        more["attention_mask"] = opset13.parameter([-1] * mask[1], ELEMENTS[mask[0]])
    elif scaled:
        more["attention_mask"] = opset13.constant(0, kind)
    if scaled:
        more["scale"] = opset13.parameter([], kind)
    found = opset13.scaled_dot_product_attention(*inputs, **more)
    given = [more[name] for name in ("attention_mask", "scale") if name in more and (name == "scale" or mask)]
    return openvino.Model([found], [*inputs, *given])


@cache
def built(widths: tuple[Kind, ...], mask: tuple[str, int] | None, *, scaled: bool, causal: bool) -> Any:
    """The inference request of a compiled model, created once for each model."""
    return CORE.compile_model(graph(widths, mask, scaled=scaled, causal=causal), "CPU", CPU).create_infer_request()


def evidence() -> dict[str, Any]:
    """The versions, the device and the threads."""
    return {
        "versions": {"openvino": openvino.__version__, "numpy": np.__version__},
        "device": "cpu",
        "ran_on": ["cpu"],
        "threads": os.environ.get("OMP_NUM_THREADS"),
    }
