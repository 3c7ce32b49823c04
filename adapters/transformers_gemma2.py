"""
Transformers, through eager_attention_forward of Gemma 2: attention with a softcap and grouped key heads.

What this adapter translates, and nothing else:
* arrays are (batch, num_heads, seq_len, head_dim), as in the call. The function returns the output as
  (batch, seq_len_q, num_heads, value_dim), so two axes are swapped after the call.
* `attention_mask`: floats that are added to the logits after the softcap. It is (batch, 1, 1, seq_len_k) or
  (batch, num_heads, seq_len_q, seq_len_k).
* `module`: a Gemma2Attention in eval mode. The function reads only its num_key_value_groups and training.
* `scaling`: the scale of the call, or 1/sqrt(head_dim). The layer always passes this argument, and so does the adapter.
* gradients: torch.autograd.grad computes those with respect to query, key and value from that of the output
"""

NAME = "transformers.gemma2"
OPERATORS = ["sdpa"]
REQUIRES = ["transformers>=5", "torch>=2.5"]
EXTRA = "transformers"
OUTPUTS = ["output", "weights", "gradients"]
DTYPES = ["float64", "float32", "float16", "bfloat16"]
DEVICES = ["cpu"]
CAPABILITIES = ["scale", "grouped_heads", "value_dim", "softcap", "mistakes"]
SLOTS = {
    "attention_mask": {
        "role": "mask",
        "takes": ["key_padding", "attention", "causal", "window", "additive"],
        "axes": [["b", "1", "1", "k"], ["b", "h", "q", "k"]],
        "float": "add",
    },
}
VARIANTS = {"eager": {"summary": "eager_attention_forward"}}

from functools import cache
from typing import Any

import torch
import transformers
from transformers.models.gemma2.modeling_gemma2 import Gemma2Attention, Gemma2Config, eager_attention_forward

from conformance.bridge import Call, Declaration, Facts, Profile, framework_call

from ._torch import aliased, from_torch, gradients, to_torch, torch_evidence

EVIDENCE = "modeling_gemma2.py: matmul, scale, cap, mask, softmax with dtype=torch.float32, matmul"


def declare(facts: Facts) -> Declaration:
    """Declare canonical attention, operator by operator. The softmax is in float32 for every dtype."""
    if facts.dtype in ("float16", "bfloat16"):
        return Declaration(Profile.naive(facts.dtype).but(pre=None), evidence=EVIDENCE)
    single = Profile.uniform(facts.dtype).but(score="float32", soft="float32", sum="float32", prob="float32")
    return Declaration(single, evidence=EVIDENCE)


def sdpa(call: Call) -> dict[str, Any]:
    """Answer the call."""
    facts = call.facts
    inputs = aliased(call.query, call.key, call.value, facts.alias, facts.device, facts.layout)
    for tensor in inputs:
        tensor.requires_grad_(bool(facts.gradients))
    mask = call.arguments.get("attention_mask")
    added = None if mask is None else to_torch(mask, facts.device)
    sizes = facts.sizes
    scaling = sizes["head_dim"] ** -0.5 if call.scale is None else call.scale
    with torch.set_grad_enabled(bool(facts.gradients)), framework_call():
        module = built(sizes["num_heads"] // sizes["num_kv_heads"])
        output, weights = eager_attention_forward(module, *inputs, added, scaling=scaling, softcap=call.softcap)
        found = {"output": output.transpose(1, 2), "weights": weights}
        if call.grad_output is not None:
            by = dict(zip(("query", "key", "value"), inputs, strict=True))
            found |= gradients(found["output"], by, call.grad_output, facts.device)
    return {name: from_torch(found[name]) for name in facts.outputs}


@cache
def built(groups: int) -> Any:
    """Return a layer in eval mode with `groups` query heads for each key head; its other sizes are not read."""
    config = Gemma2Config(hidden_size=2 * groups, num_attention_heads=groups, num_key_value_heads=1, head_dim=2)
    return Gemma2Attention(config, layer_idx=0).eval()


def evidence() -> dict[str, Any]:
    """Return what runs: the evidence of PyTorch and the version of Transformers."""
    found = torch_evidence()
    return {**found, "versions": found["versions"] | {"transformers": transformers.__version__}}
