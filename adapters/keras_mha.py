"""
Keras 3, through keras.layers.MultiHeadAttention on one of its backends.

What this adapter translates, and nothing else:
* arrays are (batch, seq_len, width), as in the call; the layer is called as (query, value, key)
* weights are given (in, num_heads * dim) and Keras stores (in, num_heads, dim): reshaped; the output kernel likewise
* value_mask (batch, seq_len_k) and attention_mask (batch, seq_len_q, seq_len_k): True means attend
* use_causal_mask: top-left aligned
* dropout: given to the layer, inactive outside training
* return_attention_scores where weights are asked for
* [jax] runs with 64-bit types enabled
"""

NAME = "keras.mha"
OPERATORS = ["mha"]
REQUIRES = ["keras>=3"]
EXTRA = "keras"
OUTPUTS = ["output", "weights"]
DTYPES = ["float64", "float32", "float16", "bfloat16"]
DEVICES = ["cpu"]
CAPABILITIES = ["value_dim", "kdim", "query_dim", "output_dim", "no_bias", "dropout"]
SLOTS = {
    "value_mask": {"role": "mask", "takes": ["key_padding"], "axes": [["b", "k"]], "bool": "attend"},
    "attention_mask": {
        "role": "mask",
        "takes": ["attention", "causal", "window"],
        "axes": [["q", "k"], ["b", "q", "k"]],
        "bool": "attend",
        "int": "attend",
        "float": "undocumented",
    },
    "use_causal_mask": {"role": "causal", "alignment": "top_left"},
}
VARIANTS = {
    "tensorflow": {
        "summary": "on TensorFlow",
        "env": {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"},
        "REQUIRES": ["keras>=3", "tensorflow"],
        "EXTRA": "keras,tensorflow",
    },
    "jax": {
        "summary": "on JAX",
        "env": {"KERAS_BACKEND": "jax", "JAX_ENABLE_X64": "1", "JAX_PLATFORMS": "cpu"},
        "REQUIRES": ["keras>=3", "jax"],
        "EXTRA": "keras,jax",
    },
    "torch": {
        "summary": "on PyTorch",
        "env": {"KERAS_BACKEND": "torch"},
        "REQUIRES": ["keras>=3", "torch"],
        "EXTRA": "keras,torch",
    },
}

from functools import cache
from typing import Any

import keras

from conformance.bridge import Call, Declaration, Facts, framework_call

from ._arrays import to_numpy
from ._keras import keras_evidence, layer_profile
from ._layers import parameters

MASKS = ("value_mask", "attention_mask")


def declare(facts: Facts) -> Declaration:
    """Canonical. With weights operator by operator, without through keras.ops.dot_product_attention."""
    return Declaration(layer_profile(facts), evidence="measured: docs/tolerance.md, section 5")


def mha(call: Call) -> dict[str, Any]:
    """Answer the call with a layer that holds the parameters."""
    sizes = call.facts.sizes
    query, key, value = (to_numpy(tensor) for tensor in (call.query, call.key, call.value))
    masks = {slot: to_numpy(call.arguments[slot]) for slot in MASKS if slot in call.arguments}
    flags = {
        "use_causal_mask": bool(call.arguments.get("use_causal_mask", False)),
        "return_attention_scores": "weights" in call.facts.outputs,
    }
    widths = (query.shape[-1], key.shape[-1], value.shape[-1])
    heads = (sizes["num_heads"], sizes["head_dim"], sizes["value_dim"], sizes["output_dim"])
    layer = built(heads, widths, call.facts.dtype, biases="bq" in call.params, dropout=call.dropout_p or 0.0)
    layer.set_weights(list(parameters(call).values()))
    with framework_call():
        result = layer(query, value, key=key, **masks, **flags)
    found = result if flags["return_attention_scores"] else (result,)
    return {name: keras.ops.convert_to_numpy(found[("output", "weights").index(name)]) for name in call.facts.outputs}


@cache
def built(heads: tuple[int, ...], widths: tuple[int, ...], dtype: str, *, biases: bool, dropout: float) -> Any:
    """A layer of these sizes; its weights are set for each call."""
    number, head_dim, value_dim, output_dim = heads
    layer = keras.layers.MultiHeadAttention(
        number, head_dim, value_dim=value_dim, output_shape=output_dim, use_bias=biases, dropout=dropout, dtype=dtype
    )
    query_dim, kdim, vdim = widths
    layer.build((None, None, query_dim), (None, None, vdim), (None, None, kdim))
    return layer


def evidence() -> dict[str, Any]:
    """What runs."""
    return keras_evidence()
