"""
torch.nn.MultiheadAttention, exported to ONNX by torch.onnx.export (dynamo), run by onnxruntime.

What this adapter translates, and nothing else:
* what torch.mha[eval] translates, except `bias_k` and `bias_v`, `add_zero_attn`, dropout and the memory layout.
* parameters: inputs of the graph (torch.func.functional_call). The older exporter cannot trace this function.
* batch and lengths: dynamic in the graph.
"""

NAME = "onnx.torch_mha"
OPERATORS = ["mha"]
REQUIRES = ["torch>=2.6", "onnx>=1.17", "onnxscript>=0.6", "onnxruntime>=1.20"]
EXTRA = "onnx"
OUTPUTS = ["output", "weights", "weights_mean"]
DTYPES = ["float64", "float32", "float16"]
DEVICES = ["cpu"]
CAPABILITIES = ["kdim", "no_bias"]
DECLINES = {
    "bfloat16": "onnxruntime has no kernels of Expand, MatMul, Mul and Sqrt for it on the CPU: "
    "https://github.com/microsoft/onnxruntime/blob/main/docs/OperatorKernels.md",
}
SLOTS = {
    "key_padding_mask": {
        "role": "mask",
        "takes": ["key_padding"],
        "axes": [["b", "k"]],
        "bool": "ignore",
        "float": "add",
        "same_element_as": ["attn_mask"],
    },
    "attn_mask": {
        "role": "mask",
        "takes": ["attention", "causal", "window", "additive"],
        "axes": [["q", "k"], ["b*h", "q", "k"]],
        "bool": "ignore",
        "float": "add",
        "same_element_as": ["key_padding_mask"],
    },
    "is_causal": {"role": "causal", "alignment": "top_left", "hint": True, "requires": ["attn_mask"]},
}
VARIANTS = {
    "dynamo": {"summary": "the dynamo exporter, default opset"},
    "opset23": {
        "summary": "the dynamo exporter, opset 23",
        "tier": "thorough",
        "REQUIRES": ["torch>=2.6", "onnx>=1.18", "onnxscript>=0.6", "onnxruntime>=1.23"],
    },
}

from collections.abc import Mapping
from typing import Any

import torch

from conformance.bridge import Call, Facts, Tensor, Unsupported, framework_call

from ._onnx import run
from ._torch import mha_layer, mha_state, wants_weights
from ._torch_export import Function, declare, evidence, session_of

__all__ = ["declare", "evidence", "mha"]

MASKS = ("key_padding_mask", "attn_mask")


def mha(call: Call) -> dict[str, Any]:
    """Answer the call with the exported graph."""
    facts = call.facts
    if "weights" in facts.outputs and "weights_mean" in facts.outputs:
        raise Unsupported("one call returns weights per head or their mean, not both")
    flags = {
        "is_causal": bool(call.arguments.get("is_causal", False)),
        "need_weights": wants_weights(facts),
        "average_attn_weights": "weights_mean" in facts.outputs,
    }
    inputs = tensors(call)
    signature = {**flags, "heads": facts.sizes["num_heads"], "alias": facts.alias}
    with framework_call():
        results = run(session_of(source(facts, flags, inputs), inputs, signature, facts, __file__), inputs)
    return {name: results[0 if name == "output" else 1] for name in facts.outputs}


def tensors(call: Call) -> dict[str, tuple[Tensor, str]]:
    """The inputs of the graph. Arguments that are one object are one input. Self-attention has one length, q."""
    length = "q" if call.facts.alias == "qkv" else "k"
    found = {"query": (call.query, "bqe")}
    if call.facts.alias != "qkv":
        found["key"] = (call.key, "bke")
    if call.facts.alias == "none":
        found["value"] = (call.value, "bke")
    found |= {name: (tensor, "io"[-len(tensor.shape) :]) for name, tensor in call.params.items()}
    for name in MASKS:
        if name in call.arguments:
            mask = call.arguments[name]
            axes = "b" if name == "key_padding_mask" else "nq"[3 - len(mask.shape) :]
            found[name] = (mask, axes + length)
    return found


def source(facts: Facts, flags: Mapping[str, Any], inputs: Mapping[str, Any]) -> Function:
    """The layer as a function of the inputs of the graph, which include its parameters."""
    layer = mha_layer(facts, biases="bq" in inputs).eval()

    def call_layer(given: Mapping[str, Any]) -> Any:
        query = given["query"]
        key = given.get("key", query)
        arguments = {**flags, **{name: given[name] for name in MASKS if name in given}}
        state = mha_state(given, facts.sizes)
        return torch.func.functional_call(layer, state, (query, key, given.get("value", key)), arguments)

    return call_layer
