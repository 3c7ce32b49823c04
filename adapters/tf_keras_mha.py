"""
Keras 2, through tf_keras.layers.MultiHeadAttention.

What this adapter translates, and nothing else:
* arrays: (batch, seq_len, width), as in the call. The adapter passes query, value and key by name.
* weights: reshaped from (in, num_heads * dim) to (in, num_heads, dim); the biases and the output kernel likewise
* `attention_mask`: True, or a non-zero integer, means attend. It is (seq_len_q, seq_len_k), (batch, seq_len_q,
  seq_len_k) or (batch, num_heads, seq_len_q, seq_len_k).
* `use_causal_mask`: the causal mask is aligned to the top left.
* attached masks: a Lambda layer attaches them to query, value and key, in the same call (in [function], compiled too).
* `dropout`: passed to the constructor. It is inactive outside training.
* `return_attention_scores`: True if the call requests the weights.
* gradients: of query, key, value, kernels and biases, from the gradient of the output, with tf.GradientTape.
* [eager] runs operator by operator, [function] under tf.function, [robust] with softmax_robust_masking=True.
"""

NAME = "tf_keras.mha"
OPERATORS = ["mha"]
REQUIRES = ["tf_keras>=2.18", "tensorflow>=2.18"]
EXTRA = "tf_keras"
OUTPUTS = ["output", "weights", "gradients"]
DTYPES = ["float64", "float32", "float16", "bfloat16"]
DEVICES = ["cpu"]
CAPABILITIES = ["value_dim", "kdim", "query_dim", "output_dim", "no_bias", "dropout", "mistakes"]
SLOTS = {
    "attached_to_query": {
        "role": "mask",
        "takes": ["attention"],
        "axes": [["b", "q"]],
        "bool": "attend",
        "attached": True,
    },
    "attached_to_value": {
        "role": "mask",
        "takes": ["key_padding"],
        "axes": [["b", "k"]],
        "bool": "attend",
        "attached": True,
    },
    "attached_to_key": {
        "role": "mask",
        "takes": ["key_padding"],
        "axes": [["b", "k"]],
        "bool": "attend",
        "attached": True,
    },
    "attention_mask": {
        "role": "mask",
        "takes": ["key_padding", "attention", "causal", "window"],
        "axes": [["q", "k"], ["b", "q", "k"], ["b", "h", "q", "k"]],
        "bool": "attend",
        "int": "attend",
        "float": "undocumented",
    },
    "use_causal_mask": {"role": "causal", "alignment": "top_left"},
}
VARIANTS = {
    "eager": {
        "summary": "operator by operator",
        "env": {"TF_USE_LEGACY_KERAS": "1", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"},
    },
    "function": {
        "summary": "under tf.function",
        "env": {"TF_USE_LEGACY_KERAS": "1", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"},
    },
    "robust": {
        "summary": "softmax_robust_masking=True, which compares a float mask with 0.5",
        "REQUIRES": ["tf_keras>=2.21", "tensorflow>=2.21"],
        "env": {"TF_USE_LEGACY_KERAS": "1", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"},
    },
}

import os
from functools import cache
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from conformance.bridge import Call, Declaration, Facts, framework_call

from ._arrays import to_numpy
from ._layers import ATTACHED, on_tensors, parameters, stepwise_profile
from ._onednn import bfloat16_profile, libraries
from ._tensorflow import with_gradients
from ._versions import version

MASKS = ("attention_mask", *ATTACHED)


def declare(facts: Facts) -> Declaration:
    """Declare canonical attention. Every step is a separate operator; tf.einsum computes the products."""
    profile = bfloat16_profile(stepwise_profile("tensorflow", facts.dtype), facts.dtype, acc="bfloat16")
    return Declaration(profile, evidence="measured: docs/tolerance.md, section 5")


def mha(call: Call) -> dict[str, Any]:
    """Answer the call with a layer whose weights are the parameters of the call."""
    facts = call.facts
    inputs = {"query": call.query, "value": call.value, "key": call.key}
    masks = {slot: tf.constant(to_numpy(call.arguments[slot])) for slot in MASKS if slot in call.arguments}
    arguments = {
        **{name: tf.constant(to_numpy(tensor)) for name, tensor in inputs.items()},
        **masks,
        "use_causal_mask": bool(call.arguments.get("use_causal_mask", False)),
        "return_attention_scores": "weights" in facts.outputs,
    }
    widths = tuple(facts.sizes[name] for name in ("query_dim", "kdim", "vdim"))
    sizes = tuple(facts.sizes[name] for name in ("num_heads", "head_dim", "value_dim", "output_dim"))
    options = {"biases": "bq" in call.params, "dropout": call.dropout_p or 0.0}
    layer, attend = built(sizes, widths, facts.dtype, facts.variant, **options)
    layer.set_weights(list(parameters(call).values()))
    with framework_call():
        if facts.gradients:
            return with_gradients(call, layer, attend, arguments)
        result = attend(**arguments)
    found = result if arguments["return_attention_scores"] else (result,)
    return {name: found[("output", "weights").index(name)].numpy() for name in facts.outputs}


@cache
def built(
    sizes: tuple[int, ...], widths: tuple[int, ...], dtype: str, variant: str, *, biases: bool, dropout: float
) -> Any:
    """Return a layer of these sizes, whose weights are set before each call, and the function that calls it."""
    number, head_dim, value_dim, output_dim = sizes
    layer = tf_keras.layers.MultiHeadAttention(
        number,
        head_dim,
        value_dim=value_dim,
        output_shape=output_dim,
        use_bias=biases,
        dropout=dropout,
        dtype=dtype,
        **({"softmax_robust_masking": True} if variant == "robust" else {}),
    )
    query, key, value = (tf.zeros((1, 1, width), dtype) for width in widths)
    layer(query, value, key=key)

    def attend(**arguments: Any) -> Any:
        return layer(**on_tensors(arguments, attach))

    return layer, tf.function(attend) if variant == "function" else attend


def attach(tensor: Any, mask: Any) -> Any:
    """Return the tensor with the mask attached, as an earlier layer would return it."""
    return tf_keras.layers.Lambda(tf.identity, mask=mask)(tensor)


def evidence() -> dict[str, Any]:
    """Return the versions, the device, the kernel libraries and the environment variables of this process."""
    names = ("tf_keras", "tensorflow")
    return {
        "versions": {name: version(name) for name in names} | {"numpy": np.__version__},
        "device": "cpu",
        "libraries": libraries(),
        "environment": {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "TF_USE_LEGACY_KERAS")},
    }
