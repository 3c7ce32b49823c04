"""
Keras 3, through keras.layers.MultiHeadAttention on one of its backends.

What this adapter translates, and nothing else:
* arrays: (batch, seq_len, width), as in the call. The adapter passes query, value and key by name.
* weights: reshaped from (in, num_heads * dim) to (in, num_heads, dim); the biases and the output kernel likewise
* `query_mask` (batch, seq_len_q) and `value_mask` (batch, seq_len_k): True means attend. A second key padding mask is
  passed as `key_mask`, together with `value_mask`.
* `attention_mask`: True, or a non-zero integer, means attend. It is (seq_len_q, seq_len_k), (batch, seq_len_q,
  seq_len_k) or (batch, num_heads, seq_len_q, seq_len_k).
* attached masks: a Lambda layer attaches them to the tensors of query, value and key.
* `use_causal_mask`: the causal mask is aligned top-left. `return_attention_scores`: True if weights are requested.
* `sliding_window`: each query attends only keys that are at most sliding_window - 1 positions before or after it.
* `dropout` and `sliding_window` are passed to the constructor. Dropout is inactive outside training.
* gradients: of query, key, value, kernels, biases; tf.GradientTape, jax.vjp under jax.jit or torch.autograd.grad
* [jax]: 64-bit types are enabled.
* [axes]: arrays and masks get an axis of size one after the batch axis, which attention_axes=(-2,) excludes from the
  attention. The key padding mask is passed as `key_mask`.
"""

NAME = "keras.mha"
OPERATORS = ["mha"]
REQUIRES = ["keras>=3.6"]
EXTRA = "keras"
OUTPUTS = ["output", "weights", "gradients"]
DTYPES = ["float64", "float32", "float16", "bfloat16"]
DEVICES = ["cpu"]
CAPABILITIES = ["value_dim", "kdim", "query_dim", "output_dim", "no_bias", "dropout", "mistakes"]
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
    "axes": {
        "summary": "on PyTorch, over the second of two axes of positions (-2), padding in key_mask",
        "OUTPUTS": ["output", "weights"],
        "env": {"KERAS_BACKEND": "torch"},
        "REQUIRES": ["keras>=3.6", "torch>=2.5"],
        "EXTRA": "keras,torch",
        "SLOTS": {
            "query_mask": {"role": "mask", "takes": ["attention"], "axes": [["b", "q"]], "bool": "attend"},
            "key_mask": {"role": "mask", "takes": ["key_padding"], "axes": [["b", "k"]], "bool": "attend"},
            "attached_to_query": {
                "role": "mask",
                "takes": ["attention"],
                "axes": [["b", "q"]],
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
                "axes": [["b", "q", "k"]],
                "bool": "attend",
                "int": "attend",
                "float": "undocumented",
            },
            "use_causal_mask": {"role": "causal", "alignment": "top_left"},
            "sliding_window": {"role": "window", "symmetric": True, "about": "one width for both sides, plus 1"},
        },
    },
}

from typing import Any

from conformance.bridge import Call, Declaration, Facts, framework_call

from ._keras import keras_evidence, layer_arguments, layer_profile, layer_reply, mha_layer, mha_sizes, sliding_window
from ._keras_attached import held
from ._keras_gradients import with_gradients
from ._layers import parameters


def declare(facts: Facts) -> Declaration:
    """Declare canonical attention, with the arithmetic of `layer_profile`."""
    return Declaration(layer_profile(facts), evidence="measured: docs/tolerance.md, section 5")


def mha(call: Call) -> dict[str, Any]:
    """Answer the call with a layer whose weights are the parameters of the call."""
    facts = call.facts
    axes = (-2,) if facts.variant == "axes" else None
    options = {"biases": "bq" in call.params, "dropout": call.dropout_p or 0.0, "window": sliding_window(call)}
    layer = mha_layer(mha_sizes(facts), facts.dtype, axes, **options)
    layer.set_weights(list(parameters(call).values()))
    arguments = layer_arguments(call)
    if axes:
        arguments = {name: one_more_axis(value) for name, value in arguments.items()}
    tensors = arguments if facts.gradients else held(call, arguments)
    with framework_call():
        if call.grad_output is not None:
            return with_gradients(call, call.grad_output, layer, arguments)
        result = layer(**tensors)
    reply = layer_reply(call, result)
    return {name: array[:, 0] for name, array in reply.items()} if axes else reply


def one_more_axis(value: Any) -> Any:
    """Return an array with an axis of size one inserted after the batch axis, or a flag unchanged."""
    return value if isinstance(value, bool) else value[:, None]


evidence = keras_evidence
