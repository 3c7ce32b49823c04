"""
Keras 3, through keras.layers.GroupQueryAttention on one of its backends.

What this adapter translates, and nothing else:
* arrays: (batch, seq_len, width), as in the call. The adapter passes query, value and key by name.
* weights: (in, heads * dim) in the call. Keras stores (in, heads, dim), so the adapter reshapes them. `heads` is
  num_heads for the query, and num_kv_heads for key and value. The adapter reshapes the biases of query, key and value,
  and the output kernel, in the same way.
* `query_mask`: (batch, seq_len_q). True means attend.
* `value_mask`: the key padding mask, (batch, seq_len_k). True means attend. A second key padding mask is passed as
  `key_mask`, together with `value_mask`.
* `attention_mask`: True, or a non-zero integer, means attend. It is (seq_len_q, seq_len_k), (batch, seq_len_q,
  seq_len_k) or (batch, num_heads, seq_len_q, seq_len_k).
* attached masks: a Lambda layer attaches them to the tensors of query, value and key.
* `use_causal_mask`: the causal mask is aligned to the top left.
* `sliding_window`: an argument of the constructor. Each query attends only keys that are at most sliding_window - 1
  positions before or after it.
* `dropout`: passed to the constructor. It is inactive outside training.
* gradients: with respect to query, key, value, the kernels and the biases. They are computed with tf.GradientTape, with
  jax.vjp under jax.jit, or with torch.autograd.grad.
* `return_attention_scores`: True if the call requests the weights.
* [jax]: 64-bit types are enabled.
"""

NAME = "keras.grouped_mha"
OPERATORS = ["mha"]
REQUIRES = ["keras>=3.6"]
EXTRA = "keras"
OUTPUTS = ["output", "weights", "gradients"]
DTYPES = ["float64", "float32", "float16", "bfloat16"]
DEVICES = ["cpu"]
CAPABILITIES = ["grouped_heads", "kdim", "query_dim", "no_bias", "dropout", "mistakes"]
SLOTS = {
    "query_mask": {"role": "mask", "takes": ["attention"], "axes": [["b", "q"]], "bool": "attend"},
    "value_mask": {"role": "mask", "takes": ["key_padding"], "axes": [["b", "k"]], "bool": "attend"},
    "key_mask": {"role": "mask", "takes": ["key_padding"], "axes": [["b", "k"]], "bool": "attend"},
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
        "takes": ["attention", "causal", "window"],
        "axes": [["q", "k"], ["b", "q", "k"], ["b", "h", "q", "k"]],
        "bool": "attend",
        "int": "attend",
        "float": "undocumented",
    },
    "use_causal_mask": {"role": "causal", "alignment": "top_left"},
    "sliding_window": {"role": "window", "symmetric": True, "about": "one width for both sides, plus 1"},
}
VARIANTS = {
    "tensorflow": {
        "summary": "on TensorFlow",
        "env": {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"},
        "REQUIRES": ["keras>=3.6", "tensorflow>=2.18"],
        "EXTRA": "keras,tensorflow",
    },
    "jax": {
        "summary": "on JAX",
        "env": {"KERAS_BACKEND": "jax", "JAX_ENABLE_X64": "1", "JAX_PLATFORMS": "cpu"},
        "REQUIRES": ["keras>=3.6", "jax>=0.4.35"],
        "EXTRA": "keras,jax",
    },
    "torch": {
        "summary": "on PyTorch",
        "env": {"KERAS_BACKEND": "torch"},
        "REQUIRES": ["keras>=3.6", "torch>=2.5"],
        "EXTRA": "keras,torch",
    },
}

from functools import cache
from typing import Any

import keras

from conformance.bridge import Call, Declaration, Facts, framework_call

from ._keras import UNUSED, keras_evidence, layer_arguments, layer_profile, layer_reply, sliding_window
from ._keras_attached import held
from ._keras_gradients import with_gradients
from ._layers import parameters
from ._releases import known

SIZES = ("head_dim", "num_heads", "num_kv_heads", "query_dim", "vdim", "kdim")


def declare(facts: Facts) -> Declaration:
    """Declare canonical attention, with the arithmetic of `layer_profile`."""
    return Declaration(layer_profile(facts), evidence="measured: docs/tolerance.md, section 5")


def mha(call: Call) -> dict[str, Any]:
    """Answer the call with a layer whose weights are the parameters of the call."""
    facts = call.facts
    sizes = tuple(facts.sizes[name] for name in SIZES)
    options = {"biases": "bq" in call.params, "dropout": call.dropout_p or 0.0, "window": sliding_window(call)}
    layer = built(sizes, facts.dtype, **options)
    layer.set_weights(list(parameters(call).values()))
    arguments = layer_arguments(call)
    tensors = arguments if facts.gradients else held(call, arguments)
    with framework_call():
        if call.grad_output is not None:
            return with_gradients(call, call.grad_output, layer, arguments)
        result = layer(**tensors)
    return layer_reply(call, result)


@cache
def built(sizes: tuple[int, ...], dtype: str, *, biases: bool, dropout: float, window: int | None) -> Any:
    """Return a layer of these sizes. Its weights are set before each call."""
    head_dim, heads, kv_heads, *widths = sizes
    layer = keras.layers.GroupQueryAttention(
        head_dim,
        heads,
        kv_heads,
        use_bias=biases,
        dropout=dropout,
        kernel_initializer=UNUSED,
        dtype=dtype,
        **known(keras.layers.GroupQueryAttention.__init__, sliding_window=window),
    )
    layer.build(*((None, None, width) for width in widths))
    return layer


evidence = keras_evidence
