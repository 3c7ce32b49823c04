"""
PyTorch, through torch.nn.attention.flex_attention.flex_attention, without torch.compile: unfused.

What this adapter translates, and nothing else:
* arrays are (batch, num_heads, seq_len, head_dim), as in the call
* `block_mask`: create_block_mask makes it from a mask_mod that looks up a boolean array, in which True means attend
* `score_mod`: if the call has a softcap, it caps the scaled product by tanh. If the call has an additive mask, it then
  adds the number that it looks up in the mask
* query, key and value get the memory layout of the call by torch.as_strided
* fewer key heads than query heads: enable_gqa=True
* gradients: torch.autograd.grad with respect to query, key and value, from the given gradient of the output
* torch.compiler.reset discards what PyTorch traced for earlier calls. Otherwise PyTorch may raise an error when it
  explains why it traces a call again
"""

NAME = "torch.flex_sdpa"
OPERATORS = ["sdpa"]
REQUIRES = ["torch>=2.5"]
EXTRA = "torch"
OUTPUTS = ["output", "gradients"]
DTYPES = ["float64", "float32", "float16", "bfloat16"]
DEVICES = ["cpu", "cuda"]
CAPABILITIES = ["scale", "grouped_heads", "value_dim", "softcap", "layout", "mistakes"]
SLOTS = {
    "block_mask": {
        "role": "mask",
        "takes": ["key_padding", "attention", "causal", "window"],
        "axes": [["b", "h", "q", "k"]],
        "bool": "attend",
    },
    "score_mod": {"role": "mask", "takes": ["additive"], "axes": [["b", "h", "q", "k"]], "float": "add"},
}

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from conformance.bridge import Call, Declaration, Facts, Profile, framework_call

from ._torch import aliased, from_torch, gradients, to_torch, torch_devices, torch_evidence


def declare(facts: Facts) -> Declaration:
    """Declare canonical attention. In half precision, products and softmax are float32, and the weights are rounded."""
    return Declaration(
        Profile.ordinary(facts.dtype), evidence="torch/_higher_order_ops/flex_attention.py: math_attention"
    )


def sdpa(call: Call) -> dict[str, Any]:
    """Answer the call."""
    facts = call.facts
    torch.compiler.reset()
    query, key, value = aliased(call.query, call.key, call.value, facts.alias, facts.device, facts.layout)
    masks = {name: to_torch(tensor, facts.device) for name, tensor in call.arguments.items()}
    arguments: dict[str, Any] = {
        "scale": call.scale,
        "enable_gqa": facts.sizes["num_kv_heads"] != facts.sizes["num_heads"],
    }
    if "score_mod" in masks or call.softcap is not None:
        arguments["score_mod"] = bending_and_adding(call.softcap, masks.get("score_mod"))
    if "block_mask" in masks:
        allowed = masks["block_mask"]
        arguments["block_mask"] = create_block_mask(looking_up(allowed), *allowed.shape, device=facts.device)
    inputs = {"query": query, "key": key, "value": value}
    for tensor in inputs.values():
        tensor.requires_grad_(bool(facts.gradients))
    with torch.set_grad_enabled(bool(facts.gradients)), framework_call():
        found = {"output": flex_attention(query, key, value, **arguments)}
        if call.grad_output is not None:
            found |= gradients(found["output"], inputs, call.grad_output, facts.device)
    return {name: from_torch(found[name]) for name in facts.outputs}


def bending_and_adding(softcap: float | None, bias: Any) -> Callable[..., Any]:
    """
    A score_mod that caps the score by tanh, then adds the number that it looks up in `bias`.

    `bias` is an array (batch, num_heads, seq_len_q, seq_len_k). It may be None, and so may `softcap`.
    """

    def score_mod(score: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        if softcap is not None:
            score = softcap * torch.tanh(score / softcap)
        return score if bias is None else score + bias[b, h, i, j]

    return score_mod


def looking_up(allowed: Any) -> Callable[..., Any]:
    """A mask_mod that looks up an array (batch, num_heads, seq_len_q, seq_len_k)."""

    def mask_mod(b: Any, h: Any, i: Any, j: Any) -> Any:
        return allowed[b, h, i, j]

    return mask_mod


devices = torch_devices
evidence = torch_evidence
