"""
Follow by hand what `conformance port` advises between torch.mha and keras.mha[jax], with plain calls, not our adapters.

Run the script with the record of each direction. For each decision, it prints whether the outputs of the two sides
agree, up to rounding, before the change and after it.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

os.environ.update(KERAS_BACKEND="jax", JAX_PLATFORMS="cpu")

import keras
import numpy as np

from conformance.spec.problem import Array, Problem
from tests.cli.following import Trial, booleans, in_torch, overwritten, printed, shown, told


def in_keras(problem: Problem, *, weights: bool = False, **masks: Any) -> Array:
    """The output of keras.layers.MultiHeadAttention on JAX."""
    layer = keras.layers.MultiHeadAttention(problem.num_heads, problem.head_dim)
    query, key, value = (np.float32(each) for each in (problem.query, problem.key, problem.value))
    layer.build(query.shape, value.shape, key.shape)
    layer.set_weights(
        [
            np.float32(problem.params[name]).reshape(weight.shape)
            for name, weight in zip(("wq", "bq", "wk", "bk", "wv", "bv", "wo", "bo"), layer.weights, strict=True)
        ]
    )
    result = layer(query, value, key, return_attention_scores=weights, **masks)
    return np.asarray(result[0] if weights else result, dtype=np.float64)


def from_torch(shown: Mapping[str, Problem]) -> Iterator[Trial]:
    """torch.mha -> keras.mha[jax]."""
    there = "from torch"
    p = shown["polarity[attn_mask]"]
    mask = booleans(p, "attention")
    replies = in_torch(p, attn_mask=mask), in_keras(p, attention_mask=mask), in_keras(p, attention_mask=~mask)
    yield told(there, "polarity[attn_mask]", p, ~mask, replies)

    p = shown["polarity[key_padding_mask]"]
    mask = booleans(p, "key_padding")
    replies = in_torch(p, key_padding_mask=mask), in_keras(p, value_mask=mask), in_keras(p, value_mask=~mask)
    yield told(there, "polarity[key_padding_mask]", p, ~mask[:, None, None], replies)

    p = shown["float_mask[attn_mask]"]
    added = np.asarray(p.mask_operands[0].values[0, 0], dtype=np.float32)
    replies = in_torch(p, attn_mask=added), in_keras(p, attention_mask=added), in_keras(p, attention_mask=added == 0)
    yield told(there, "float_mask[attn_mask]", p, added == 0, replies)

    p = shown["fully_masked_row"]
    attended, padding = booleans(p, "attention"), booleans(p, "key_padding")
    both = attended & padding[:, None]
    new = in_keras(p, attention_mask=attended, value_mask=padding)
    replies = (
        in_torch(p, attn_mask=~attended, key_padding_mask=~padding),
        new,
        overwritten(new, p, np.asarray(~both.any(axis=-1))),
    )
    yield told(there, "fully_masked_row", p, both[:, None], replies)

    p = shown["polarity[attn_mask]"]
    order = np.tril(np.ones((p.seq_len_q, p.seq_len_k), dtype=bool))
    replies = in_torch(p, attn_mask=~order, is_causal=True), in_keras(p), in_keras(p, use_causal_mask=True)
    yield told(there, "is_causal", p, order, replies)


def from_keras(shown: Mapping[str, Problem]) -> Iterator[Trial]:
    """keras.mha[jax] -> torch.mha."""
    back = "from keras"
    p = shown["polarity[attention_mask]"]
    mask = booleans(p, "attention")
    replies = in_keras(p, attention_mask=mask), in_torch(p, attn_mask=mask), in_torch(p, attn_mask=~mask)
    yield told(back, "polarity[attention_mask]", p, mask, replies)

    p = shown["polarity[value_mask]"]
    mask = booleans(p, "key_padding")
    replies = in_keras(p, value_mask=mask), in_torch(p, key_padding_mask=mask), in_torch(p, key_padding_mask=~mask)
    yield told(back, "polarity[value_mask]", p, mask[:, None, None], replies)

    p = shown["float_mask[attention_mask]"]
    cast = np.asarray(p.mask_operands[0].values[0, 0], dtype=np.float32)
    replies = in_keras(p, attention_mask=cast), in_torch(p, attn_mask=cast), in_torch(p, attn_mask=cast == 0)
    yield told(back, "float_mask[attention_mask]", p, cast != 0, replies)

    p = shown["nonfinite_key"]
    padding = booleans(p, "key_padding")
    clean = p.but(key=np.where(padding[:, :, None], p.key, 0))
    old = in_keras(p, value_mask=padding)
    replies = old, in_torch(p, key_padding_mask=~padding), in_torch(clean, key_padding_mask=~padding)
    yield told(back, "nonfinite_key", clean, padding[:, None, None], replies)

    p = shown["fully_masked_row"]
    attended, padding = booleans(p, "attention"), booleans(p, "key_padding")
    both = attended & padding[:, None]
    old = in_keras(p, attention_mask=attended, value_mask=padding, weights=True)
    new = in_torch(p, attn_mask=~attended, key_padding_mask=~padding, weights=True)
    yield told(
        back, "fully_masked_row", p, both[:, None], (old, new, overwritten(new, p, np.asarray(~both.any(axis=-1))))
    )

    p = shown["polarity[attention_mask]"]
    order = np.tril(np.ones((p.seq_len_q, p.seq_len_k), dtype=bool))
    replies = in_keras(p, use_causal_mask=True), in_torch(p), in_torch(p, attn_mask=~order, is_causal=True)
    yield told(back, "use_causal_mask", p, order, replies)


if __name__ == "__main__":
    found = (*from_torch(shown(sys.argv[1])), *from_keras(shown(sys.argv[2])))
    sys.stdout.write(printed(found))
