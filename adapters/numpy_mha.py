"""
NumPy: multi-head attention as a plain loop, in float32 and float64.

What this adapter translates, and nothing else:
* arrays are (batch, seq_len, width), in the memory layout that the call requires. Weights are (in, out).
* Head h has the columns h * dim to (h + 1) * dim of the projections.
* `key_padding_mask` (batch, seq_len_k) and `attn_mask`: True or non-zero means attend; floats are added to the logits.
* `is_causal`: the causal mask is aligned top-left and combined with the other masks.
* `bias_k` and `bias_v`, then a key and a value of zeros, are appended after the projection. No mask applies to them.
* relu: applied to the projected query, key and value. residual: the query is added to the output.
* softcap: logits become softcap * tanh(logits / softcap) before the mask is applied.
* A fully masked row is zero before the output projection.
"""

NAME = "numpy.mha"
OPERATORS = ["mha"]
REQUIRES = ["numpy"]
EXTRA = ""
OUTPUTS = ["output", "weights", "weights_mean"]
DTYPES = ["float64", "float32"]
DEVICES = ["cpu"]
CAPABILITIES = [
    "grouped_heads",
    "value_dim",
    "kdim",
    "query_dim",
    "output_dim",
    "no_bias",
    "some_biases",
    "bias_kv",
    "zero_key",
    "relu",
    "residual",
    "no_output_projection",
    "softcap",
    "layout",
    "mistakes",
]
SLOTS = {
    "key_padding_mask": {
        "role": "mask",
        "takes": ["key_padding"],
        "axes": [["b", "k"]],
        "bool": "attend",
        "int": "attend",
        "float": "add",
    },
    "attn_mask": {
        "role": "mask",
        "takes": ["key_padding", "attention", "causal", "window", "additive"],
        "axes": [["q", "k"], ["b", "h", "q", "k"]],
        "broadcast": ["b", "h", "q", "k"],
        "bool": "attend",
        "int": "attend",
        "float": "add",
    },
    "is_causal": {"role": "causal", "alignment": "top_left"},
}

from typing import Any

import numpy as np

from conformance.bridge import Call, Declaration, Facts, Profile, Tensor, framework_call, strided

from ._numpy import Array, attend, linear, reply


def declare(facts: Facts) -> Declaration:
    """Declare canonical attention. Every step rounds to the dtype of the call."""
    return Declaration(
        Profile.uniform(facts.dtype), evidence="adapters/_numpy.py: every operation in the dtype of its arrays"
    )


def mha(call: Call) -> dict[str, Any]:
    """Answer the call."""
    sizes = call.facts.sizes
    shape = (sizes["batch"], sizes["num_heads"], sizes["seq_len_q"], sizes["seq_len_k"])
    with framework_call():
        mask = combined(call, shape)
        query = project(call, "q", call.query, sizes["num_heads"])
        key = append(call, "bias_k", project(call, "k", call.key, sizes["num_kv_heads"]))
        value = append(call, "bias_v", project(call, "v", call.value, sizes["num_kv_heads"]))
        mask = widened(mask, key.shape[2], causal=bool(call.arguments.get("is_causal")))
        context, weights = attend(query, key, value, call.scale, mask, None, call.softcap)
        output = context.transpose(0, 2, 1, 3).reshape(shape[0], shape[2], -1)
        if "wo" in call.params:
            output = linear(output, call.params["wo"].bits, bias(call, "bo"))
        if "residual" in call.facts.requirements:
            output = output + call.query.bits
    return reply({"output": output, "weights": weights}, call.facts.outputs)


def bias(call: Call, name: str) -> Array | None:
    """Return a bias, or None if the call does not have it."""
    return call.params[name].bits if name in call.params else None


def project(call: Call, letter: str, rows: Tensor, heads: int) -> Array:
    """Project the rows, apply ReLU if the call requires it, and split the heads: (batch, heads, seq_len, dim)."""
    flat = linear(strided(rows, call.facts.layout).view(), call.params["w" + letter].bits, bias(call, "b" + letter))
    if "relu" in call.facts.requirements:
        flat = np.maximum(flat, 0)
    return flat.reshape(*flat.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def append(call: Call, name: str, rows: Array) -> Array:
    """Append the learned key or value, then one of zeros, if the call has them; rows: (batch, heads, seq_len, dim)."""
    batch, heads, _, dim = rows.shape
    learned = call.params[name].bits.reshape(1, heads, 1, dim) if name in call.params else rows[:1, :, :0]
    zeros = np.zeros((1, heads, int("zero_key" in call.facts.requirements), dim), rows.dtype)
    return np.concatenate([rows, *(np.repeat(more, batch, axis=0) for more in (learned, zeros))], axis=2)


def widened(mask: Array, keys: int, *, causal: bool) -> Array:
    """
    Combine the mask with the causal mask, if `causal`, and extend it to `keys` keys.

    Every query attends the appended keys.
    """
    if causal:
        seen = np.tri(*mask.shape[-2:]) == 1
        mask = mask & seen if mask.dtype == bool else np.where(seen, mask, mask.dtype.type(-np.inf))
    more = np.full((*mask.shape[:-1], keys - mask.shape[-1]), mask.dtype == bool, mask.dtype)
    return np.concatenate([mask, more], axis=-1)


def combined(call: Call, shape: tuple[int, int, int, int]) -> Array:
    """
    Combine all mask arguments except is_causal into one array in the shape of the logits.

    Boolean and integer masks are combined with AND. If there are float masks, the result is their sum, with -inf where
    a boolean or integer mask does not attend.
    """
    allowed = np.ones(shape, bool)
    added = None
    for slot, mask in call.arguments.items():
        if slot == "is_causal":
            continue
        array = mask.bits[:, None, None, :] if slot == "key_padding_mask" else mask.bits
        if mask.dtype == call.query.dtype:
            added = array if added is None else added + array
        else:
            allowed = allowed & (array != 0)
    return allowed if added is None else np.where(allowed, added, added.dtype.type(-np.inf))


def evidence() -> dict[str, Any]:
    """Return the NumPy version, the device and the kernel."""
    return {"versions": {"numpy": np.__version__}, "device": "cpu", "kernel": "python loop"}
