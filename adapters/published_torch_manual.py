"""
A published PyTorch module for multi-head attention, batch first: as it was printed, and repaired.

What this adapter translates, and nothing else:
* arrays are (batch, seq_len, width), as in the call
* weights are given as (in, out); torch stores (out, in), so they are transposed
* `mask`: 1 means attend, 0 means ignore; the module compares it with 0
* [repaired]: masked logits are replaced by -1e10, the softmax runs over the keys, and views have the sequence length
* [as_printed:fill]: masked logits are replaced by +1e10
* [as_printed:axis]: the softmax runs over dim=1, the heads
* [as_printed:view]: views have length 1 instead of the sequence length
* [as_printed]: all three mistakes
"""

NAME = "published.torch_manual"
OPERATORS = ["mha"]
REQUIRES = ["torch>=2.5"]
EXTRA = "torch"
OUTPUTS = ["output"]
DTYPES = ["float64", "float32"]
DEVICES = ["cpu"]
CAPABILITIES: list[str] = []
DECLINES = {
    "float16": "the root of the width is float32",
    "bfloat16": "the root of the width is float32",
    "kdim": "all projections are Linear(hid_dim, hid_dim)",
    "query_dim": "all projections are Linear(hid_dim, hid_dim)",
    "output_dim": "all projections are Linear(hid_dim, hid_dim)",
    "no_bias": "all projections have biases",
}
SLOTS = {
    "mask": {
        "role": "mask",
        "takes": ["key_padding", "attention", "causal", "window"],
        "axes": [["b", "h", "q", "k"]],
        "broadcast": ["b", "h", "q"],
        "bool": "attend",
        "int": "attend",
    },
}
VARIANTS = {
    "repaired": {"summary": "as the text means it"},
    "as_printed:fill": {"summary": "masked logits become +1e10"},
    "as_printed:axis": {"summary": "softmax over the heads"},
    "as_printed:view": {"summary": "views of length 1"},
    "as_printed": {"summary": "all three"},
}

from typing import Any

import torch

from conformance.bridge import Call, Declaration, Deviation, Facts, Profile, framework_call

from ._published import MULTIPLE_ATTENTION
from ._torch import from_torch, to_torch, torch_evidence


def declare(facts: Facts) -> Declaration:
    """
    Declare what the text means: masked logits become very negative.

    The square root of the width of a head is a float32 tensor.
    """
    fill = (Deviation("mask_fill", "finite_minimum", MULTIPLE_ATTENTION),) if facts.masks else ()
    profile = Profile.uniform(facts.dtype).but(scale="float32")
    return Declaration(profile, fill, "the text: torch.sqrt(torch.FloatTensor([width]))")


class MultiheadAttention(torch.nn.Module):  # type: ignore[misc]  # torch is absent where types are checked
    """Multi-head attention with four Linear layers of one width; `flaws` are the printed mistakes that it keeps."""

    def __init__(self, hid_dim: int, n_heads: int, dtype: Any, flaws: frozenset[str]) -> None:
        super().__init__()
        self.n_heads, self.flaws = n_heads, flaws
        self.w_q, self.w_k, self.w_v, self.fc = (torch.nn.Linear(hid_dim, hid_dim, dtype=dtype) for _ in range(4))
        self.scale = torch.sqrt(torch.FloatTensor([hid_dim // n_heads]))

    def split(self, rows: Any) -> Any:
        """Split (batch, seq_len, hid_dim) into heads: (batch, n_heads, seq_len, hid_dim // n_heads)."""
        length = 1 if "view" in self.flaws else -1
        width = rows.shape[-1] // self.n_heads
        return rows.view(rows.shape[0], length, self.n_heads, width).permute(0, 2, 1, 3)

    def forward(self, query: Any, key: Any, value: Any, mask: Any = None) -> Any:
        """
        Return the output, (batch, seq_len_q, hid_dim).

        The mask broadcasts to (batch, n_heads, seq_len_q, seq_len_k), and 0 means ignore.
        """
        q, k, v = self.split(self.w_q(query)), self.split(self.w_k(key)), self.split(self.w_v(value))
        logits = torch.matmul(q, k.permute(0, 1, 3, 2)) / self.scale
        if mask is not None:
            logits = logits.masked_fill(mask == 0, 1e10 if "fill" in self.flaws else -1e10)
        probs = torch.softmax(logits, dim=1 if "axis" in self.flaws else -1)
        context = torch.matmul(probs, v).permute(0, 2, 1, 3).contiguous()
        length = 1 if "view" in self.flaws else -1
        return self.fc(context.view(query.shape[0], length, query.shape[-1]))


FLAWS = {
    "repaired": frozenset[str](),
    "as_printed:fill": frozenset({"fill"}),
    "as_printed:axis": frozenset({"axis"}),
    "as_printed:view": frozenset({"view"}),
    "as_printed": frozenset({"fill", "axis", "view"}),
}


def mha(call: Call) -> dict[str, Any]:
    """Answer the call with a module that holds the parameters."""
    facts = call.facts
    flaws = FLAWS[facts.variant]
    layer = MultiheadAttention(facts.sizes["query_dim"], facts.sizes["num_heads"], getattr(torch, facts.dtype), flaws)
    names = {"q": "w_q", "k": "w_k", "v": "w_v", "o": "fc"}
    state = {f"{name}.weight": to_torch(call.params["w" + letter], "cpu").T for letter, name in names.items()}
    state |= {f"{name}.bias": to_torch(call.params["b" + letter], "cpu") for letter, name in names.items()}
    layer.load_state_dict(state)
    inputs = [to_torch(tensor, "cpu") for tensor in (call.query, call.key, call.value)]
    mask = to_torch(call.arguments["mask"], "cpu") if call.arguments else None
    with torch.no_grad(), framework_call():
        output = layer.eval()(*inputs, mask)
    return {"output": from_torch(output)}


evidence = torch_evidence
