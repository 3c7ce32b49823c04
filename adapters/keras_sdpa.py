"""
Keras 3, through keras.ops.dot_product_attention on one of its backends.

What this adapter translates, and nothing else:
* arrays: (batch, num_heads, seq_len, head_dim) in the call. Keras takes and returns (batch, seq_len, num_heads,
  head_dim), so the adapter swaps the two middle axes.
* `mask`: True means attend. `bias`: floats are added to the logits. Both are (batch, num_heads, seq_len_q, seq_len_k);
  each of these axes may have size 1.
* `is_causal`: the causal mask is aligned to the top left.
* gradients: with respect to query, key and value, from the gradient with respect to the output. They are computed with
  tf.GradientTape, jax.vjp or torch.autograd.grad.
* [jax]: 64-bit types are enabled.
"""

NAME = "keras.sdpa"
OPERATORS = ["sdpa"]
REQUIRES = ["keras>=3.6"]
EXTRA = "keras"
OUTPUTS = ["output", "gradients"]
DTYPES = ["float64", "float32", "float16", "bfloat16"]
DEVICES = ["cpu"]
CAPABILITIES = ["scale", "grouped_heads", "value_dim", "mistakes"]
DECLINES = {"softcap": "attn_logits_soft_cap is only supported in JAX TPU backend: https://keras.io/api/ops/nn/"}
SLOTS = {
    "mask": {
        "role": "mask",
        "takes": ["key_padding", "attention", "causal", "window"],
        "axes": [["b", "h", "q", "k"]],
        "broadcast": ["b", "h", "q", "k"],
        "bool": "attend",
        "int": "undocumented",
        "float": "undocumented",
    },
    "bias": {
        "role": "mask",
        "takes": ["additive"],
        "axes": [["b", "h", "q", "k"]],
        "broadcast": ["b", "h", "q", "k"],
        "float": "add",
    },
    "is_causal": {"role": "causal", "alignment": "top_left"},
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
        "CAPABILITIES": ["scale", "grouped_heads", "mistakes"],
    },
    "torch": {
        "summary": "on PyTorch",
        "env": {"KERAS_BACKEND": "torch"},
        "REQUIRES": ["keras>=3.6", "torch>=2.5"],
        "EXTRA": "keras,torch",
    },
}

from functools import partial
from typing import Any

import keras

from conformance.bridge import Call, Declaration, Deviation, Facts, framework_call

from ._arrays import to_numpy
from ._keras import RESULT_TYPE, attention_profile, keras_evidence
from ._keras_gradients import differentiated

TARGET = keras.ops.dot_product_attention


def declare(facts: Facts) -> Declaration:
    """Declare canonical attention, except that Keras intentionally maps float64 to float32 on JAX and PyTorch."""
    single = facts.dtype == "float64" and facts.variant != "tensorflow"
    return Declaration(
        attention_profile(facts.variant, facts.dtype),
        (Deviation("result_dtype", "float32", RESULT_TYPE),) if single else (),
        "measured: docs/tolerance.md, section 5",
    )


def sdpa(call: Call) -> dict[str, Any]:
    """Answer the call with `TARGET`."""
    query, key, value = (to_numpy(tensor).swapaxes(1, 2) for tensor in (call.query, call.key, call.value))
    masks = {name: to_numpy(call.arguments[name]) for name in ("mask", "bias") if name in call.arguments}
    causal = bool(call.arguments.get("is_causal", False))
    arguments = {**masks, "scale": call.scale, "is_causal": causal}
    wanted = None if call.grad_output is None else to_numpy(call.grad_output).swapaxes(1, 2)
    with framework_call():
        if wanted is None:
            results = [TARGET(query, key, value, **arguments)]
        else:
            results = differentiated(partial(TARGET, **arguments), (query, key, value), wanted)
    found = zip(("output", "grad_query", "grad_key", "grad_value"), results, strict=False)
    arrays = {name: keras.ops.convert_to_numpy(array).swapaxes(1, 2) for name, array in found}
    return {name: arrays[name] for name in call.facts.outputs}


evidence = keras_evidence
