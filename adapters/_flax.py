"""The attention layers of flax.linen and flax.nnx as compiled functions of their parameters and inputs."""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen, nnx

# A function of query, key and value, with an optional mask and flags. It returns the output and the weights. If weights
# are not requested, it returns None in their place.
Attend = Callable[..., tuple[Any, Any]]


@cache
def built(variant: str, widths: tuple[int, ...], dtype: str, *, biases: bool, dropout: float, past: int) -> Any:
    """
    Return the layer of these widths as a function that jax.jit compiles. With a past, the layer decodes.

    The function returns (output, weights) and the gradients. The gradients are empty if `wanted` is None.

    widths: num_heads, num_kv_heads, head_dim, query_dim, kdim and output_dim. past: its length; 0 means no past.
    """
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
    """Return the call of flax.linen.MultiHeadDotProductAttention. If it decodes, its cache is as long as `key`."""
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
    """Return the call of flax.nnx.MultiHeadAttention. If it decodes, its cache is as long as `key`."""
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
    """Return the arguments that flax.nnx needs if the width or the heads of key and value differ from the query's."""
    heads, kv_heads, _, query_dim, kv_dim, _ = widths
    found = {} if kv_dim == query_dim else {"in_kv_features": kv_dim}
    return found | ({} if kv_heads == heads else {"num_kv_heads": kv_heads})


def decoded(attend: Attend, past: int) -> Attend:
    """
    Return a function that calls `attend` once for each key, with one query, one key and one value.

    Each key of the past is passed with the first query, and the results of these calls are dropped. Each other key is
    passed with the query of its own position.
    """

    def in_steps(query: Any, key: Any, value: Any, mask: Any = None, **flags: Any) -> tuple[Any, Any]:
        replies = []
        for place in range(key.shape[1]):
            here, row = slice(place, place + 1), slice(max(place - past, 0), max(place - past, 0) + 1)
            one = {} if mask is None else {"mask": mask if mask.shape[2] == 1 else mask[:, :, row]}
            replies.append(attend(query[:, row], key[:, here], value[:, here], **one, **flags))
        outputs, weights = zip(*replies[past:], strict=True)
        return jnp.concatenate(outputs, axis=1), None if weights[0] is None else jnp.concatenate(weights, axis=2)

    return in_steps
