"""
PyTorch, through torch.nn.MultiheadAttention.

What this adapter translates, and nothing else:
* arrays are (batch, seq_len, width), with batch_first=True; [seq_first] swaps the batch axis and the length axis
* weights are given as (in, out); torch stores (out, in), so they are transposed. wq, wk and wv are stacked in
  in_proj_weight, or stay separate if kdim or vdim differs from query_dim. Their biases are stacked in in_proj_bias
* `key_padding_mask` and `attn_mask`: True means ignore; floats are added to the logits
* `attn_mask` is (batch * num_heads, seq_len_q, seq_len_k) if batch elements or heads have different masks
* `is_causal`: only a hint that `attn_mask` is causal
* `key_padding_mask` and `attn_mask` have the same element type: "If both attn_mask and key_padding_mask are supplied,
  their types should match" (MHA_DOCS)
* `need_weights` is True if the call requests weights or their mean; `average_attn_weights` is True for the mean
* query, key and value get the memory layout of the call by torch.as_strided
* bias_k and bias_v, the parameters of `add_bias_kv`, are reshaped to (1, 1, width); `add_zero_attn` is set if the call
  needs it
* `dropout` is passed to the layer, where it is inactive, except in [train]: there it would be random, so it is 0
* gradients: torch.autograd.grad with respect to query, key, value and the parameters, from the given gradient of the
  output
* the layer is in eval mode, with gradients disabled; [train] is training mode, with gradients enabled and dropout 0
* [unbatched] calls the layer once for each batch element, without the batch axis
* [aot_eager] calls the layer under torch.compile, and passes None for absent masks
"""

NAME = "torch.mha"
OPERATORS = ["mha"]
REQUIRES = ["torch>=2.5"]
EXTRA = "torch"
OUTPUTS = ["output", "weights", "weights_mean"]
DTYPES = ["float64", "float32", "float16", "bfloat16"]
DEVICES = ["cpu", "cuda"]
CAPABILITIES = ["kdim", "no_bias", "bias_kv", "zero_key", "layout", "dropout", "mistakes", "mistaken_heads"]
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
    "eval": {
        "summary": "inference; takes the fast path for self attention",
    },
    "train": {
        "summary": "training mode, dropout 0",
        "CAPABILITIES": ["kdim", "no_bias", "bias_kv", "zero_key", "layout", "mistakes", "mistaken_heads"],
        "OUTPUTS": ["output", "weights", "weights_mean", "gradients"],
    },
    "seq_first": {"summary": "inference with batch_first=False"},
    "unbatched": {"summary": "inference, each item in a call of its own without a batch axis"},
    "aot_eager": {
        "summary": "inference under torch.compile(fullgraph=True, backend='aot_eager'): traced, not by Inductor",
        "tier": "thorough",
    },
}

from typing import Any

import torch

from conformance.bridge import Call, Declaration, Facts, Unsupported, framework_call

from ._torch import (
    aliased,
    from_torch,
    fused_profile,
    gradients,
    mha_gradients,
    mha_layer,
    mha_state,
    stepwise_profile,
    to_torch,
    torch_devices,
    torch_evidence,
    wants_weights,
)
from ._torch_calls import CALLS, call_layer


def declare(facts: Facts) -> Declaration:
    """Declare canonical attention: no page documents fully masked rows. The profile depends on the path."""
    if takes_fast_path(facts) or wants_weights(facts):
        return Declaration(
            stepwise_profile(facts.dtype), evidence="torch/nn/functional.py: q scaled, bmm, softmax, bmm"
        )
    fused = fused_profile(facts.dtype, facts.device)
    return Declaration(fused, evidence="torch/nn/functional.py: scaled_dot_product_attention")


def takes_fast_path(facts: Facts) -> bool:
    """Whether the call meets the conditions of the inference fast path (torch/nn/modules/activation.py)."""
    return (
        facts.variant == "eval"
        and facts.alias == "qkv"
        and facts.sizes["num_heads"] % 2 == 0
        and not {"bias_kv", "zero_key", "no_bias"} & set(facts.requirements)
        and all(mask.element != "float" for mask in facts.masks)
    )


def mha(call: Call) -> dict[str, Any]:
    """Answer the call with a module that holds the parameters."""
    facts = call.facts
    if "weights" in facts.outputs and "weights_mean" in facts.outputs:
        raise Unsupported("one call returns weights per head or their mean, not both")
    batch_first = facts.variant != "seq_first"
    params = {name: to_torch(tensor, facts.device) for name, tensor in call.params.items()}
    inputs = aliased(call.query, call.key, call.value, facts.alias, facts.device, facts.layout)
    masks = {
        name: to_torch(call.arguments[name], facts.device)
        for name in ("key_padding_mask", "attn_mask")
        if name in call.arguments
    }
    arguments = {
        **masks,
        "is_causal": bool(call.arguments.get("is_causal", False)),
        "need_weights": wants_weights(facts),
        "average_attn_weights": "weights_mean" in facts.outputs,
    }
    for tensor in inputs:
        tensor.requires_grad_(bool(facts.gradients))
    with torch.set_grad_enabled(facts.variant == "train"), framework_call():
        layer = mha_layer(facts, biases="bq" in call.params, dropout=call.dropout_p or 0.0, batch_first=batch_first)
        layer.load_state_dict(mha_state(params, facts.sizes))
        layer.train(facts.variant == "train")
        output, weights = CALLS.get(facts.variant, call_layer)(layer, inputs, arguments)
        found = {"output": output, "weights": weights, "weights_mean": weights}
        if call.grad_output is not None:
            by = dict(zip(("query", "key", "value"), inputs, strict=True)) | dict(layer.named_parameters())
            slopes = gradients(output, by, call.grad_output, facts.device)
            found |= slopes | mha_gradients(slopes)
    return {name: from_torch(found[name]) for name in facts.outputs}


devices = torch_devices
evidence = torch_evidence
