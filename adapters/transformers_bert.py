"""
Transformers, through BertSelfAttention, or BertCrossAttention if key and value are not the same object as query.

What this adapter translates, and nothing else:
* arrays are (batch, seq_len, width), as in the call. The layers have one input for key and value.
* weights are given as (in, out) and torch stores (out, in), so they are transposed
* `attention_mask`: (batch, 1, 1, seq_len_k) or (batch, num_heads, seq_len_q, seq_len_k). Floats are added to the
  logits. [sdpa] passes the mask to PyTorch, so True means attend. For [eager], the meaning of True is not documented.
* `is_causal`: an argument of the layer's constructor, top-left aligned. Only [sdpa] reads it.
* the output projection is BertSelfOutput.dense. The residual and the norm that follow it in BERT are left out.
* the layer is in eval mode and has the dropout probability of the call
* [eager] returns weights if they are requested
"""

NAME = "transformers.bert"
OPERATORS = ["mha"]
REQUIRES = ["transformers>=5", "torch>=2.5"]
EXTRA = "transformers"
OUTPUTS = ["output"]
DTYPES = ["float64", "float32", "float16", "bfloat16"]
DEVICES = ["cpu"]
CAPABILITIES = ["no_output_projection", "dropout", "mistakes"]
SLOTS = {
    "attention_mask": {
        "role": "mask",
        "takes": ["key_padding", "attention", "causal", "window", "additive"],
        "axes": [["b", "1", "1", "k"], ["b", "h", "q", "k"]],
        "bool": "undocumented",
        "float": "add",
    },
}
VARIANTS = {
    "eager": {"summary": "attn_implementation='eager'", "OUTPUTS": ["output", "weights"]},
    "sdpa": {
        "summary": "attn_implementation='sdpa'",
        "SLOTS": {
            "attention_mask": {
                "role": "mask",
                "takes": ["key_padding", "attention", "causal", "window", "additive"],
                "axes": [["b", "1", "1", "k"], ["b", "h", "q", "k"]],
                "bool": "attend",
                "float": "add",
            },
            "is_causal": {"role": "causal", "alignment": "top_left"},
        },
    },
}

from typing import Any

import torch
import transformers
from transformers.models.bert.modeling_bert import BertConfig, BertCrossAttention, BertSelfAttention, BertSelfOutput

from conformance.bridge import Call, Declaration, Facts, Profile, Unsupported, framework_call

from ._torch import from_torch, stepwise_profile, to_torch, torch_evidence

PARTS = {"q": "query", "k": "key", "v": "value"}


def declare(facts: Facts) -> Declaration:
    """Declare canonical attention. [eager] runs operator by operator; [sdpa] calls the function of PyTorch."""
    if facts.variant == "eager":
        return Declaration(stepwise_profile(facts.dtype), evidence="modeling_bert.py: matmul, scale, softmax, matmul")
    return Declaration(Profile.ordinary(facts.dtype), evidence="integrations/sdpa_attention.py: torch's")


def mha(call: Call) -> dict[str, Any]:
    """Answer the call with layers that have the parameters of the call."""
    facts = call.facts
    if facts.alias == "none":
        raise Unsupported("the layer has one input for key and value: they must be one object")
    params = {name: to_torch(tensor, facts.device) for name, tensor in call.params.items()}
    layer, after = built(call, params)
    query = to_torch(call.query, facts.device)
    arguments: dict[str, Any] = {}
    if facts.alias == "kv":
        arguments["encoder_hidden_states"] = to_torch(call.key, facts.device)
    if "attention_mask" in call.arguments:
        arguments["attention_mask"] = to_torch(call.arguments["attention_mask"], facts.device)
    with torch.no_grad(), framework_call():
        output, weights = layer(query, **arguments)
        output = output if after is None else after(output)
    return {name: from_torch({"output": output, "weights": weights}[name]) for name in facts.outputs}


def built(call: Call, params: dict[str, Any]) -> tuple[Any, Any]:
    """Return the attention layer and the output projection, which is None if the call has none."""
    facts = call.facts
    config = BertConfig(
        hidden_size=facts.sizes["query_dim"],
        num_attention_heads=facts.sizes["num_heads"],
        attention_probs_dropout_prob=call.dropout_p or 0.0,
        attn_implementation=facts.variant,
    )
    kind = BertSelfAttention if facts.alias == "qkv" else BertCrossAttention
    dtype = getattr(torch, facts.dtype)
    layer = kind(config, is_causal=bool(call.arguments.get("is_causal", False))).to(dtype).eval()
    layer.load_state_dict(
        {f"{part}.weight": params[f"w{letter}"].T for letter, part in PARTS.items()}
        | {f"{part}.bias": params[f"b{letter}"] for letter, part in PARTS.items()}
    )
    if "wo" not in params:
        return layer, None
    after = BertSelfOutput(config).dense.to(dtype)
    after.load_state_dict({"weight": params["wo"].T, "bias": params["bo"]})
    return layer, after


def evidence() -> dict[str, Any]:
    """Return what runs: the evidence of PyTorch and the version of Transformers."""
    found = torch_evidence()
    return {**found, "versions": found["versions"] | {"transformers": transformers.__version__}}
