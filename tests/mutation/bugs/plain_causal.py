"""Causal arguments and windows with another edge, or applied to some calls only."""

import numpy as np

from .pieces import Array, attend, hide, past, scores, softmax


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


def window_at_the_last_key(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    window: tuple[int | None, int | None] | None = None,
) -> Array:
    """
    Queries stand at the last keys, as they do in a decoder with a cache.

    Right: window_alignment=bottom_right
    Declared: window_alignment=canonical
    """
    logits = hide(scores(query, key), mask)
    if window is not None:
        queries, keys = logits.shape[-2:]
        apart = np.arange(keys) - np.arange(keys - queries, keys)[:, None]
        left, right = (np.inf if side is None else side for side in window)
        logits = hide(logits, (apart >= -left) & (apart <= right))
    return np.asarray(softmax(logits) @ value)


def window_without_zeros(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    *,
    window: tuple[int | None, int | None] | None = None,
) -> Array:
    """
    A side of a window is asked whether it is true.

    Right: window_edges=zero_is_unbounded
    """
    logits = scores(query, key)
    queries, keys = logits.shape[-2:]
    apart = np.arange(keys) - np.arange(queries)[:, None]
    left, right = window or (None, None)
    seen = (apart >= -(left or keys + queries)) & (apart <= (right or keys + queries))
    return np.asarray(softmax(hide(logits, seen if mask is None else mask & seen)) @ value)


def causal_end_with_the_sign_reversed(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    *,
    is_causal: bool = False,
    causal_alignment: str = "top_left",
) -> Array:
    """
    Aligned at the last key, the diagonal is moved the other way.

    Right: causal_alignment=wrong_sign
    """
    logits = scores(query, key)
    if is_causal:
        seen = past(logits, logits.shape[-2] - logits.shape[-1] if causal_alignment == "bottom_right" else 0)
        mask = seen if mask is None else mask & seen
    return np.asarray(softmax(hide(logits, mask)) @ value)


def causal_unless_one_query(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, is_causal: bool = False
) -> Array:
    """
    A single query is taken for the newest token, which may see all keys.

    Right: use[is_causal]=ignored or causal_alignment=bottom_right
    When: {sizes: {seq_len_q: 1}}
    """
    logits = scores(query, key)
    if is_causal and query.shape[-2] > 1:
        mask = past(logits) if mask is None else mask & past(logits)
    return np.asarray(softmax(hide(logits, mask)) @ value)


def window_of_unsigned_places(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    *,
    window: tuple[int | None, int | None] | None = None,
) -> Array:
    """
    The first key of a window is a size, which has no sign: before key 0 it is a very large one.

    Right: fail
    """
    logits = hide(scores(query, key), mask)
    left, right = window or (None, None)
    for row in range(query.shape[-2]):
        first = 0 if left is None else (row - left) % 2**32
        last = key.shape[-2] if right is None else row + right + 1
        logits[..., row, :first] = -np.inf
        logits[..., row, last:] = -np.inf
    return np.asarray(softmax(logits) @ value)


def window_left_at_the_end(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    *,
    window: tuple[int | None, int | None] | None = None,
) -> Array:
    """
    A window that does not lie within the keys is taken for no window, on the right.

    Right: fail
    """
    logits = hide(scores(query, key), mask)
    left, right = window or (None, None)
    apart = np.arange(key.shape[-2]) - np.arange(query.shape[-2])[:, None]
    seen = np.ones(apart.shape, bool)
    if left is not None:
        seen &= apart >= -left
    if right is not None:
        seen &= apart <= right
        seen |= np.arange(query.shape[-2])[:, None] + right > key.shape[-2] - 1
    return np.asarray(softmax(hide(logits, seen)) @ value)


def causal_if_square(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, is_causal: bool = False
) -> Array:
    """
    The flag is looked at where there are as many queries as keys alone.

    Right: use[is_causal]=ignored
    When: {sizes_differ: [[seq_len_q, seq_len_k]]}
    """
    if is_causal and query.shape[2] == key.shape[2]:
        seen = past(scores(query, key))
        mask = seen if mask is None else mask & seen
    return attend(query, key, value, mask)


def last_key_dropped(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    range(seq_len_k - 1).

    Right: key_tail=last_dropped
    When: {sizes_above: {seq_len_k: 1}}
    """
    length = max(key.shape[2] - 1, 1)
    mask = mask if mask is None or mask.shape[-1] == 1 else mask[..., :length]
    return attend(query, key[:, :, :length], value[:, :, :length], mask)
