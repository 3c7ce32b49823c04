"""What an assessor planted and the table had no word for: the first item alone, splits, tails."""

import numpy as np

from .pieces import Array, hide, past, scores, softmax


def flag_for_item_zero(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, is_causal: bool = False
) -> Array:
    """
    The loop over items that hides what comes later ends after the first.

    Right: mask_axes[is_causal]=first_item_alone
    """
    logits = hide(scores(query, key), mask)
    if is_causal:
        logits[:1] = hide(logits[:1], past(logits))
    return np.asarray(softmax(logits) @ value)


def mask_of_head_zero(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    One head is masked, of as many as there are.

    Right: mask_axes[mask]=first_head_alone
    """
    logits = scores(query, key)
    if mask is not None:
        logits[:, :1] = hide(logits[:, :1], mask[:, :1])
    return np.asarray(softmax(logits) @ value)
