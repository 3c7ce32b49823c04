"""Masks that are read, combined or broadcast otherwise than asked, and what is made of padding."""

import numpy as np

from .pieces import Array, Params, attend, hide, out, past, projected, scores, softmax
from .pieces import out as project_out


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


def _padded_both_ways(mask: Array | None, padding: Array | None, queries: int) -> Array | None:
    if padding is None:
        return mask
    seen = padding[:, None, None, :]
    if padding.shape[1] == queries:
        seen = seen & padding[:, None, :, None]
    return seen if mask is None else mask & seen


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

    Padded keys are cut off, and with them NaN in their values; the mask hides others by a weight of zero.

    Right: fully_masked_row=nan when {slots: [mask]} or nonfinite_value=leaks when {slots: [mask]}
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


def one_head_without_its_axis(
    query: Array, key: Array, value: Array, params: Params, num_heads: int, mask: Array | None = None
) -> Array:
    """
    A single head needs no axis of heads: the mask loses one too many.

    Right: mask_axes[mask]=first_batch
    When: {sizes: {num_heads: 1}}
    """
    if num_heads == 1 and mask is not None:
        mask = mask[0][0]
    return out(attend(*projected(query, key, value, params, num_heads), mask), params)


def one_head_and_one_mask(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    The same without a layer, where all is squeezed.

    Right: mask_axes[mask]=first_batch
    When: {sizes: {num_heads: 1}}
    """
    if query.shape[1] > 1:
        return attend(query, key, value, mask)
    mask = None if mask is None else mask[0, 0]
    return attend(query[:, 0], key[:, 0], value[:, 0], mask)[:, None]


def flag_for_item_zero(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, is_causal: bool = False
) -> Array:
    """
    The loop over items that hides what comes later ends after the first.

    Right: fail
    """
    logits = hide(scores(query, key), mask)
    if is_causal:
        logits[:1] = hide(logits[:1], past(logits))
    return np.asarray(softmax(logits) @ value)


def mask_of_head_zero(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    One head is masked, of as many as there are.

    Right: fail
    """
    logits = scores(query, key)
    if mask is not None:
        logits[:, :1] = hide(logits[:, :1], mask[:, :1])
    return np.asarray(softmax(logits) @ value)


def mask_stretched_over_the_tail(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Keys are filled up to eights; what is filled up is hidden, but where there is a mask, whose last column goes on.

    Right: fail
    """
    more = -key.shape[-2] % 8
    if mask is None or more == 0:
        return attend(query, key, value, mask)
    tail = [(0, 0), (0, 0), (0, more), (0, 0)]
    columns = np.broadcast_to(mask, (*mask.shape[:-1], key.shape[-2]))
    stretched = np.concatenate([columns, *[columns[..., -1:]] * more], axis=-1)
    return attend(query, np.pad(key, tail), np.pad(value, tail), stretched)


def masked_unless_one_query(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    A path of its own for a single query forgets the mask.

    Right: use[mask]=ignored
    When: {sizes: {seq_len_q: 1}}
    """
    return attend(query, key, value, mask if query.shape[-2] > 1 else None)


def low_fill_of_the_wrong_sign(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    1e-9 is written for -1e9.

    Right: mask_fill=puts_1e-9
    """
    return np.asarray(softmax(hide(scores(query, key), mask, 1e-9)) @ value)


def mask_of_shared_heads_folded_otherwise(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, num_kv_heads: int | None = None
) -> Array:
    """
    Query heads are folded into groups with the shared head first, the heads of a mask with it last.

    Right: mask_axes[mask]=heads_by_group
    """
    batch, heads, queries, dim = query.shape
    shared = num_kv_heads or heads
    groups = query.reshape(batch, shared, heads // shared, queries, dim)
    if mask is not None and mask.shape[1] > 1:
        mask = mask.reshape(len(mask), heads // shared, shared, *mask.shape[2:]).swapaxes(1, 2)
    elif mask is not None:
        mask = mask[:, :, None]
    return attend(groups, key[:, :, None], value[:, :, None], mask).reshape(batch, heads, queries, -1)


def padding_hides_queries(
    query: Array,
    key: Array,
    value: Array,
    params: Params,
    num_heads: int,
    mask: Array | None = None,
    *,
    key_padding_mask: Array | None = None,
) -> Array:
    """
    The padding of a self-attention is multiplied with itself.

    Right: mask_axes[key_padding_mask]=padding_of_queries
    """
    q, k, v = projected(query, key, value, params, num_heads)
    return project_out(attend(q, k, v, _padded_both_ways(mask, key_padding_mask, q.shape[2])), params)


def padding_hides_queries_beside_causal(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    *,
    key_padding_mask: Array | None = None,
    is_causal: bool = False,
) -> Array:
    """
    The same without projections, where a fully masked row is a mean, beside a causal flag.

    Right: mask_axes[key_padding_mask]=padding_of_queries
    """
    logits = scores(query, key)
    seen = _padded_both_ways(mask, key_padding_mask, query.shape[2])
    if is_causal:
        seen = past(logits) if seen is None else seen & past(logits)
    return np.asarray(softmax(hide(logits, seen, float(np.finfo(logits.dtype).min))) @ value)


def where_in_the_wrong_order(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    np.where(mask, fill, logits): what may be seen is filled.

    Right: polarity[mask]=ignore or polarity[mask]=ignore+fully_masked_row=uniform
    """
    logits = scores(query, key)
    if mask is not None:
        logits = np.where(mask, np.asarray(max(-1e9, float(np.finfo(logits.dtype).min)), logits.dtype), logits)
    return np.asarray(softmax(logits) @ value)


def mask_of_items_on_heads(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    A mask of (batch, 1, ...) is put on the heads, where there are as many.

    Right: mask_axes[mask]=batch_as_heads or mask_axes[mask]=batch_tiled
    When: {sizes_equal: [[batch, num_heads]]}
    """
    batch, heads = query.shape[:2]
    if mask is not None and batch == heads and mask.shape[:2] == (batch, 1):
        mask = mask.swapaxes(0, 1)
    return attend(query, key, value, mask)


def diagonal_always_seen(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Every token sees itself, so that no row is empty.

    Right: always_attended=own_position
    """
    if mask is not None:
        mask = mask | np.eye(query.shape[2], key.shape[2], dtype=bool)
    return attend(query, key, value, mask)
