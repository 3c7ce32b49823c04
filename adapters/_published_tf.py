"""The attention function of a TensorFlow tutorial that was copied many times, and helpers that its adapters share."""

import os
from typing import Any

import numpy as np
import tensorflow as tf

from conformance.bridge import Call, Declaration, Deviation, Facts, Profile

from ._arrays import to_numpy
from ._onednn import libraries
from ._published import TUTORIAL
from ._versions import version

tf.config.set_visible_devices([], "GPU")


def attention(query: Any, key: Any, value: Any, mask: Any) -> tuple[Any, Any]:
    """
    Return the output and the weights for (..., seq_len, depth) tensors.

    mask: None, or floats that broadcast to (..., seq_len_q, seq_len_k). A value of 1 means ignore.
    """
    depth = tf.cast(tf.shape(key)[-1], tf.float32)
    logits = tf.matmul(query, key, transpose_b=True) / tf.math.sqrt(depth)
    if mask is not None:
        logits += mask * -1e9
    probs = tf.nn.softmax(logits, axis=-1)
    return tf.matmul(probs, value), probs


def tensors(call: Call) -> tuple[Any, Any, Any, Any]:
    """Return query, key, value and mask as float32 tensors. The mask is None if the call has no mask."""
    query, key, value = (tf.constant(to_numpy(tensor)) for tensor in (call.query, call.key, call.value))
    mask = tf.cast(tf.constant(to_numpy(call.arguments["mask"])), tf.float32) if call.arguments else None
    return query, key, value, mask


def reply(call: Call, output: Any, probs: Any) -> dict[str, Any]:
    """Return the requested outputs as arrays by name."""
    found = {"output": output, "weights": probs}
    return {name: found[name].numpy() for name in call.facts.outputs}


def declare(facts: Facts) -> Declaration:
    """Declare that -1e9 is added to masked logits and that each step is a separate operator."""
    fill = (Deviation("mask_fill", "minus_1e9", TUTORIAL),) if facts.masks else ()
    return Declaration(Profile.uniform(facts.dtype), fill, "adapters/_published_tf.py: one operator after the other")


def evidence() -> dict[str, Any]:
    """Return the versions, the device, the kernel libraries and the thread setting of this process."""
    return {
        "versions": {"tensorflow": version("tensorflow"), "numpy": np.__version__},
        "device": "cpu",
        "libraries": libraries(),
        "environment": {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS")},
    }
