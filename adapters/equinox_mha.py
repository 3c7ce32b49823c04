"""
Equinox, through equinox.nn.MultiheadAttention, under jax.jit and jax.vmap.

What this adapter translates, and nothing else:
* the layer takes one batch element, without a batch axis; jax.vmap maps the layer over the batch
* weights are given as (in, out) and Equinox stores (out, in), so they are transposed
* `mask`: True means attend. For each batch element it is (seq_len_q, seq_len_k) or (num_heads, seq_len_q, seq_len_k).
  A mask without a batch axis is passed to every batch element.
* biases: each projection has its own option: use_query_bias, use_key_bias, use_value_bias, use_output_bias
* dropout: the probability is passed to the layer, and inference=True makes it inactive
* gradients: jax.vjp computes those with respect to query, key, value and the parameters from that of the output
* JAX's 64-bit types are enabled
"""

NAME = "equinox.mha"
OPERATORS = ["mha"]
REQUIRES = ["equinox>=0.11.10", "jax>=0.4.35"]
EXTRA = "equinox"
OUTPUTS = ["output", "gradients"]
DTYPES = ["float64", "float32", "float16", "bfloat16"]
DEVICES = ["cpu"]
CAPABILITIES = ["value_dim", "kdim", "query_dim", "output_dim", "no_bias", "some_biases", "dropout", "mistakes"]
SLOTS = {
    "mask": {
        "role": "mask",
        "takes": ["key_padding", "attention", "causal", "window"],
        "axes": [["q", "k"], ["b", "q", "k"], ["b", "h", "q", "k"]],
        "bool": "attend",
    },
}
VARIANTS = {
    "jit": {"summary": "under jax.jit", "env": {"JAX_ENABLE_X64": "1", "JAX_PLATFORMS": "cpu"}},
}

from functools import cache, partial
from typing import Any

import equinox
import jax
import numpy as np

from conformance.bridge import Call, Declaration, Facts, Profile, framework_call

from ._arrays import to_numpy
from ._jax import jax_evidence
from ._layers import PARTS, stepwise_profile

PROJECTIONS = {**PARTS, "o": "output"}
SIZES = ("num_heads", "query_dim", "kdim", "vdim", "output_dim", "head_dim", "value_dim")


def declare(facts: Facts) -> Declaration:
    """Declare canonical attention, operator by operator. In half precision, the softmax is in float32."""
    half = facts.dtype in ("float16", "bfloat16")
    profile = Profile.naive(facts.dtype) if half else stepwise_profile("jax", facts.dtype)
    return Declaration(profile, evidence="equinox/nn/_attention.py: query scaled, einsum, softmax, einsum")


def mha(call: Call) -> dict[str, Any]:
    """Answer the call with a layer that has the parameters of the call."""
    sizes = tuple(call.facts.sizes[name] for name in SIZES)
    biases = "".join(letter for letter in PARTS if "b" + letter in call.params)
    apply = built(sizes, call.facts.dtype, biases, call.dropout_p or 0.0)
    inputs = [to_numpy(tensor) for tensor in (call.query, call.key, call.value)]
    mask = to_numpy(call.arguments["mask"]) if "mask" in call.arguments else None
    params = {name: to_numpy(tensor) for name, tensor in call.params.items()}
    wanted = None if call.grad_output is None else to_numpy(call.grad_output)
    with framework_call():
        output, (by_params, *by_inputs) = apply(params, *inputs, mask, wanted)
    found = {"output": output} | dict(zip(("grad_query", "grad_key", "grad_value"), by_inputs, strict=False))
    found |= {f"grad_{name}": slope for name, slope in by_params.items()}
    return {name: np.asarray(found[name]) for name in call.facts.outputs}


@cache
def built(sizes: tuple[int, ...], dtype: str, biases: str, dropout: float) -> Any:
    """
    Return the layer of these sizes as a compiled function of its parameters, inputs and mask.

    The function also returns gradients if it gets the gradient of the output (`wanted`). sizes: those of SIZES. biases:
    the letters of the projections that have a bias.
    """
    number, query_dim, kdim, vdim, output_dim, head_dim, value_dim = sizes
    empty = equinox.nn.MultiheadAttention(
        number,
        query_dim,
        key_size=kdim,
        value_size=vdim,
        output_size=output_dim,
        qk_size=head_dim,
        vo_size=value_dim,
        **{f"use_{PROJECTIONS[letter]}_bias": letter in biases for letter in PARTS},
        dropout_p=dropout,
        inference=True,
        dtype=dtype,
        key=jax.random.key(0),
    )

    def apply(params: Any, query: Any, key: Any, value: Any, mask: Any) -> Any:
        own = 0 if mask is not None and mask.ndim > len("qk") else None
        return jax.vmap(holding(empty, params), in_axes=(0, 0, 0, own))(query, key, value, mask)

    def differentiated(params: Any, query: Any, key: Any, value: Any, mask: Any, wanted: Any) -> Any:
        if wanted is None:
            return apply(params, query, key, value, mask), ({},)
        output, pull = jax.vjp(lambda p, q, k, v: apply(p, q, k, v, mask), params, query, key, value)
        return output, pull(wanted)

    return jax.jit(differentiated)


def holding(layer: Any, params: Any) -> Any:
    """Return a copy of the layer with the parameters of the call."""
    for name, array in params.items():
        part = f"{PROJECTIONS[name[1]]}_proj"
        field, held = ("weight", array.T) if name[0] == "w" else ("bias", array)
        layer = equinox.tree_at(lambda each, p=part, f=field: getattr(getattr(each, p), f), layer, held)
    return layer


evidence = partial(jax_evidence, equinox)
