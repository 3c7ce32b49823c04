"""
Flax, through flax.linen.MultiHeadDotProductAttention or flax.nnx.MultiHeadAttention, under jax.jit.

What this adapter translates, and nothing else:
* arrays are (batch, seq_len, width), as in the call
* weights are given (in, num_heads * dim) and Flax stores (in, num_heads, dim): reshaped; the output kernel likewise
* mask: True means attend; (batch, num_heads, seq_len_q, seq_len_k) or 1; make_attention_mask writes it in float32
* is_causal, which only nnx has: top-left aligned
* dropout: given to the layer, which is deterministic=True
* sow_weights where weights are asked for, which are then read from the intermediates
* gradients: jax.vjp by query, key, value and the parameters, from that of the output
* 64-bit types are enabled
"""

NAME = "flax.mha"
OPERATORS = ["mha"]
REQUIRES = ["flax>=0.10", "jax>=0.4.35"]
EXTRA = "flax"
OUTPUTS = ["output", "weights", "gradients"]
DTYPES = ["float64", "float32", "float16", "bfloat16"]
DEVICES = ["cpu"]
CAPABILITIES = ["kdim", "query_dim", "output_dim", "no_bias", "dropout", "mistakes"]
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
}
VARIANTS = {
    "linen": {
        "summary": "flax.linen.MultiHeadDotProductAttention",
        "env": {"JAX_ENABLE_X64": "1", "JAX_PLATFORMS": "cpu"},
    },
    "nnx": {
        "summary": "flax.nnx.MultiHeadAttention",
        "env": {"JAX_ENABLE_X64": "1", "JAX_PLATFORMS": "cpu"},
        "CAPABILITIES": ["grouped_heads", "kdim", "query_dim", "output_dim", "no_bias", "dropout", "mistakes"],
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
            "is_causal": {"role": "causal", "alignment": "top_left"},
        },
    },
}

from functools import cache, partial
from typing import Any

import flax
import jax
import numpy as np
from flax import linen, nnx

from conformance.bridge import Call, Declaration, Facts, Unsupported, framework_call

from ._arrays import to_numpy
from ._jax import fused_declaration, jax_evidence
from ._layers import PARTS, parameters_by_part, stepwise_profile
from ._releases import known


def declare(facts: Facts) -> Declaration:
    """Canonical. linen, and nnx with weights, operator by operator; nnx without through jax.nn."""
    if facts.variant == "nnx" and "weights" not in facts.outputs:
        return fused_declaration(facts.dtype)
    return Declaration(stepwise_profile("jax", facts.dtype), evidence="flax/linen/attention.py: scale, einsum, softmax")


def mha(call: Call) -> dict[str, Any]:
    """Answer the call with a layer that holds the parameters."""
    facts, sizes = call.facts, call.facts.sizes
    if facts.variant == "nnx" and sizes["kdim"] != sizes["vdim"]:
        raise Unsupported("flax.nnx.MultiHeadAttention has one width for key and value, in_kv_features")
    query, key, value = (to_numpy(tensor) for tensor in (call.query, call.key, call.value))
    arguments = {"mask": to_numpy(call.arguments["mask"])} if "mask" in call.arguments else {}
    flags = {"is_causal": True} if call.arguments.get("is_causal", False) else {}
    params = parameters_by_part(call)
    widths = tuple(sizes[name] for name in ("num_heads", "num_kv_heads", "head_dim", "query_dim", "kdim", "output_dim"))
    if facts.variant == "nnx":
        known(nnx.MultiHeadAttention.__init__, **differing(widths))
        known(nnx.MultiHeadAttention.__call__, **flags)
    wanted = None if call.grad_output is None else to_numpy(call.grad_output)
    apply = built(facts.variant, widths, facts.dtype, biases="bq" in call.params, dropout=call.dropout_p or 0.0)
    flags["sow"] = "weights" in facts.outputs
    with framework_call():
        (output, weights), slopes = apply(params, query, key, value, wanted, **arguments, **flags)
    found = {"output": output, "weights": weights} | named(slopes, call)
    return {name: np.asarray(found[name]) for name in facts.outputs}


def named(slopes: tuple[Any, ...], call: Call) -> dict[str, Any]:
    """Gradients by parameters, query, key and value as outputs of a reply, in the shapes of the call."""
    if not slopes:
        return {}
    params, *inputs = slopes
    found = dict(zip(("grad_query", "grad_key", "grad_value"), inputs, strict=True))
    for name, tensor in call.params.items():
        slope = params[PARTS[name[1]]]["kernel" if name[0] == "w" else "bias"]
        found[f"grad_{name}"] = slope.reshape(tensor.shape)
    return found


def differing(widths: tuple[int, ...]) -> dict[str, int]:
    """What flax.nnx is told of key and value where they differ from the query."""
    heads, kv_heads, _, query_dim, kv_dim, _ = widths
    found = {} if kv_dim == query_dim else {"in_kv_features": kv_dim}
    return found | ({} if kv_heads == heads else {"num_kv_heads": kv_heads})


@cache
def built(variant: str, widths: tuple[int, ...], dtype: str, *, biases: bool, dropout: float) -> Any:
    """The layer of these widths as a compiled function of its parameters and inputs."""
    heads, _, head_dim, query_dim, _, output_dim = widths
    common = {"use_bias": biases, "dtype": dtype, "param_dtype": dtype, "decode": False}
    common |= {"num_heads": heads, "qkv_features": heads * head_dim, "out_features": output_dim}
    common |= {"dropout_rate": dropout, "deterministic": True}

    def apply_linen(params: Any, query: Any, key: Any, value: Any, *, sow: bool, **others: Any) -> Any:
        layer = linen.MultiHeadDotProductAttention(**common)
        output, state = layer.apply(
            {"params": params}, query, key, value, sow_weights=sow, mutable=["intermediates"], **others
        )
        return output, state["intermediates"]["attention_weights"][0] if sow else None

    def layer_nnx() -> Any:
        return nnx.MultiHeadAttention(**common, **differing(widths), in_features=query_dim, rngs=nnx.Rngs(0))

    def apply_nnx(params: Any, query: Any, key: Any, value: Any, *, sow: bool, **others: Any) -> Any:
        layer = nnx.eval_shape(layer_nnx)
        for part, arrays in params.items():
            for name, array in arrays.items():
                getattr(getattr(layer, part), name).value = array
        output = layer(query, key, value, sow_weights=sow, **others)
        return output, nnx.pop(layer, nnx.Intermediate)["attention_weights"][0] if sow else None

    apply = apply_linen if variant == "linen" else apply_nnx

    def differentiated(params: Any, query: Any, key: Any, value: Any, wanted: Any, **others: Any) -> Any:
        if wanted is None:
            return apply(params, query, key, value, **others), ()
        output, pull = jax.vjp(lambda *by: apply(*by, **others)[0], params, query, key, value)
        return (output, None), pull(wanted)

    return jax.jit(differentiated, static_argnames=("sow", "is_causal"))


evidence = partial(jax_evidence, flax)
