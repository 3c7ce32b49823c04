"""
Flax, through flax.linen.MultiHeadDotProductAttention or flax.nnx.MultiHeadAttention, under jax.jit.

What this adapter translates, and nothing else:
* arrays are (batch, seq_len, width), as in the call
* weights are given as (in, num_heads * dim) and Flax stores (in, num_heads, dim), so they are reshaped. The output
  kernel is reshaped from (num_heads * dim, out) to (num_heads, dim, out).
* `mask`: True means attend. It is (batch, num_heads, seq_len_q, seq_len_k), and each of the first three axes may have
  size one. Float masks are accepted, because make_attention_mask of Flax returns float32.
* `is_causal`: top-left aligned; only nnx has it. With a past, every step gets it together with the cache.
* dropout: the rate is passed to the layer, and deterministic=True makes it inactive
* a past: decode=True gives the layer a cache that has room for all keys and values. Each step passes one query, one key
  and one value. The steps of the past all pass the first query. The cache acts as a causal mask aligned to the past:
  key <= query + length of the past.
* sow_weights=True if weights are requested; the adapter reads them from the intermediates
* gradients: jax.vjp computes those with respect to query, key, value and the parameters from that of the output
* JAX's 64-bit types are enabled
"""

NAME = "flax.mha"
OPERATORS = ["mha"]
REQUIRES = ["flax>=0.10", "jax>=0.4.35"]
EXTRA = "flax"
OUTPUTS = ["output", "weights", "gradients"]
DTYPES = ["float64", "float32", "float16", "bfloat16"]
DEVICES = ["cpu"]
CAPABILITIES = ["kdim", "query_dim", "output_dim", "no_bias", "dropout", "past", "mistakes"]
SLOTS = {
    "mask": {
        "role": "mask",
        "takes": ["key_padding", "attention", "causal", "window"],
        "axes": [["b", "h", "q", "k"]],
        "broadcast": ["b", "h", "q"],
        "bool": "attend",
        "int": "undocumented",
        "float": "attend",
    },
    "cache": {"role": "causal", "alignment": "past", "only_with": ["past"]},
}
VARIANTS = {
    "linen": {
        "summary": "flax.linen.MultiHeadDotProductAttention",
        "env": {"JAX_ENABLE_X64": "1", "JAX_PLATFORMS": "cpu"},
    },
    "nnx": {
        "summary": "flax.nnx.MultiHeadAttention",
        "env": {"JAX_ENABLE_X64": "1", "JAX_PLATFORMS": "cpu"},
        "CAPABILITIES": ["grouped_heads", "kdim", "query_dim", "output_dim", "no_bias", "dropout", "past", "mistakes"],
        "SLOTS": {
            "mask": {
                "role": "mask",
                "takes": ["key_padding", "attention", "causal", "window"],
                "axes": [["b", "h", "q", "k"]],
                "broadcast": ["b", "h", "q"],
                "bool": "attend",
                "int": "undocumented",
                "float": "attend",
            },
            "cache": {"role": "causal", "alignment": "past", "only_with": ["past"]},
            "is_causal": {"role": "causal", "alignment": "past"},
        },
    },
}

from functools import partial
from typing import Any

import flax
import numpy as np
from flax import nnx

from conformance.bridge import Call, Declaration, Facts, Tensor, Unsupported, framework_call

from ._arrays import to_numpy
from ._flax import built, differing
from ._jax import fused_declaration, jax_evidence
from ._layers import PARTS, parameters_by_part, stepwise_profile
from ._releases import known

# The page on which init_cache says: "When in decode mode, only one token must be passed at a time".
DECODING = "https://flax.readthedocs.io/en/latest/api_reference/flax.nnx/nn/attention.html"


def declare(facts: Facts) -> Declaration:
    """Declare canonical attention. nnx without weights calls jax.nn; the others run operator by operator."""
    if facts.variant == "nnx" and "weights" not in facts.outputs:
        return fused_declaration(facts.dtype)
    return Declaration(stepwise_profile("jax", facts.dtype), evidence="flax/linen/attention.py: scale, einsum, softmax")


def mha(call: Call) -> dict[str, Any]:
    """Answer the call with a layer that has the parameters of the call."""
    facts, sizes = call.facts, call.facts.sizes
    if facts.variant == "nnx" and sizes["kdim"] != sizes["vdim"]:
        raise Unsupported("flax.nnx.MultiHeadAttention has one width for key and value, in_kv_features")
    past = decodable(call)
    query = to_numpy(call.query)
    key, value = joined(call.past_key, call.key), joined(call.past_value, call.value)
    arguments = {"mask": to_numpy(call.arguments["mask"])} if "mask" in call.arguments else {}
    flags = {"is_causal": True} if call.arguments.get("is_causal", False) else {}
    params = parameters_by_part(call)
    widths = tuple(sizes[name] for name in ("num_heads", "num_kv_heads", "head_dim", "query_dim", "kdim", "output_dim"))
    if facts.variant == "nnx":
        known(nnx.MultiHeadAttention.__init__, **differing(widths))
        known(nnx.MultiHeadAttention.__call__, **flags)
    wanted = None if call.grad_output is None else to_numpy(call.grad_output)
    apply = built(
        facts.variant, widths, facts.dtype, biases="bq" in call.params, dropout=call.dropout_p or 0.0, past=past
    )
    flags["sow"] = "weights" in facts.outputs
    with framework_call():
        (output, weights), slopes = apply(params, query, key, value, wanted, **arguments, **flags)
    found = {"output": output, "weights": weights} | named(slopes, call)
    return {name: np.asarray(found[name]) for name in facts.outputs}


def decodable(call: Call) -> int:
    """
    Return the length of the past, or 0 if there is none.

    Raises:
        Unsupported: the call has a past and cannot be made in decode mode. Either it does not have one new key for each
            query, or it has several queries and does not request the causal mask of the cache.
    """
    sizes = call.facts.sizes
    past = sizes.get("past", 0)
    if past and sizes["seq_len_q"] != sizes["seq_len_k"] - past:
        raise Unsupported(f"one token is passed at a time, a query with its key: {DECODING}")
    if past and sizes["seq_len_q"] > 1 and "cache" not in call.arguments:
        raise Unsupported(f"a cache stands for a causal mask, for which this call does not ask: {DECODING}")
    return past


def joined(past: Tensor | None, rest: Tensor) -> Any:
    """Return the positions of the past, if there is one, followed by the other positions."""
    return to_numpy(rest) if past is None else np.concatenate([to_numpy(past), to_numpy(rest)], axis=1)


def named(slopes: tuple[Any, ...], call: Call) -> dict[str, Any]:
    """Return the gradients by output name. Those with respect to parameters get the shapes of the call."""
    if not slopes:
        return {}
    params, *inputs = slopes
    found = dict(zip(("grad_query", "grad_key", "grad_value"), inputs, strict=True))
    for name, tensor in call.params.items():
        slope = params[PARTS[name[1]]]["kernel" if name[0] == "w" else "bias"]
        found[f"grad_{name}"] = slope.reshape(tensor.shape)
    return found


evidence = partial(jax_evidence, flax)
