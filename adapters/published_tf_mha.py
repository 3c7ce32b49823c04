"""
A published Keras layer for multi-head attention whose call takes v, k, q, mask, in this order.

What this adapter translates, and nothing else:
* arrays are (batch, seq_len, width), as in the call; they are passed as (value, key, query, mask)
* weights are (in, out), as Dense holds them
* mask: float, 1 means ignore; the bits of a bool or int mask as float32
"""

NAME = "published.tf_mha"
OPERATORS = ["mha"]
REQUIRES = ["tensorflow>=2.18"]
EXTRA = "tf_keras"
OUTPUTS = ["output", "weights"]
DTYPES = ["float32"]
DEVICES = ["cpu"]
CAPABILITIES = ["kdim"]
DECLINES = {
    "float64": "the root of the depth is float32",
    "float16": "the root of the depth is float32",
    "bfloat16": "the root of the depth is float32",
    "query_dim": "the layer has one width, d_model, for its projections and its output",
    "output_dim": "the layer has one width, d_model, for its projections and its output",
    "no_bias": "Dense layers with biases",
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

import tensorflow as tf

from conformance.bridge import Call, framework_call

from ._published import weights
from ._published_tf import attention, declare, evidence, reply, tensors

__all__ = ["declare", "evidence", "mha"]


class MultiHeadAttention:
    """Projections, the split of d_model into heads of equal depth, attention, and one more projection."""

    def __init__(self, num_heads: int, params: dict[str, Any]) -> None:
        """Take (in, out) weights and biases by name; num_heads divides d_model."""
        self.num_heads = num_heads
        self.params = {name: tf.constant(array) for name, array in params.items()}

    def dense(self, rows: Any, letter: str) -> Any:
        """Compute rows @ w + b, on the last axis."""
        return tf.tensordot(rows, self.params["w" + letter], 1) + self.params["b" + letter]

    def split(self, rows: Any) -> Any:
        """(batch, seq_len, d_model) to (batch, num_heads, seq_len, depth)."""
        heads = tf.reshape(rows, (tf.shape(rows)[0], tf.shape(rows)[1], self.num_heads, -1))
        return tf.transpose(heads, (0, 2, 1, 3))

    def call(self, v: Any, k: Any, q: Any, mask: Any) -> tuple[Any, Any]:
        """Output (batch, seq_len_q, d_model) and weights (batch, num_heads, seq_len_q, seq_len_k)."""
        query, key, value = (self.split(self.dense(rows, letter)) for rows, letter in ((q, "q"), (k, "k"), (v, "v")))
        context, probs = attention(query, key, value, mask)
        merged = tf.reshape(tf.transpose(context, (0, 2, 1, 3)), (tf.shape(q)[0], tf.shape(q)[1], -1))
        return self.dense(merged, "o"), probs


def mha(call: Call) -> dict[str, Any]:
    """Answer the call with a layer that holds the parameters."""
    layer = MultiHeadAttention(call.facts.sizes["num_heads"], weights(call))
    query, key, value, mask = tensors(call)
    with framework_call():
        found = layer.call(value, key, query, mask)
    return reply(call, *found)
