"""
Slips of loops over tiles and of sums in parts, and of layers that guess what an axis is.

They follow ninety of three people who did not know the table: those that had no name, a wrong one, or no case.
"""

import numpy as np

from .pieces import Array, Params, attend, hide, linear, merge, out, past, projected, scores, softmax


def loop_ends_with_the_tile_of_keys(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, is_causal: bool = False
) -> Array:
    """
    Queries go in tiles of 16, keys in tiles of 8; the last tile of keys is that which begins with the queries.

    Right: causal_loop=16x8_first_up_masked
    """
    logits = hide(scores(query, key), mask)
    if is_causal:
        first = np.arange(query.shape[-2])[:, None] // 16 * 16
        logits = hide(logits, past(logits) & (np.arange(key.shape[-2]) < first + 8))
    return np.asarray(softmax(logits) @ value)


def diagonal_is_one_tile(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, is_causal: bool = False
) -> Array:
    """
    Of the tiles of 4 keys beside a tile of 8 queries only the first is masked, the next one is taken whole.

    Right: fail
    """
    logits = hide(scores(query, key), mask)
    if is_causal:
        beyond = np.arange(key.shape[-2]) - np.arange(query.shape[-2])[:, None] // 8 * 8
        logits = hide(logits, past(logits) | ((beyond >= 4) & (beyond < 8)))
    return np.asarray(softmax(logits) @ value)


def window_begins_with_the_last_query(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    window: tuple[int | None, int | None] | None = None,
) -> Array:
    """
    The first tile of 8 keys is looked up for the last of 16 queries.

    Right: fail
    """
    logits = hide(scores(query, key), mask)
    if window is not None:
        queries, keys = logits.shape[-2:]
        rows = np.arange(queries)
        apart = np.arange(keys) - rows[:, None]
        left, right = window
        seen = np.ones((queries, keys), bool)
        if left is not None:
            last = np.minimum(rows // 16 * 16 + 15, queries - 1)
            seen &= (apart >= -left) & (np.arange(keys) >= ((last - left) // 8 * 8)[:, None])
        if right is not None:
            seen &= apart <= right
        logits = hide(logits, seen)
    return np.asarray(softmax(logits) @ value)


def parts_weighed_by_their_maxima(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Parts of 16 keys are normalised each, and averaged with the exponentials of their maxima.

    Right: fail
    """
    logits = hide(scores(query, key), mask)
    starts = range(0, key.shape[-2], 16)
    peaks = np.stack([logits[..., start : start + 16].max(-1, keepdims=True) for start in starts])
    top = peaks.max(0)
    counts = np.exp(peaks - np.where(np.isfinite(top), top, 0))
    parts = [softmax(logits[..., start : start + 16]) @ value[..., start : start + 16, :] for start in starts]
    total = counts.sum(0)
    return np.asarray((counts * np.stack(parts)).sum(0) / np.where(total == 0, 1, total), query.dtype)


def hidden_part_has_a_sum_of_one(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Parts of 8 keys tell their maximum and sum; where nothing is attended they tell 0 and 1.

    Right: fail
    """
    logits = hide(scores(query, key), mask)
    starts = range(0, key.shape[-2], 8)
    if len(starts) == 1:
        return attend(query, key, value, mask)
    parts = [logits[..., start : start + 8] for start in starts]
    hidden = [(part == -np.inf).all(-1, keepdims=True) for part in parts]
    peaks = [np.where(none, 0, part.max(-1, keepdims=True)) for part, none in zip(parts, hidden, strict=True)]
    top = np.max(peaks, axis=0)
    sums = sum(np.exp(part - top).sum(-1, keepdims=True) for part in parts)
    sums = sums + sum(np.where(none, np.exp(-top), 0) for none in hidden)
    return np.asarray(np.exp(logits - top) / sums @ value, query.dtype)


def last_vector_overlaps(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Keys are read eight at a time, the last eight from the end.

    Right: key_tail=repeated_8
    """
    keys = key.shape[-2]
    order = np.arange(keys)
    if keys > 8 and keys % 8:
        order = np.concatenate([order[: keys // 8 * 8], order[-8:]])
    if mask is not None and mask.shape[-1] > 1:
        mask = mask[..., order]
    return attend(query, key[..., order, :], value[..., order, :], mask)


def query_scaled_in_the_loop(
    query: Array, key: Array, value: Array, mask: Array | None = None, scale: float | None = None
) -> Array:
    """
    The line that scales the query stands inside of the loop over tiles of 16 keys.

    Right: fail
    """
    factor = query.dtype.type(query.shape[-1] ** -0.5 if scale is None else scale)
    tiles = []
    for start in range(0, key.shape[-2], 16):
        query = query * factor
        tiles.append(scores(query, key[..., start : start + 16, :], 1.0))
    return np.asarray(softmax(hide(np.concatenate(tiles, -1), mask)) @ value)


def unrolled_product_without_rest(
    query: Array, key: Array, value: Array, params: Params, num_heads: int, mask: Array | None = None
) -> Array:
    """
    The product of query and key goes by fours; what is left over has no loop of its own.

    Right: fail
    """
    q, k, v = projected(query, key, value, params, num_heads)
    whole = q.shape[-1] // 4 * 4 or q.shape[-1]
    return out(attend(q[..., :whole], k[..., :whole], v, mask, q.shape[-1] ** -0.5), params)


def sums_of_the_head_before(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Maximum, sum and result are set up once for an item, not once for each of its heads.

    Right: fail
    """
    logits = hide(scores(query, key), mask)
    items = []
    for item in range(query.shape[0]):
        before = np.empty((query.shape[-2], 0), logits.dtype), np.empty((0, value.shape[-1]), value.dtype)
        heads = []
        for head in range(query.shape[1]):
            before = np.hstack([before[0], logits[item, head]]), np.vstack([before[1], value[item, head]])
            heads.append(softmax(before[0]) @ before[1])
        items.append(np.stack(heads))
    return np.stack(items)


def tiles_of_the_first_item(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Which tiles of 8 are empty, full or neither is found out for the first item, and taken for all.

    Right: fail
    """
    if mask is None:
        return attend(query, key, value)
    queries, keys = query.shape[-2], key.shape[-2]
    seen = np.array(np.broadcast_to(mask, (*mask.shape[:2], queries, keys)))
    first = seen[:1].copy()
    for row in range(0, queries, 8):
        for column in range(0, keys, 8):
            tile = first[..., row : row + 8, column : column + 8]
            full, empty = tile.all((-1, -2), keepdims=True), ~tile.any((-1, -2), keepdims=True)
            own = seen[..., row : row + 8, column : column + 8]
            seen[..., row : row + 8, column : column + 8] = (own | full) & ~empty
    return attend(query, key, value, seen)


def mean_is_halved(
    query: Array,
    key: Array,
    value: Array,
    params: Params,
    num_heads: int,
    mask: Array | None = None,
    *,
    need_weights: bool = False,
    average_weights: bool = False,
) -> Array | tuple[Array, Array]:
    """
    The mean of the weights is kept up to date head by head, each time with a half.

    Right: fail
    """
    q, k, v = projected(query, key, value, params, num_heads)
    weights = softmax(hide(scores(q, k), mask))
    result = out(weights @ v, params)
    if not need_weights:
        return result
    if not average_weights:
        return result, weights
    mean = weights[:, 0]
    for head in range(1, num_heads):
        mean = (mean + weights[:, head]) / 2
    return result, mean


def heads_guessed_from_the_shape(
    query: Array, key: Array, value: Array, params: Params, num_heads: int, mask: Array | None = None
) -> Array:
    """
    What has num_heads for its second axis is taken to have its heads there.

    Right: fail
    """
    heads = []
    for rows, letter in ((query, "q"), (key, "k"), (value, "v")):
        wide = linear(rows, params["w" + letter], params["b" + letter])
        wide = wide.reshape(*wide.shape[:2], num_heads, -1)
        heads.append(wide if wide.shape[1] == num_heads else wide.transpose(0, 2, 1, 3))
    q, k, v = heads
    return out(attend(q, k, v, mask), params)


def packed_rows_in_another_order(
    query: Array, key: Array, value: Array, params: Params, num_heads: int, mask: Array | None = None
) -> Array:
    """
    Projected rows of one shape are packed q, k, v, and unpacked as q, k, v of each head.

    Right: fail
    """
    q, k, v = projected(query, key, value, params, num_heads)
    if q.shape == k.shape == v.shape:
        packed = np.concatenate([merge(each) for each in (q, k, v)], axis=-1)
        packed = packed.reshape(*packed.shape[:2], num_heads, 3, -1)
        q, k, v = (packed[:, :, :, part].transpose(0, 2, 1, 3) for part in range(3))
    return out(attend(q, k, v, mask), params)


def head_width_from_the_model(
    query: Array, key: Array, value: Array, params: Params, num_heads: int, mask: Array | None = None
) -> Array:
    """
    A head is taken to be as wide as its part of the model.

    Right: scale=query_dim_per_head
    """
    q, k, v = projected(query, key, value, params, num_heads)
    return out(attend(q, k, v, mask, float((query.shape[-1] / num_heads) ** -0.5)), params)


def causal_mask_of_what_to_hide(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, is_causal: bool = False
) -> Array:
    """
    The upper triangle is built as where masks hide what is True; here it is attended.

    Right: causal_alignment=future
    """
    logits = hide(scores(query, key), mask)
    return np.asarray(softmax(hide(logits, ~past(logits)) if is_causal else logits) @ value)


def fully_masked_rows_have_weights(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    *,
    need_weights: bool = False,
) -> Array | tuple[Array, Array]:
    """
    The output of a row that attends nothing is set to zero, its weights stay those of equal logits.

    Right: returned_weights=uniform_in_fully_masked_rows
    """
    logits = hide(scores(query, key), mask)
    result = softmax(logits) @ value
    dead = (logits == -np.inf).all(-1, keepdims=True)
    return (result, softmax(np.where(dead, np.asarray(0, logits.dtype), logits))) if need_weights else result


def sums_of_many_keys_in_single(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    More than 16 keys go through a path that keeps what it sums in float32, also for float64.

    Of so few keys as there are in float64 the sums are no coarser than the result would be.

    Right: float32_accumulation or in_float32 or scores_in_float32 or softmax_in_float32 or results_in_float32
    When: {sizes_above: {seq_len_k: 16}}
    """
    weights = softmax(hide(scores(query, key), mask))
    if key.shape[-2] <= 16 or query.dtype != np.float64:
        return np.asarray(weights @ value)
    return np.asarray(weights.astype(np.float32) @ value.astype(np.float32), np.float64)


def weights_stay_in_single(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    *,
    need_weights: bool = False,
) -> Array | tuple[Array, Array]:
    """
    The softmax works in float32; the output is cast back, the weights that are returned are not.

    Right: returned_weights=float32
    When: {dtype: [float16]}
    """
    wide = query.astype(np.promote_types(query.dtype, np.float32))
    weights = softmax(hide(scores(wide, key.astype(wide.dtype)), mask))
    result = (weights @ value.astype(wide.dtype)).astype(query.dtype)
    return (result, weights) if need_weights else result


def count_of_tiles_rounded_down(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, is_causal: bool = False
) -> Array:
    """
    Queries go in tiles of 4, keys in tiles of 8; so many of these are gone through as end before the queries do.

    Right: causal_loop=4x8_whole_down_masked
    """
    logits = hide(scores(query, key), mask)
    if is_causal:
        behind = (np.arange(query.shape[-2])[:, None] // 4 + 1) * 4
        logits = hide(logits, past(logits) & (np.arange(key.shape[-2]) // 8 < behind // 8))
    return np.asarray(softmax(logits) @ value)


def last_tile_of_the_loop_is_masked(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, is_causal: bool = False
) -> Array:
    """
    Queries go in tiles of 16, keys in tiles of 4, of which the last is masked; that may end behind the last key.

    Right: causal_loop=16x4_last_up_last_masked
    """
    logits = hide(scores(query, key), mask)
    if is_causal:
        tiles = np.arange(key.shape[-2]) // 4
        ends = np.minimum((np.arange(query.shape[-2])[:, None] // 16 + 1) * 16, query.shape[-2])
        last = np.minimum((ends - 1) // 4, tiles[-1])
        logits = hide(logits, (tiles < last) | (past(logits) & (tiles == last)))
    return np.asarray(softmax(logits) @ value)


def loop_over_keys_ends_with_the_queries(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Tiles of 8 keys are gone through until as many keys are done as there are queries, as in self-attention.

    Right: fail
    """
    logits = hide(scores(query, key), mask)
    done = -(-query.shape[-2] // 8) * 8
    return np.asarray(softmax(hide(logits, np.arange(key.shape[-2]) < done)) @ value)


def longest_sequence_is_the_last(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    key_padding_mask: Array | None = None,
) -> Array:
    """
    Lengths are taken to rise from item to item, as after sorting: no key behind the length of the last item is read.

    Right: fail
    """
    logits = hide(scores(query, key), mask)
    if key_padding_mask is not None:
        logits = hide(logits, key_padding_mask[:, None, None])
        logits = hide(logits, np.arange(key.shape[-2]) < key_padding_mask[-1].sum())
    return np.asarray(softmax(logits) @ value)


def prefetched_key_is_of_the_next_head(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    The key is fetched one head ahead, and the last head has no other.

    Right: fail
    """
    ahead = np.minimum(np.arange(1, key.shape[1] + 1), key.shape[1] - 1)
    return attend(query, key[:, ahead], value, mask)


def queries_are_indexed_within_their_tile(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    The place of a query is taken within its tile of 4, so that later tiles read the first one again.

    Right: fail
    """
    return attend(query[:, :, np.arange(query.shape[2]) % 4], key, value, mask)
