"""
Equinox, through equinox.nn.MultiheadAttention, under jax.jit and jax.vmap.

What this adapter translates, and nothing else:
* the layer takes one item, without a batch axis: jax.vmap over items
* weights are given (in, out) and Equinox stores (out, in): transposed
* mask: True means attend; (num_heads, seq_len_q, seq_len_k) for each item
* 64-bit types are enabled
"""

NAME = "equinox.mha"
OPERATORS = ["mha"]
REQUIRES = ["equinox", "jax"]
EXTRA = "equinox"
OUTPUTS = ["output"]
DTYPES = ["float64", "float32", "float16", "bfloat16"]
DEVICES = ["cpu"]
CAPABILITIES = ["value_dim", "kdim", "query_dim", "output_dim", "no_bias", "dropout", "mistakes"]
SLOTS = {
    "mask": {
        "role": "mask",
        "takes": ["key_padding", "attention", "causal", "window"],
        "axes": [["b", "h", "q", "k"]],
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

SIZES = ("num_heads", "query_dim", "kdim", "vdim", "output_dim", "head_dim", "value_dim")


def declare(facts: Facts) -> Declaration:
    """Canonical; operator by operator, but for the softmax of half precision, which is in float32."""
    half = facts.dtype in ("float16", "bfloat16")
    profile = Profile.naive(facts.dtype) if half else stepwise_profile("jax", facts.dtype)
    return Declaration(profile, evidence="equinox/nn/_attention.py: query scaled, einsum, softmax, einsum")


def mha(call: Call) -> dict[str, Any]:
    """Answer the call with a layer that holds the parameters."""
    sizes = tuple(call.facts.sizes[name] for name in SIZES)
    apply = built(sizes, call.facts.dtype, biases="bq" in call.params, dropout=call.dropout_p or 0.0)
    inputs = [to_numpy(tensor) for tensor in (call.query, call.key, call.value)]
    mask = to_numpy(call.arguments["mask"]) if "mask" in call.arguments else None
    params = {name: to_numpy(tensor) for name, tensor in call.params.items()}
    with framework_call():
        output = apply(params, *inputs, mask)
    return {"output": np.asarray(output)}


@cache
def built(sizes: tuple[int, ...], dtype: str, *, biases: bool, dropout: float) -> Any:
    """The layer of these sizes as a compiled function of its parameters, inputs and mask."""
    number, query_dim, kdim, vdim, output_dim, head_dim, value_dim = sizes
    empty = equinox.nn.MultiheadAttention(
        number,
        query_dim,
        key_size=kdim,
        value_size=vdim,
        output_size=output_dim,
        qk_size=head_dim,
        vo_size=value_dim,
        **{f"use_{part}_bias": biases for part in ("query", "key", "value", "output")},
        dropout_p=dropout,
        inference=True,
        dtype=dtype,
        key=jax.random.key(0),
    )

    def apply(params: Any, query: Any, key: Any, value: Any, mask: Any) -> Any:
        layer = holding(empty, params)
        return jax.vmap(layer, in_axes=(0, 0, 0, None if mask is None else 0))(query, key, value, mask)

    return jax.jit(apply)


def holding(layer: Any, params: Any) -> Any:
    """The layer with the parameters of the call."""
    for name, array in params.items():
        part = f"{PARTS[name[1]].replace('out', 'output')}_proj"
        field, held = ("weight", array.T) if name[0] == "w" else ("bias", array)
        layer = equinox.tree_at(lambda each, p=part, f=field: getattr(getattr(each, p), f), layer, held)
    return layer


evidence = partial(jax_evidence, equinox)
