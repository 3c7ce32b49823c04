"""
A published TensorFlow 1 function for multi-head attention with ReLU and a residual: as it was printed, and repaired.

What this adapter translates, and nothing else:
* arrays: they are (batch, seq_len, width), as in the call. The function takes its values from the keys, so the adapter
  takes only calls whose key and value are one object.
* weights: they are (in, out), as a dense layer stores them.
* TensorFlow 1: the dense layers and the lower triangle are written with TensorFlow 2 functions.
* `raw_keys`: the keys before positional encodings are added. A row of zeros means padding. The adapter passes rows of
  zeros for the keys that the key padding mask masks, and rows of ones for all others.
* `causality`: a lower triangular mask. It needs as many queries as keys.
* [repaired]: heads are split, and raw keys are summed, along the last axis. Logits are divided by sqrt(head_dim).
  Masked logits become -2**32 + 1.
* [as_printed:fill]: masked logits become 2**33. [as_printed:axis]: heads are split, and raw keys are summed, along
  axis 1. [as_printed:scale]: logits are divided by sqrt(seq_len_k). [as_printed]: all three.
"""

NAME = "published.tf1_manual"
OPERATORS = ["mha"]
REQUIRES = ["tensorflow>=2.18"]
EXTRA = "tf_keras"
OUTPUTS = ["output"]
DTYPES = ["float64", "float32"]
DEVICES = ["cpu"]
CAPABILITIES = ["relu", "residual", "no_output_projection"]
DECLINES = {
    "float16": "2**33 is no float16",
    "bfloat16": "of 2017, before TensorFlow had it",
    "kdim": "one number of units for all",
    "query_dim": "the residual has the width of all heads",
    "output_dim": "the residual has the width of all heads",
    "value_dim": "one number of units for all",
    "no_bias": "dense has biases",
}
SLOTS = {
    "raw_keys": {"role": "mask", "takes": ["key_padding"], "axes": [["b", "k"]], "bool": "attend", "int": "attend"},
    "causality": {"role": "causal", "alignment": "top_left"},
}
VARIANTS = {
    "repaired": {"summary": "as the text means it"},
    "as_printed:fill": {"summary": "masked logits become 2**33"},
    "as_printed:axis": {"summary": "splits and sums along axis 1, the positions"},
    "as_printed:scale": {"summary": "scale by the number of keys"},
    "as_printed": {"summary": "all three"},
}

from typing import Any

import numpy as np
import tensorflow as tf

from conformance.bridge import Call, Declaration, Deviation, Facts, Profile, Unsupported, framework_call

from ._arrays import to_numpy
from ._published import MULTIPLE_ATTENTION, needs, weights
from ._published_tf import evidence

__all__ = ["declare", "evidence", "mha"]

FLAWS = {
    "repaired": frozenset[str](),
    "as_printed:fill": frozenset({"fill"}),
    "as_printed:axis": frozenset({"axis"}),
    "as_printed:scale": frozenset({"scale"}),
    "as_printed": frozenset({"fill", "axis", "scale"}),
}


def declare(facts: Facts) -> Declaration:
    """Declare what the text means: masked logits become very negative."""
    fill = (Deviation("mask_fill", "finite_minimum", MULTIPLE_ATTENTION),) if facts.masks else ()
    return Declaration(Profile.uniform(facts.dtype), fill, "the text: one operator after the other")


def dense(rows: Any, kernel: Any, bias: Any) -> Any:
    """Return ReLU(rows @ kernel + bias), with the product over the last axis of rows."""
    return tf.nn.relu(tf.tensordot(rows, kernel, 1) + bias)


def multihead(
    inputs: tuple[Any, Any, Any], params: dict[str, Any], heads: int, flaws: frozenset[str], *, causality: bool
) -> Any:
    """
    Return the output (batch, seq_len_q, units).

    inputs: raw keys, queries and keys, each (batch, seq_len, units). flaws: the printed mistakes that are kept.

    The heads are concatenated along the batch axis: first the whole batch of head 0, then that of head 1, and so on.
    """
    raw_keys, queries, keys = inputs
    axis = 1 if "axis" in flaws else -1
    fill = 2.0**33 if "fill" in flaws else -(2.0**32) + 1
    pairs = ((queries, "q"), (keys, "k"), (keys, "v"))
    query, key, value = (dense(rows, params["w" + letter], params["b" + letter]) for rows, letter in pairs)
    query, key, value = (tf.concat(tf.split(rows, heads, axis=axis), axis=0) for rows in (query, key, value))
    logits = tf.matmul(query, tf.transpose(key, [0, 2, 1])) / key.shape[1 if "scale" in flaws else -1] ** 0.5
    seen = tf.tile(tf.sign(tf.abs(tf.reduce_sum(raw_keys, axis=axis))), [heads, 1])
    seen = tf.tile(tf.expand_dims(seen, 1), [1, tf.shape(queries)[1], 1])
    logits = tf.where(tf.equal(seen, 0), tf.ones_like(logits) * fill, logits)
    if causality:
        triangle = tf.linalg.LinearOperatorLowerTriangular(tf.ones_like(logits[0])).to_dense()
        earlier = tf.tile(tf.expand_dims(triangle, 0), [tf.shape(logits)[0], 1, 1])
        logits = tf.where(tf.equal(earlier, 0), tf.ones_like(logits) * fill, logits)
    outputs = tf.matmul(tf.nn.softmax(logits), value)
    return tf.concat(tf.split(outputs, heads, axis=0), axis=2) + queries


def mha(call: Call) -> dict[str, Any]:
    """Answer the call."""
    facts, arguments = call.facts, call.arguments
    needs(call, "relu", "residual", "no_output_projection")
    if facts.alias not in ("kv", "qkv"):
        raise Unsupported("the text takes its values from the keys")
    causality = bool(arguments.get("causality", False))
    if causality and facts.sizes["seq_len_q"] != facts.sizes["seq_len_k"]:
        raise Unsupported("LinearOperatorTriL is a square matrix")
    query, key = to_numpy(call.query), to_numpy(call.key)
    raw = np.ones_like(key) * (arguments["raw_keys"].bits[..., None] if "raw_keys" in arguments else 1)
    inputs = (tf.constant(raw.astype(key.dtype)), tf.constant(query), tf.constant(key))
    params = {name: tf.constant(array) for name, array in weights(call).items()}
    with framework_call():
        output = multihead(inputs, params, facts.sizes["num_heads"], FLAWS[facts.variant], causality=causality)
    return {"output": output.numpy()}
