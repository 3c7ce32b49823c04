"""What an arbiter planted and the table had no word for, or no case asked."""

import numpy as np

from .pieces import Array, hide, scores, softmax


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
