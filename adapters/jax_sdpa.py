"""
JAX, through jax.nn.dot_product_attention.

What this adapter translates, and nothing else:
* arrays are given as (batch, num_heads, seq_len, head_dim). JAX takes and returns (batch, seq_len, num_heads,
  head_dim), so two axes are swapped before and after the call.
* `mask`: True means attend. `bias`: floats are added to the logits. Both are (batch, num_heads, seq_len_q, seq_len_k),
  and each axis may have size one.
* gradients: jax.vjp computes those with respect to query, key and value from the given gradient of the output
* `is_causal`: top-left aligned
* `local_window_size`: (left, right), both inclusive. A side without a limit gets the longer sequence length.
* JAX's 64-bit types are enabled
* `key_value_seq_lengths`, `query_seq_lengths`: how many keys and how many queries of each batch element take part,
  counted from the first. Only [lengths] passes them.
* [jit] and [lengths] compile the call as a whole; [eager] runs it operator by operator; [xla] and [cudnn] are [jit] on
  CUDA, with implementation='xla' or 'cudnn'
* [cudnn] "supports only a subset of shapes/dtypes, and an exception will be thrown": such calls are declined
"""

NAME = "jax.sdpa"
OPERATORS = ["sdpa"]
REQUIRES = ["jax>=0.4.35"]
EXTRA = "jax"
OUTPUTS = ["output", "gradients"]
DTYPES = ["float64", "float32", "float16", "bfloat16"]
DEVICES = ["cpu"]
CAPABILITIES = ["scale", "grouped_heads", "mistakes"]
DECLINES = {
    "value_dim": "value should have the same shape as key: "
    "https://docs.jax.dev/en/latest/_autosummary/jax.nn.dot_product_attention.html",
}
SLOTS = {
    "mask": {
        "role": "mask",
        "takes": ["key_padding", "attention", "causal", "window"],
        "axes": [["b", "h", "q", "k"]],
        "broadcast": ["b", "h", "q", "k"],
        "bool": "attend",
    },
    "bias": {
        "role": "mask",
        "takes": ["additive"],
        "axes": [["b", "h", "q", "k"]],
        "broadcast": ["b", "h", "q", "k"],
        "float": "add",
    },
    "is_causal": {"role": "causal", "alignment": "top_left"},
    "local_window_size": {"role": "window"},
}
VARIANTS = {
    "jit": {"summary": "under jax.jit", "env": {"JAX_ENABLE_X64": "1", "JAX_PLATFORMS": "cpu"}},
    "eager": {
        "summary": "operator by operator",
        "tier": "thorough",
        "env": {"JAX_ENABLE_X64": "1", "JAX_PLATFORMS": "cpu"},
    },
    "xla": {
        "summary": "under jax.jit, implementation='xla'",
        "DEVICES": ["cuda"],
        "env": {"JAX_ENABLE_X64": "1", "JAX_PLATFORMS": "cuda"},
    },
    "cudnn": {
        "summary": "under jax.jit, implementation='cudnn'",
        "DEVICES": ["cuda"],
        "env": {"JAX_ENABLE_X64": "1", "JAX_PLATFORMS": "cuda"},
    },
    "lengths": {
        "summary": "under jax.jit, padding at the end as query_seq_lengths and key_value_seq_lengths",
        "env": {"JAX_ENABLE_X64": "1", "JAX_PLATFORMS": "cpu"},
        "SLOTS": {
            "mask": {
                "role": "mask",
                "takes": ["key_padding", "attention", "causal", "window"],
                "axes": [["b", "h", "q", "k"]],
                "broadcast": ["b", "h", "q", "k"],
                "bool": "attend",
            },
            "bias": {
                "role": "mask",
                "takes": ["additive"],
                "axes": [["b", "h", "q", "k"]],
                "broadcast": ["b", "h", "q", "k"],
                "float": "add",
            },
            "key_value_seq_lengths": {"role": "lengths", "takes": ["key_padding"], "axes": [["b", "k"]]},
            "query_seq_lengths": {"role": "lengths", "takes": ["attention"], "axes": [["b", "q"]]},
            "is_causal": {"role": "causal", "alignment": "top_left"},
            "local_window_size": {"role": "window"},
        },
    },
}

from typing import Any

import jax
import numpy as np

from conformance.bridge import Call, Declaration, Facts, framework_call

from ._arrays import to_numpy
from ._jax import decline_unless_supported, device_names, fused_declaration, jax_evidence

# The devices that the results of the last call were on.
came_from: set[str] = set()

TARGET = jax.nn.dot_product_attention
ARRAYS = ("mask", "bias", "query_seq_lengths", "key_value_seq_lengths")
STATIC = ("scale", "is_causal", "local_window_size", "implementation")


def attend(query: Any, key: Any, value: Any, grad_output: Any, **arguments: Any) -> tuple[Any, ...]:
    """Return the output and, if `grad_output` is given, the gradients by jax.vjp for query, key and value."""
    if grad_output is None:
        return (TARGET(query, key, value, **arguments),)
    output, pull = jax.vjp(lambda q, k, v: TARGET(q, k, v, **arguments), query, key, value)
    return (output, *pull(grad_output))


COMPILED = jax.jit(attend, static_argnames=STATIC)


def declare(facts: Facts) -> Declaration:
    """Declare canonical attention with the arithmetic of jax.nn.dot_product_attention."""
    return fused_declaration(facts.dtype, facts.device)


def sdpa(call: Call) -> dict[str, Any]:
    """Answer the call."""
    query, key, value = (to_numpy(tensor).swapaxes(1, 2) for tensor in (call.query, call.key, call.value))
    masks = {name: to_numpy(call.arguments[name]) for name in ARRAYS if name in call.arguments}
    flags: dict[str, Any] = {"is_causal": bool(call.arguments.get("is_causal", False)), "scale": call.scale}
    if "local_window_size" in call.arguments:
        sides, longest = call.arguments["local_window_size"], max(query.shape[1], key.shape[1])
        flags["local_window_size"] = tuple(longest if side is None else side for side in sides)
    if call.facts.device == "cuda":
        flags["implementation"] = call.facts.variant
    wanted = None if call.grad_output is None else to_numpy(call.grad_output).swapaxes(1, 2)
    if call.facts.variant == "cudnn":
        decline_unless_supported(query, key, masks, flags, slopes=wanted is not None)
    function = attend if call.facts.variant == "eager" else COMPILED
    with framework_call():
        results = function(query, key, value, wanted, **masks, **flags)
    arrays = {}
    for name, array in zip(("output", "grad_query", "grad_key", "grad_value"), results, strict=False):
        came_from.update(device_names(array.devices()))
        arrays[name] = np.asarray(array).swapaxes(1, 2)
    return {name: arrays[name] for name in call.facts.outputs}


def devices() -> list[str]:
    """Return the names of the devices that JAX sees."""
    return sorted(device_names(jax.devices()))


def evidence() -> dict[str, Any]:
    """Return what runs, and the devices that the results of the last call were on."""
    ran_on = sorted(came_from)
    came_from.clear()
    return {"ran_on": ran_on, **jax_evidence()}
