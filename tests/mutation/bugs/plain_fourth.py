"""
Bugs of a fourth set, written by strangers to the table: those for which it had no word, in words of our own.

Arguments that are given and read otherwise, units of log2, heads that share a key, padding, a single query.
"""

import numpy as np

from .pieces import Array, Params, attend, hide, linear, past, projected, scores, softmax, split
from .pieces import out as project_out

LOG2E = float(np.log2(np.e))


def given_scale_beside_the_default(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, scale: float | None = None
) -> Array:
    """
    A scale that is given is one more factor.

    Right: scale=given_times_default
    """
    factor = query.shape[-1] ** -0.5
    return attend(query, key, value, mask, factor if scale is None else factor * scale)


def given_scale_divides(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, scale: float | None = None
) -> Array:
    """
    A scale that is given is taken for what the logits are divided by, as the root of head_dim is.

    Right: scale=inverted
    When: {scaled: true}
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return attend(query, key, value, mask, None if not scale else 1 / scale)


def cap_in_units_of_log2(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, softcap: float | None = None
) -> Array:
    """
    For powers of two the scale has log2(e) in it, and the cap has not.

    Right: fail
    """
    logits = scores(query, key, query.shape[-1] ** -0.5 * LOG2E)
    if softcap is not None:
        logits = np.tanh(logits / softcap) * softcap
    return np.asarray(softmax(hide(logits, mask) / LOG2E) @ value)


def bias_in_units_of_log2(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, bias: Array | None = None
) -> Array:
    """
    For powers of two the scale has log2(e) in it, and the bias has not.

    Right: fail
    """
    logits = scores(query, key, query.shape[-1] ** -0.5 * LOG2E)
    return np.asarray(softmax(hide(logits if bias is None else logits + bias, mask) / LOG2E) @ value)


def bias_for_powers_of_two(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, bias: Array | None = None
) -> Array:
    """
    The bias is made ready for powers of two, and those of e are taken.

    Right: fail
    """
    logits = scores(query, key)
    return np.asarray(softmax(hide(logits if bias is None else logits + bias * LOG2E, mask)) @ value)


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

    Right: fail
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

    Right: fail
    """
    batch, heads, queries, dim = query.shape
    shared = num_kv_heads or heads
    groups = query.reshape(batch, shared, heads // shared, queries, dim)
    if mask is not None and mask.shape[1] > 1:
        mask = mask.reshape(len(mask), heads // shared, shared, *mask.shape[2:]).swapaxes(1, 2)
    elif mask is not None:
        mask = mask[:, :, None]
    return attend(groups, key[:, :, None], value[:, :, None], mask).reshape(batch, heads, queries, -1)


def _packed(query: Array, key: Array, value: Array, mask: Array | None, positions: Array, *, is_causal: bool) -> Array:
    """The queries of a group are one tall matrix; `positions` are those of its rows."""
    batch, heads, queries, dim = query.shape
    shared, keys = key.shape[1:3]
    logits = scores(query.reshape(batch, shared, -1, dim), key)
    seen = np.ones(logits.shape, dtype=bool)
    if mask is not None:
        seen &= np.broadcast_to(mask, (batch, heads, queries, keys)).reshape(logits.shape)
    if is_causal:
        seen &= np.arange(keys) <= positions[:, None]
    return np.asarray(softmax(hide(logits, seen)) @ value).reshape(batch, heads, queries, -1)


def packed_queries_divided(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    *,
    is_causal: bool = False,
    num_kv_heads: int | None = None,
) -> Array:
    """
    A row of the packed queries is divided by the heads of a group, though these do not lie side by side.

    Right: fail
    """
    group = query.shape[1] // (num_kv_heads or query.shape[1])
    positions = np.arange(group * query.shape[2]) // group
    return _packed(query, key, value, mask, positions, is_causal=is_causal)


def packed_queries_run_on(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    *,
    is_causal: bool = False,
    num_kv_heads: int | None = None,
) -> Array:
    """
    A row of the packed queries is its position, also in the second head of a group.

    Right: fail
    """
    group = query.shape[1] // (num_kv_heads or query.shape[1])
    return _packed(query, key, value, mask, np.arange(group * query.shape[2]), is_causal=is_causal)


def _padded_both_ways(mask: Array | None, padding: Array | None, queries: int) -> Array | None:
    if padding is None:
        return mask
    seen = padding[:, None, None, :]
    if padding.shape[1] == queries:
        seen = seen & padding[:, None, :, None]
    return seen if mask is None else mask & seen


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


def _projected_and_repeated(
    query: Array, key: Array, value: Array, params: Params, num_heads: int, shared: int
) -> tuple[Array, Array, Array]:
    q = split(linear(query, params["wq"], params["bq"]), num_heads)
    k, v = (
        split(linear(rows, params[f"w{name}"], params[f"b{name}"]), shared) for name, rows in (("k", key), ("v", value))
    )
    return q, np.repeat(k, num_heads // shared, axis=1), np.repeat(v, num_heads // shared, axis=1)


def mean_over_shared_heads(
    query: Array,
    key: Array,
    value: Array,
    params: Params,
    num_heads: int,
    mask: Array | None = None,
    *,
    num_kv_heads: int | None = None,
    need_weights: bool = False,
    average_weights: bool = False,
) -> Array | tuple[Array, Array]:
    """
    The weights that are returned are summed over the heads, and divided by how many keys these share.

    Right: fail
    """
    shared = num_kv_heads or num_heads
    q, k, v = _projected_and_repeated(query, key, value, params, num_heads, shared)
    weights = softmax(hide(scores(q, k), mask))
    result = project_out(weights @ v, params)
    if not need_weights:
        return result
    return result, weights.sum(axis=1) / shared if average_weights else weights


def averaged_before_weighing(
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
    Where the mean of the weights is asked for, it meets the values too.

    Right: fail
    """
    q, k, v = projected(query, key, value, params, num_heads)
    weights = softmax(hide(scores(q, k), mask))
    if need_weights and average_weights:
        weights = weights.mean(axis=1, keepdims=True)
    result = project_out(weights @ v, params)
    if not need_weights:
        return result
    return result, weights[:, 0] if average_weights else weights
