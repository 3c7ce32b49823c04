"""Layers of Equinox, which take one batch element without an axis for the batch."""

import equinox as eqx
import jax
import jax.numpy as jnp

RIGHT = ()
WRONG = {"Swapped": "swaps key and value"}


class Attention(eqx.Module):
    q_proj: eqx.nn.Linear
    k_proj: eqx.nn.Linear
    v_proj: eqx.nn.Linear
    out_proj: eqx.nn.Linear
    num_heads: int = eqx.field(static=True)

    def __init__(self, embed_dim, num_heads, *, key):
        keys = jax.random.split(key, 4)
        self.num_heads = num_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            eqx.nn.Linear(embed_dim, embed_dim, key=each) for each in keys
        )

    def heads(self, projection, x):
        return jax.vmap(projection)(x).reshape(x.shape[0], self.num_heads, -1)

    def __call__(self, q, k, v, mask=None):
        q, k, v = self.heads(self.q_proj, q), self.heads(self.k_proj, k), self.heads(self.v_proj, v)
        scores = jnp.einsum("qhd,khd->hqk", q, k) * q.shape[-1] ** -0.5
        if mask is not None:
            scores = jnp.where(mask, scores, -jnp.inf)
        weights = jnp.nan_to_num(jax.nn.softmax(scores, axis=-1))
        out = jnp.einsum("hqk,khd->qhd", weights, v)
        return jax.vmap(self.out_proj)(out.reshape(q.shape[0], -1))


class Swapped(Attention):
    def __call__(self, q, k, v, mask=None):
        return super().__call__(q, v, k, mask)
