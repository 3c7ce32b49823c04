"""Layers of flax.nnx and flax.linen: the first has its weights when it is built, the second when it is called."""

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import nnx

RIGHT = ("Attention", "SelfAttention")
WRONG = {"ScaledTwice": "applies the scale twice"}


class Attention(nnx.Module):
    def __init__(self, d_model, num_heads, *, rngs: nnx.Rngs):
        self.num_heads = num_heads
        self.q_proj = nnx.Linear(d_model, d_model, rngs=rngs)
        self.k_proj = nnx.Linear(d_model, d_model, rngs=rngs)
        self.v_proj = nnx.Linear(d_model, d_model, rngs=rngs)
        self.out_proj = nnx.Linear(d_model, d_model, rngs=rngs)

    def heads(self, x):
        return x.reshape(*x.shape[:2], self.num_heads, -1)

    def __call__(self, q, k, v, mask=None):
        q, k, v = self.heads(self.q_proj(q)), self.heads(self.k_proj(k)), self.heads(self.v_proj(v))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
        if mask is not None:
            scores = jnp.where(mask, scores, -jnp.inf)
        weights = jnp.nan_to_num(jax.nn.softmax(scores, axis=-1))
        out = jnp.einsum("bhqk,bkhd->bqhd", weights, v)
        return self.out_proj(out.reshape(*out.shape[:2], -1))


class SelfAttention(nn.Module):
    d_model: int
    num_heads: int

    @nn.compact
    def __call__(self, x, mask=None):
        batch, length, _ = x.shape
        three = jnp.split(nn.Dense(3 * self.d_model, name="qkv")(x), 3, axis=-1)
        q, k, v = (each.reshape(batch, length, self.num_heads, -1) for each in three)
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
        if mask is not None:
            scores = jnp.where(mask, scores, -jnp.inf)
        weights = jnp.nan_to_num(jax.nn.softmax(scores, axis=-1))
        out = jnp.einsum("bhqk,bkhd->bqhd", weights, v)
        return nn.Dense(self.d_model, name="out")(out.reshape(batch, length, -1))


class ScaledTwice(nn.Module):
    num_heads: int
    head_dim: int

    @nn.compact
    def __call__(self, query, key, value, mask=None):
        def projected(name, x):
            return nn.DenseGeneral((self.num_heads, self.head_dim), name=name)(x)

        q, k, v = projected("query", query), projected("key", key), projected("value", value)
        out = nn.dot_product_attention(q * self.head_dim**-0.5, k, v, mask=mask)
        return nn.DenseGeneral(query.shape[-1], axis=(-2, -1), name="out")(out)
