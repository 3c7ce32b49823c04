"""
A published TensorFlow function for scaled dot-product attention. It adds mask * -1e9 to the logits.

What this adapter translates, and nothing else:
* arrays: they are (batch, num_heads, seq_len, depth), as in the call.
* `mask`: floats; 1 means ignore. A bool or int mask is cast to float32.
"""

NAME = "published.tf_sdpa"
OPERATORS = ["sdpa"]
REQUIRES = ["tensorflow>=2.18"]
EXTRA = "tf_keras"
OUTPUTS = ["output", "weights"]
DTYPES = ["float32"]
DEVICES = ["cpu"]
CAPABILITIES = ["value_dim"]
DECLINES = {
    "float64": "the root of the depth is float32",
    "float16": "the root of the depth is float32",
    "bfloat16": "the root of the depth is float32",
}
SLOTS = {
    "mask": {
        "role": "mask",
        "takes": ["key_padding", "attention", "causal", "window"],
        "axes": [["b", "h", "q", "k"]],
        "broadcast": ["b", "h", "q"],
        "bool": "ignore",
        "int": "ignore",
    },
}

from typing import Any

from conformance.bridge import Call, framework_call

from ._published_tf import attention, declare, evidence, reply, tensors

__all__ = ["declare", "evidence", "sdpa"]


def sdpa(call: Call) -> dict[str, Any]:
    """Answer the call with the attention function of the tutorial."""
    inputs = tensors(call)
    with framework_call():
        found = attention(*inputs)
    return reply(call, *found)
