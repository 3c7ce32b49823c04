"""
PyTorch, through torch.nn.functional.scaled_dot_product_attention.

What this adapter translates, and nothing else:
* arrays are (batch, num_heads, seq_len, head_dim), as in the call
* `attn_mask`: True means attend; floats are added to the logits, as in the call
* `is_causal`: aligned at the top left; "An error is thrown if both attn_mask and is_causal are set" (SDPA_DOCS)
* query, key and value get the memory layout of the call by torch.as_strided
* gradients: torch.autograd.grad with respect to query, key and value, from the given gradient of the output
* fewer key heads than query heads: enable_gqa=True
* [math], [flash], [efficient] and [cudnn] select one kernel with sdpa_kernel; [default] leaves the choice to PyTorch
* on CUDA, [flash], [efficient] and [cudnn] take only calls for which torch.backends.cuda.can_use_* returns True
* [causal_bias]: PyTorch chooses the kernel, as in [default]. A causal mask is causal_upper_left or causal_lower_right
  of torch.nn.attention.bias, passed as `attn_mask`
"""

NAME = "torch.sdpa"
OPERATORS = ["sdpa"]
REQUIRES = ["torch>=2.5"]  # the first release with enable_gqa
EXTRA = "torch"
OUTPUTS = ["output", "gradients"]
DTYPES = ["float64", "float32", "float16", "bfloat16"]
DEVICES = ["cpu", "cuda"]
CAPABILITIES = ["scale", "grouped_heads", "value_dim", "layout", "mistakes"]
SLOTS = {
    "attn_mask": {
        "role": "mask",
        "takes": ["key_padding", "attention", "causal", "window", "additive"],
        "axes": [["q", "k"], ["b", "h", "q", "k"]],
        "broadcast": ["b", "h", "q", "k"],
        "bool": "attend",
        "float": "add",
    },
    "is_causal": {"role": "causal", "alignment": "top_left", "excludes": ["attn_mask"]},
}
VARIANTS = {
    "math": {"summary": "SDPBackend.MATH"},
    "flash": {"summary": "SDPBackend.FLASH_ATTENTION"},
    "efficient": {"summary": "SDPBackend.EFFICIENT_ATTENTION", "DEVICES": ["cuda"]},
    "cudnn": {"summary": "SDPBackend.CUDNN_ATTENTION", "DEVICES": ["cuda"]},
    "default": {"summary": "the kernel that PyTorch chooses"},
    "causal_bias": {
        "summary": "causal_upper_left and causal_lower_right in place of is_causal",
        "SLOTS": {
            "attn_mask": {
                "role": "mask",
                "takes": ["key_padding", "attention", "causal", "window", "additive"],
                "axes": [["q", "k"], ["b", "h", "q", "k"]],
                "broadcast": ["b", "h", "q", "k"],
                "bool": "attend",
                "float": "add",
            },
            "causal_upper_left": {"role": "causal", "alignment": "top_left", "excludes": ["attn_mask"]},
            "causal_lower_right": {"role": "causal", "alignment": "bottom_right", "excludes": ["attn_mask"]},
        },
    },
}

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.backends import cuda
from torch.nn.attention import SDPBackend, bias, sdpa_kernel

from conformance.bridge import Call, Declaration, Facts, Unsupported, framework_call

from ._torch import (
    SDPA_DOCS,
    aliased,
    from_torch,
    fused_profile,
    gradients,
    math_profile,
    to_torch,
    torch_devices,
    torch_evidence,
)

TARGET = torch.nn.functional.scaled_dot_product_attention
KERNELS = {
    "math": SDPBackend.MATH,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}
# Variant -> the function that says whether its kernel can take a call on CUDA.
CAN_USE = {
    "flash": cuda.can_use_flash_attention,
    "efficient": cuda.can_use_efficient_attention,
    "cudnn": cuda.can_use_cudnn_attention,
}
BIASES = {"causal_upper_left": bias.causal_upper_left, "causal_lower_right": bias.causal_lower_right}


def declare(facts: Facts) -> Declaration:
    """Declare canonical attention. In half precision, the kernels round the weights to different dtypes."""
    if facts.variant == "math":
        return Declaration(math_profile(facts.dtype), evidence=f"intermediates in float32: {SDPA_DOCS}")
    return Declaration(fused_profile(facts.dtype, facts.device), evidence="measured: docs/tolerance.md, section 5")


def sdpa(call: Call) -> dict[str, Any]:
    """Answer the call with the kernel of the variant."""
    facts = call.facts
    query, key, value = aliased(call.query, call.key, call.value, facts.alias, facts.device, facts.layout)
    masks = [make(query.shape[-2], key.shape[-2]) for name, make in BIASES.items() if name in call.arguments]
    masks += [to_torch(call.arguments[name], facts.device) for name in ("attn_mask",) if name in call.arguments]
    if len(masks) > 1:
        raise Unsupported("a causal bias stands in attn_mask: one call has one of the two")
    arguments = {
        "attn_mask": masks[0] if masks else None,
        "is_causal": bool(call.arguments.get("is_causal", False)),
        "scale": call.scale,
        "enable_gqa": facts.sizes["num_kv_heads"] != facts.sizes["num_heads"],
    }
    inputs = {"query": query, "key": key, "value": value}
    for tensor in inputs.values():
        tensor.requires_grad_(bool(facts.gradients))
    if facts.device == "cuda" and facts.variant in CAN_USE:
        _decline_unless_usable(facts.variant, inputs, arguments)
    with kernel(facts.variant), framework_call():
        found = {"output": TARGET(query, key, value, **arguments)}
        if call.grad_output is not None:
            found |= gradients(found["output"], inputs, call.grad_output, facts.device)
    return {name: from_torch(found[name]) for name in facts.outputs}


def kernel(variant: str) -> AbstractContextManager[None]:
    """A context that selects the kernel of the variant, or leaves the choice to PyTorch."""
    return sdpa_kernel(KERNELS[variant]) if variant in KERNELS else nullcontext()


def _decline_unless_usable(variant: str, inputs: dict[str, Any], arguments: dict[str, Any]) -> None:
    """Raise Unsupported if PyTorch says that the kernel cannot take the call on CUDA."""
    mask, is_causal, enable_gqa = (arguments[name] for name in ("attn_mask", "is_causal", "enable_gqa"))
    params = cuda.SDPAParams(*inputs.values(), mask, 0.0, is_causal, enable_gqa)
    with kernel(variant):
        usable = CAN_USE[variant](params)
    if not usable:
        raise Unsupported(f"this kernel cannot take the call: torch.backends.cuda.{CAN_USE[variant].__name__} is False")


devices = torch_devices
evidence = torch_evidence
