"""
What an examiner planted and had no name for: wrong group sizes, windows at another end, loops that are left too early.

They follow seven of thirty-six of somebody who did not know the table.
"""

import numpy as np

from .pieces import Array, Params, attend, hide, linear, out, scores, softmax, split


def heads_counted_by_groups(
    query: Array, key: Array, value: Array, mask: Array | None = None, num_kv_heads: int | None = None
) -> Array:
    """
    The head of keys is the head divided by how many of those there are, and no more than the last.

    Right: fail
    """
    heads = query.shape[1]
    shared = heads if num_kv_heads is None else num_kv_heads
    place = np.arange(heads)
    if shared < heads:
        place = np.minimum(place // shared, shared - 1)
    return attend(query, key[:, place], value[:, place], mask)


def window_at_the_last_key(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    window: tuple[int | None, int | None] | None = None,
) -> Array:
    """
    Queries stand at the last keys, as they do in a decoder with a cache.

    Right: window_edges=from_last_key
    """
    logits = hide(scores(query, key), mask)
    if window is not None:
        queries, keys = logits.shape[-2:]
        apart = np.arange(keys) - np.arange(keys - queries, keys)[:, None]
        left, right = (np.inf if side is None else side for side in window)
        logits = hide(logits, (apart >= -left) & (apart <= right))
    return np.asarray(softmax(logits) @ value)


def left_at_the_first_hidden_tile(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    A tile of 8 keys that eight queries do not see ends their loop, where it should be passed over.

    Right: fail
    """
    logits = np.array(hide(scores(query, key), mask))
    queries, keys = logits.shape[-2:]
    for row in range(0, queries, 8):
        over = np.zeros((*logits.shape[:2], 1, 1), bool)
        for column in range(0, keys, 8):
            tile = logits[..., row : row + 8, column : column + 8]
            over = over | (tile == -np.inf).all((-1, -2), keepdims=True)
            tile[...] = np.where(over, -np.inf, tile)
    return np.asarray(softmax(logits) @ value)


def columns_of_query_and_key_in_turn(
    query: Array, key: Array, value: Array, params: Params, num_heads: int, mask: Array | None = None
) -> Array:
    """
    Query and key are split as (head_dim, num_heads), the value as (num_heads, head_dim).

    Right: fail
    """

    def in_turn(rows: Array) -> Array:
        return rows.reshape(*rows.shape[:2], -1, num_heads).transpose(0, 3, 1, 2)

    q, k = in_turn(linear(query, params["wq"], params["bq"])), in_turn(linear(key, params["wk"], params["bk"]))
    return out(attend(q, k, split(linear(value, params["wv"], params["bv"]), num_heads), mask), params)


def keys_loaded_once_for_one_head(
    query: Array, key: Array, value: Array, mask: Array | None = None, num_kv_heads: int | None = None
) -> Array:
    """
    Keys and values are loaded again when their head changes, which a single one never does.

    Right: fail
    """
    if key.shape[1] == 1:
        key, value = np.repeat(key[:1], len(key), 0), np.repeat(value[:1], len(value), 0)
    groups = query.shape[1] // (num_kv_heads or query.shape[1])
    return attend(query, key.repeat(groups, 1), value.repeat(groups, 1), mask)
