"""What an arbiter planted and the table had no word for, or no case asked."""

import numpy as np

from .pieces import Array, Params, attend, hide, out, projected, scores, softmax


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

    Right: fail
    """
    width = query.shape[-1]
    query, key = (rows * ((rows * rows).sum(axis=-1, keepdims=True) / width + 1e-6) ** -0.5 for rows in (query, key))
    return attend(query, key, value, mask)


def rows_looked_up_before_padding(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, key_padding_mask: Array | None = None
) -> Array:
    """
    Which rows are to be zero is read off the mask, and padding comes after that, as a large negative number.

    Right: fail
    """
    logits = scores(query, key)
    lowest = np.finfo(logits.dtype).min
    some = np.ones((1, 1, 1, 1), bool) if mask is None else mask.any(axis=-1, keepdims=True)
    logits = hide(logits, mask, lowest)
    if key_padding_mask is not None:
        logits = hide(logits, key_padding_mask[:, None, None], lowest)
    return np.asarray(np.where(some, softmax(logits), 0) @ value)


def padded_items_skipped(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, key_padding_mask: Array | None = None
) -> Array:
    """
    Items without a key are left out; a row that the mask empties is divided by zero.

    Right: fail
    """
    batch, heads, rows = query.shape[:3]
    answer = np.zeros((batch, heads, rows, value.shape[-1]), value.dtype)
    for item in range(batch):
        kept = slice(None) if key_padding_mask is None else key_padding_mask[item]
        logits = scores(query[item], key[item])
        if mask is not None:
            logits = hide(logits, np.broadcast_to(mask, (batch, *mask.shape[1:]))[item])
        logits = logits[..., kept]
        if logits.shape[-1]:
            with np.errstate(invalid="ignore"):
                powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
                answer[item] = powers / powers.sum(axis=-1, keepdims=True) @ value[item][:, kept]
    return answer


def padded_positions_blanked(
    query: Array,
    key: Array,
    value: Array,
    params: Params,
    num_heads: int,
    mask: Array | None = None,
    *,
    key_padding_mask: Array | None = None,
    need_weights: bool = False,
) -> Array | tuple[Array, Array]:
    """
    An encoder's layer leaves nothing at positions that are padded; its weights are as they were.

    Right: padded_queries=zeroed
    """
    answer, weights = _layer(query, key, value, params, num_heads, mask, key_padding_mask)
    if key_padding_mask is not None and answer.shape[1] == key.shape[1]:
        answer *= key_padding_mask[:, :, None]
    return (answer, weights) if need_weights else answer


def padded_positions_dropped(
    query: Array,
    key: Array,
    value: Array,
    params: Params,
    num_heads: int,
    mask: Array | None = None,
    *,
    key_padding_mask: Array | None = None,
    need_weights: bool = False,
) -> Array | tuple[Array, Array]:
    """
    Only positions that are kept are written, into zeros: output and weights.

    Right: padded_queries=zeroed_with_weights
    """
    answer, weights = _layer(query, key, value, params, num_heads, mask, key_padding_mask)
    if key_padding_mask is not None and answer.shape[1] == key.shape[1]:
        answer[~key_padding_mask] = 0
        weights.swapaxes(1, 2)[~key_padding_mask] = 0
    return (answer, weights) if need_weights else answer


def _layer(
    query: Array,
    key: Array,
    value: Array,
    params: Params,
    num_heads: int,
    mask: Array | None,
    key_padding_mask: Array | None,
) -> tuple[Array, Array]:
    """Output and weights of every head, right."""
    q, k, v = projected(query, key, value, params, num_heads)
    padding = None if key_padding_mask is None else key_padding_mask[:, None, None]
    weights = softmax(hide(hide(scores(q, k), mask), padding))
    return out(weights @ v, params), weights


def one_head_without_its_axis(
    query: Array, key: Array, value: Array, params: Params, num_heads: int, mask: Array | None = None
) -> Array:
    """
    A single head needs no axis of heads: the mask loses one too many.

    Right: mask_axes[mask]=first_item
    When: {sizes: {num_heads: 1}}
    """
    if num_heads == 1 and mask is not None:
        mask = mask[0][0]
    return out(attend(*projected(query, key, value, params, num_heads), mask), params)


def one_head_and_one_mask(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    The same without a layer, where all is squeezed.

    Right: mask_axes[mask]=first_item
    When: {sizes: {num_heads: 1}}
    """
    if query.shape[1] > 1:
        return attend(query, key, value, mask)
    mask = None if mask is None else mask[0, 0]
    return attend(query[:, 0], key[:, 0], value[:, 0], mask)[:, None]
