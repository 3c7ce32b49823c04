"""
NumPy: scaled dot product attention as a plain loop, in float32 and float64.

What this adapter translates, and nothing else:
* arrays are (batch, num_heads, seq_len, head_dim), as in the call, in the memory layout that the call requires.
* `attn_mask`: True or non-zero means attend; floats are added to the logits.
* `is_causal`: the causal mask is aligned top-left, shifted by the length of a past, and combined with `attn_mask`.
* The past is concatenated before key and value. The results are the outputs `present_key` and `present_value`.
* softcap: logits become softcap * tanh(logits / softcap) before the mask is applied.
* A fully masked row is zero.
"""

NAME = "numpy.sdpa"
OPERATORS = ["sdpa"]
REQUIRES = ["numpy"]
EXTRA = ""
OUTPUTS = ["output", "weights", "weights_mean", "present"]
DTYPES = ["float64", "float32"]
DEVICES = ["cpu"]
CAPABILITIES = ["scale", "grouped_heads", "value_dim", "softcap", "layout", "past", "mistakes"]
SLOTS = {
    "attn_mask": {
        "role": "mask",
        "takes": ["key_padding", "attention", "causal", "window", "additive"],
        "axes": [["b", "h", "q", "k"]],
        "broadcast": ["b", "h", "q"],
        "bool": "attend",
        "int": "attend",
        "float": "add",
    },
    "is_causal": {"role": "causal", "alignment": "past"},
}

from typing import Any

import numpy as np

from conformance.bridge import Call, Declaration, Facts, Profile, framework_call, strided

from ._numpy import attend, reply


def declare(facts: Facts) -> Declaration:
    """Declare canonical attention. Every step rounds to the dtype of the call."""
    return Declaration(
        Profile.uniform(facts.dtype), evidence="adapters/_numpy.py: every operation in the dtype of its arrays"
    )


def sdpa(call: Call) -> dict[str, Any]:
    """Answer the call."""
    query, key, value = (strided(each, call.facts.layout).view() for each in (call.query, call.key, call.value))
    shift = 0
    if call.past_key is not None and call.past_value is not None:
        shift = call.past_key.shape[2]
        key = np.concatenate([call.past_key.bits, key], axis=2)
        value = np.concatenate([call.past_value.bits, value], axis=2)
    mask = call.arguments.get("attn_mask")
    with framework_call():
        full = None
        if mask is not None:
            array = mask.bits if mask.dtype == call.query.dtype else mask.bits != 0
            full = np.broadcast_to(array, (*query.shape[:3], key.shape[2]))
        output, weights = attend(
            query, key, value, call.scale, full, shift if "is_causal" in call.arguments else None, call.softcap
        )
    return reply({"output": output, "weights": weights, "present_key": key, "present_value": value}, call.facts.outputs)


def evidence() -> dict[str, Any]:
    """Return the NumPy version, the device and the kernel."""
    return {"versions": {"numpy": np.__version__}, "device": "cpu", "kernel": "python loop"}
