"""What an arbiter planted and the table had no word for, or no case asked."""

import numpy as np

from .pieces import Array, attend, hide, scores, softmax


def cache_of_no_keys(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    *,
    is_causal: bool = False,
    causal_alignment: str = "top_left",
) -> Array:
    """
    A cache that is shorter than nothing is taken for an empty one.

    Right: causal_alignment=never_negative
    """
    logits = hide(scores(query, key), mask)
    if is_causal:
        rows, keys = logits.shape[-2:]
        cached = keys - rows if causal_alignment == "bottom_right" and keys > rows else 0
        for row in range(rows):
            logits[..., row, row + cached + 1 :] = -np.inf
    return np.asarray(softmax(logits) @ value)


def normalised_as_newer_models_are(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Query and key go through the norm without weights that newer models have there.

    Right: query_key_norm=rms_of_query_key_1e-6
    """
    width = query.shape[-1]
    query, key = (rows * ((rows * rows).sum(axis=-1, keepdims=True) / width + 1e-6) ** -0.5 for rows in (query, key))
    return attend(query, key, value, mask)
