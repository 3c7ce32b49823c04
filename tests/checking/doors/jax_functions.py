"""On JAX arrays."""

from functools import partial

import jax
import jax.numpy as jnp

RIGHT = ("jitted", "wrapped", "einsum", "three_axes")
WRONG = {
    "inverted": "reads True in mask as",
    "wrong_scale": "scale",
    "one_key_too_many": "one future key|one key",
    "heads_tiled": "in turn|tiles|tile",
}


def _attention(q, k, v, mask=None, scale=None):
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    logits = jnp.einsum("bhqd,bhkd->bhqk", q, k) * scale
    if mask is not None:
        logits = jnp.where(mask, logits, jnp.finfo(logits.dtype).min)
    return jax.nn.softmax(logits, axis=-1) @ v


jitted = jax.jit(_attention, static_argnames=("scale",))


def wrapped(query, key, value, bias=None, mask=None, is_causal=False, scale=None):
    return jax.nn.dot_product_attention(query, key, value, bias, mask, is_causal=is_causal, scale=scale)


def einsum(
    q: jax.Array, k: jax.Array, v: jax.Array, bias: jax.Array | None = None, sm_scale: float | None = None, mask=None
) -> jax.Array:
    logits = jnp.einsum("bqhd,bkhd->bhqk", q, k) * (q.shape[-1] ** -0.5 if sm_scale is None else sm_scale)
    logits = logits if bias is None else logits + bias
    logits = logits if mask is None else jnp.where(mask, logits, -jnp.inf)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(logits, axis=-1), v)


def three_axes(q, k, v, mask=None):
    """The mask is (batch, seq_len_q, seq_len_k)."""
    logits = jnp.einsum("...qd,...kd->...qk", q, k) / jnp.sqrt(q.shape[-1]).astype(q.dtype)
    if mask is not None:
        assert mask.ndim == 3
        logits = jnp.where(mask[:, None], logits, jnp.finfo(q.dtype).min)
    return jax.nn.softmax(logits, axis=-1) @ v


@jax.jit
def inverted(q, k, v, mask=None):
    logits = jnp.einsum("bhqd,bhkd->bhqk", q, k) * q.shape[-1] ** -0.5
    if mask is not None:
        logits = jnp.where(mask, jnp.finfo(logits.dtype).min, logits)
    return jax.nn.softmax(logits, axis=-1) @ v


wrong_scale = partial(_attention, scale=0.125)


def one_key_too_many(q, k, v, mask=None, is_causal=False):
    if is_causal:
        seen = jnp.tri(q.shape[2], k.shape[2], k=1, dtype=bool)
        mask = seen if mask is None else mask & seen
    return _attention(q, k, v, mask)


def heads_tiled(q, k, v, mask=None, *, num_kv_heads):
    times = q.shape[1] // num_kv_heads
    return _attention(q, jnp.tile(k, (1, times, 1, 1)), jnp.tile(v, (1, times, 1, 1)), mask)
