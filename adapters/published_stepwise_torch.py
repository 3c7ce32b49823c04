"""
Attention as a published text builds it in PyTorch, step by step: W @ x, scores, softmax, context.

What this adapter translates, and nothing else:
* the text processes one sentence: its code runs once for each batch element
* sdpa: the code takes query, key and value of one head, as in the call, and runs once for each head
* mha: weights are given as (in, out); the text has (num_heads, out, in), so the columns of each head are transposed.
  The inputs are transposed to columns. The outputs of the heads are concatenated
* `M`: 0 or -inf, added to the scaled scores. The text prints it for a causal mask with as many queries as keys
"""

NAME = "published.stepwise_torch"
OPERATORS = ["sdpa", "mha"]
REQUIRES = ["torch>=2.5"]
EXTRA = "torch"
OUTPUTS = ["output", "weights"]
DTYPES = ["float64", "float32"]
DEVICES = ["cpu"]
CAPABILITIES = ["value_dim", "query_dim", "no_bias", "no_output_projection"]
DECLINES = {
    "kdim": "both sequences have one embedding dimension",
    "output_dim": "there is no output projection",
}
SLOTS = {
    "M": {"role": "mask", "takes": ["causal"], "axes": [["q", "k"]], "float": "add"},
}

from typing import Any

import torch

from conformance.bridge import Call, Declaration, Facts, Profile, Unsupported, framework_call

from ._published import needs
from ._torch import from_torch, to_torch, torch_evidence


def declare(facts: Facts) -> Declaration:
    """Declare canonical attention; each step is a separate operator."""
    return Declaration(Profile.uniform(facts.dtype), evidence="the text: one operator after the other")


def attention(head: tuple[Any, Any, Any], mask: Any) -> tuple[Any, Any]:
    """Context vectors (seq_len_q, d_v) and weights (seq_len_q, seq_len_k) of one head, from rows (seq_len, d)."""
    queries, keys, values = head
    omega = queries.matmul(keys.T)
    scaled = omega / keys.shape[-1] ** 0.5
    probs = torch.softmax(scaled if mask is None else scaled + mask, dim=-1)
    return probs.matmul(values), probs


def multihead(inputs: tuple[Any, Any, Any], weights: tuple[Any, Any, Any], mask: Any) -> tuple[Any, Any]:
    """
    Return the output (seq_len_q, num_heads * d_v) and the attention weights (num_heads, seq_len_q, seq_len_k).

    `weights` are the projection weights, each (num_heads, d', d): d is the width of the input, d' that of a head.
    """
    stacked = (rows.T.repeat(len(weight), 1, 1) for rows, weight in zip(inputs, weights, strict=True))
    projected = [torch.bmm(weight, columns).permute(0, 2, 1) for weight, columns in zip(weights, stacked, strict=True)]
    context, probs = zip(*(attention(head, mask) for head in zip(*projected, strict=True)), strict=True)
    return torch.cat(context, dim=-1), torch.stack(probs)


def matrix(call: Call) -> Any:
    """Return the mask M of the text, or None if the call has no mask."""
    sizes = call.facts.sizes
    if call.arguments and sizes["seq_len_q"] != sizes["seq_len_k"]:
        raise Unsupported("M has as many rows as columns")
    return to_torch(call.arguments["M"], "cpu") if call.arguments else None


def reply(call: Call, output: Any, probs: Any) -> dict[str, Any]:
    """Return the requested outputs."""
    found = {"output": output, "weights": probs}
    return {name: from_torch(found[name]) for name in call.facts.outputs}


def answer(call: Call) -> dict[str, Any]:
    """
    Answer a call of either operator.

    The code of the text runs once for each batch element in mha, and once for each head of each batch element in sdpa.
    """
    needs(call, *(("no_bias", "no_output_projection") if call.facts.operator == "mha" else ()))
    mask, heads = matrix(call), call.facts.sizes["num_heads"]
    tensors = [to_torch(tensor, "cpu") for tensor in (call.query, call.key, call.value)]
    params = {name: to_torch(tensor, "cpu") for name, tensor in call.params.items()}
    weights = tuple(params[name].T.reshape(heads, -1, params[name].shape[0]) for name in ("wq", "wk", "wv") if params)
    with framework_call():
        if call.facts.operator == "mha":
            found = [multihead(item, weights, mask) for item in zip(*tensors, strict=True)]
        else:
            found = [per_head(item, mask) for item in zip(*tensors, strict=True)]
    return reply(call, *(torch.stack(parts) for parts in zip(*found, strict=True)))


def per_head(item: tuple[Any, Any, Any], mask: Any) -> tuple[Any, Any]:
    """Context vectors and weights of each head of one batch element; its arrays are (num_heads, seq_len, d)."""
    context, probs = zip(*(attention(head, mask) for head in zip(*item, strict=True)), strict=True)
    return torch.stack(context), torch.stack(probs)


sdpa = mha = answer

evidence = torch_evidence
