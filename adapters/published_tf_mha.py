"""
A published Keras layer for multi-head attention whose call method takes v, k, q, mask, in this order.

What this adapter translates, and nothing else:
* arrays: they are (batch, seq_len, width), as in the call. They are passed in the order value, key, query, mask.
* weights: they are (in, out), as a Dense layer stores them.
* `mask`: floats; 1 means ignore. A bool or int mask is cast to float32.
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
    """Input projections, a split of d_model into heads of equal depth, attention, and an output projection."""

    def __init__(self, num_heads: int, params: dict[str, Any]) -> None:
        """Store the (in, out) weights and the biases by name. num_heads must divide d_model."""
        self.num_heads = num_heads
        self.params = {name: tf.constant(array) for name, array in params.items()}

    def dense(self, rows: Any, letter: str) -> Any:
        """Return rows @ w + b, with the product over the last axis of rows."""
        return tf.tensordot(rows, self.params["w" + letter], 1) + self.params["b" + letter]

    def split(self, rows: Any) -> Any:
        """Split rows (batch, seq_len, d_model) into heads: (batch, num_heads, seq_len, depth)."""
        heads = tf.reshape(rows, (tf.shape(rows)[0], tf.shape(rows)[1], self.num_heads, -1))
        return tf.transpose(heads, (0, 2, 1, 3))

    def call(self, v: Any, k: Any, q: Any, mask: Any) -> tuple[Any, Any]:
        """Return the output (batch, seq_len_q, d_model) and weights (batch, num_heads, seq_len_q, seq_len_k)."""
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
