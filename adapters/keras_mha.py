"""
Keras 3, through keras.layers.MultiHeadAttention on one of its backends.

What this adapter translates, and nothing else:
* arrays are (batch, seq_len, width), as in the call; the layer is called as (query, value, key)
* weights are given (in, num_heads * dim) and Keras stores (in, num_heads, dim): reshaped; the output kernel likewise
* value_mask (batch, seq_len_k) and attention_mask (batch, seq_len_q, seq_len_k): True means attend
* use_causal_mask: top-left aligned
* return_attention_scores where weights are asked for
* [jax] runs under jax.jit with 64-bit types enabled
"""

NAME = "keras.mha"
OPERATORS = ["mha"]
REQUIRES = ["keras>=3"]
EXTRA = "keras"
OUTPUTS = ["output", "weights"]
DTYPES = ["float64", "float32", "float16", "bfloat16"]
DEVICES = ["cpu"]
CAPABILITIES = ["value_dim", "kdim", "query_dim", "output_dim", "no_bias"]
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
    },
    "jax": {
        "summary": "on JAX",
        "env": {"KERAS_BACKEND": "jax", "JAX_ENABLE_X64": "1", "JAX_PLATFORMS": "cpu"},
        "REQUIRES": ["keras>=3", "jax"],
    },
    "torch": {"summary": "on PyTorch", "env": {"KERAS_BACKEND": "torch"}, "REQUIRES": ["keras>=3", "torch"]},
}

from typing import Any

import keras
from ._keras import attention_profile, keras_evidence, to_numpy

from conformance.bridge import Call, Declaration, Facts, Profile, framework_call


def declare(facts: Facts) -> Declaration:
    """Canonical. With weights the layer works operator by operator, without it calls keras.ops.dot_product_attention."""
    profile = stepwise_profile if "weights" in facts.outputs else attention_profile
    return Declaration(profile(facts.variant, facts.dtype), evidence="measured: TOLERANCE.md, section 5")


def stepwise_profile(backend: str, dtype: str) -> Profile:
    """
    Query scaled, product, softmax and weighted sum as operators of their own: half precision rounds after each.

    The softmax of JAX, and of TensorFlow in float16, is in half precision, too.
    """
    if dtype in ("float64", "float32"):
        return Profile.uniform(dtype).but(scale="float32" if backend == "tensorflow" else dtype)
    if backend == "jax":
        return Profile.naive(dtype).but(soft=dtype)
    if backend == "tensorflow" and dtype == "float16":
        return Profile.naive(dtype).but(acc=dtype, soft=dtype)
    return Profile.naive(dtype)


def mha(call: Call) -> dict[str, Any]:
    """Answer the call with a layer that holds the parameters."""
    facts, sizes = call.facts, call.facts.sizes
    arrays = {id(tensor): to_numpy(tensor) for tensor in (call.query, call.key, call.value)}
    query, key, value = (arrays[id(tensor)] for tensor in (call.query, call.key, call.value))
    layer = keras.layers.MultiHeadAttention(
        sizes["num_heads"],
        sizes["head_dim"],
        value_dim=sizes["value_dim"],
        output_shape=sizes["output_dim"],
        use_bias="bq" in call.params,
        dtype=facts.dtype,
    )
    layer.build(query.shape, value.shape, key.shape)
    layer.set_weights(weights(call))
    masks = {slot: to_numpy(call.arguments[slot]) for slot in ("value_mask", "attention_mask") if slot in call.arguments}
    causal = bool(call.arguments.get("use_causal_mask", False))
    scores = "weights" in facts.outputs
    with framework_call():
        result = layer(query, value, key=key, use_causal_mask=causal, return_attention_scores=scores, **masks)
    found = dict(zip(("output", "weights"), result if scores else (result,), strict=False))
    return {name: keras.ops.convert_to_numpy(found[name]) for name in facts.outputs}


def weights(call: Call) -> list[Any]:
    """The parameters in the layer's order and shapes."""
    sizes = call.facts.sizes
    heads, dims = sizes["num_heads"], {"q": sizes["head_dim"], "k": sizes["head_dim"], "v": sizes["value_dim"]}
    found = []
    for letter, dim in dims.items():
        found.append(to_numpy(call.params["w" + letter]).reshape(-1, heads, dim))
        if "b" + letter in call.params:
            found.append(to_numpy(call.params["b" + letter]).reshape(heads, dim))
    found.append(to_numpy(call.params["wo"]).reshape(heads, sizes["value_dim"], -1))
    return [*found, to_numpy(call.params["bo"])] if "bo" in call.params else found


def evidence() -> dict[str, Any]:
    """What runs."""
    return keras_evidence()
