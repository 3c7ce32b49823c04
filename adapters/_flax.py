"""Flax's attention layers as compiled functions of their parameters and inputs: linen's and nnx's."""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen, nnx

# Query, key and value, with or without a mask, to the output and, where they are asked for, the weights.
Attend = Callable[..., tuple[Any, Any]]


@cache
def built(variant: str, widths: tuple[int, ...], dtype: str, *, biases: bool, dropout: float, past: int) -> Any:
    """The layer of these widths, under jax.jit; with a past it decodes."""
    heads, _, head_dim, _, _, output_dim = widths
    common = {"use_bias": biases, "dtype": dtype, "param_dtype": dtype, "decode": past > 0}
    common |= {"num_heads": heads, "qkv_features": heads * head_dim, "out_features": output_dim}
    common |= {"dropout_rate": dropout, "deterministic": True}
    made = linen_layer if variant == "linen" else nnx_layer

    def apply(params: Any, query: Any, key: Any, value: Any, *, sow: bool, **others: Any) -> tuple[Any, Any]:
        attend = made(common, widths, params, key, value, sow=sow)
        return (decoded(attend, past) if past else attend)(query, key, value, **others)

    def differentiated(params: Any, query: Any, key: Any, value: Any, wanted: Any, **others: Any) -> Any:
        if wanted is None:
            return apply(params, query, key, value, **others), ()
        output, pull = jax.vjp(lambda *by: apply(*by, **others)[0], params, query, key, value)
        return (output, None), pull(wanted)

    return jax.jit(differentiated, static_argnames=("sow", "is_causal"))


def linen_layer(
    common: dict[str, Any], widths: tuple[int, ...], params: Any, key: Any, value: Any, *, sow: bool
) -> Attend:
    """flax.linen.MultiHeadDotProductAttention; if it decodes, with a cache of the length of key and value."""
    layer = linen.MultiHeadDotProductAttention(**common)
    state = {"params": params}
    if common["decode"]:
        queries = jnp.zeros((*key.shape[:2], widths[3]), key.dtype)
        state["cache"] = layer.init(jax.random.key(0), queries, key, value)["cache"]

    def attend(*inputs: Any, **others: Any) -> tuple[Any, Any]:
        output, after = layer.apply(state, *inputs, sow_weights=sow, mutable=["intermediates", "cache"], **others)
        state.update({"cache": after["cache"]} if common["decode"] else {})
        return output, after["intermediates"]["attention_weights"][0] if sow else None

    return attend


def nnx_layer(
    common: dict[str, Any], widths: tuple[int, ...], params: Any, key: Any, _value: Any, *, sow: bool
) -> Attend:
    """flax.nnx.MultiHeadAttention; if it decodes, with a cache of the length of key and value."""
    options = common | differing(widths) | {"in_features": widths[3]}
    layer = nnx.eval_shape(lambda: nnx.MultiHeadAttention(**options, rngs=nnx.Rngs(0)))
    for part, arrays in params.items():
        for name, array in arrays.items():
            getattr(getattr(layer, part), name).value = array
    if common["decode"]:
        layer.init_cache((*key.shape[:2], widths[3]), key.dtype)

    def attend(*inputs: Any, **others: Any) -> tuple[Any, Any]:
        output = layer(*inputs, sow_weights=sow, **others)
        return output, nnx.pop(layer, nnx.Intermediate)["attention_weights"][0] if sow else None

    return attend


def differing(widths: tuple[int, ...]) -> dict[str, int]:
    """What flax.nnx is told of key and value where they differ from the query."""
    heads, kv_heads, _, query_dim, kv_dim, _ = widths
    found = {} if kv_dim == query_dim else {"in_kv_features": kv_dim}
    return found | ({} if kv_heads == heads else {"num_kv_heads": kv_heads})


def decoded(attend: Attend, past: int) -> Attend:
    """One query at a time, with its key; the first stands for those of the past, whose replies are dropped."""

    def in_steps(query: Any, key: Any, value: Any, mask: Any = None, **flags: Any) -> tuple[Any, Any]:
        replies = []
        for place in range(key.shape[1]):
            here, row = slice(place, place + 1), slice(max(place - past, 0), max(place - past, 0) + 1)
            one = {} if mask is None else {"mask": mask if mask.shape[2] == 1 else mask[:, :, row]}
            replies.append(attend(query[:, row], key[:, here], value[:, here], **one, **flags))
        outputs, weights = zip(*replies[past:], strict=True)
        return jnp.concatenate(outputs, axis=1), None if weights[0] is None else jnp.concatenate(weights, axis=2)

    return in_steps
