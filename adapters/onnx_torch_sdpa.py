"""
PyTorch's scaled_dot_product_attention, exported to ONNX by torch.onnx.export, run by onnxruntime.

What this adapter translates, and nothing else:
* arrays are (batch, num_heads, seq_len, head_dim), as in the call. Batch and lengths are dynamic in the graph.
* `attn_mask`: True means attend; floats are added to the logits. It is passed as in the call.
* `is_causal`: top-left aligned.
* fewer key heads than query heads: `enable_gqa=True`.
"""

NAME = "onnx.torch_sdpa"
OPERATORS = ["sdpa"]
REQUIRES = ["torch>=2.6", "onnx>=1.17", "onnxscript>=0.6", "onnxruntime>=1.20"]
EXTRA = "onnx"
OUTPUTS = ["output"]
DTYPES = ["float64", "float32", "float16"]
DEVICES = ["cpu"]
CAPABILITIES = ["scale", "grouped_heads", "value_dim", "mistakes"]
DECLINES = {
    "bfloat16": "onnxruntime has no kernels of Expand, MatMul, Mul and Sqrt for it on the CPU: "
    "https://github.com/microsoft/onnxruntime/blob/main/docs/OperatorKernels.md",
}
SLOTS = {
    "attn_mask": {
        "role": "mask",
        "takes": ["key_padding", "attention", "causal", "window", "additive"],
        "axes": [["q", "k"], ["b", "1", "1", "k"], ["b", "h", "q", "k"]],
        "bool": "attend",
        "float": "add",
    },
    "is_causal": {"role": "causal", "alignment": "top_left", "excludes": ["attn_mask"]},
}
VARIANTS = {
    "dynamo": {"summary": "the dynamo exporter, default opset"},
    "unoptimised": {"summary": "the same graph, graph optimisation off"},
    "opset23": {
        "summary": "the dynamo exporter, opset 23: the operator Attention",
        "REQUIRES": ["torch>=2.6", "onnx>=1.18", "onnxscript>=0.6", "onnxruntime>=1.23"],
    },
    "torchscript": {
        "summary": "the older exporter (dynamo=False), default opset",
        "CAPABILITIES": ["scale", "value_dim", "mistakes"],
    },
}

from collections.abc import Mapping
from typing import Any

from torch.nn.functional import scaled_dot_product_attention

from conformance.bridge import Call, Tensor, framework_call

from ._onnx import run
from ._torch_export import declare, evidence, session_of

__all__ = ["declare", "evidence", "sdpa"]


def sdpa(call: Call) -> dict[str, Any]:
    """Answer the call with the exported graph."""
    sizes = call.facts.sizes
    inputs = {"query": (call.query, "bhqd"), "key": (call.key, "bgkd"), "value": (call.value, "bgke")}
    if "attn_mask" in call.arguments:
        mask = call.arguments["attn_mask"]
        inputs["attn_mask"] = (mask, mask_axes(mask))
    flags: dict[str, Any] = {
        "is_causal": bool(call.arguments.get("is_causal", False)),
        "scale": call.scale,
        "enable_gqa": sizes["num_kv_heads"] != sizes["num_heads"],
    }

    def source(tensors: Mapping[str, Any]) -> Any:
        return scaled_dot_product_attention(**tensors, **flags)

    with framework_call():
        output = run(session_of(source, inputs, flags, call.facts, __file__), inputs)[0]
    return {"output": output}


def mask_axes(mask: Tensor) -> str:
    """The axes of a mask in one of its three documented shapes."""
    if len(mask.shape) == len("qk"):
        return "qk"
    return "b11k" if mask.shape[1:3] == (1, 1) else "bhqk"
