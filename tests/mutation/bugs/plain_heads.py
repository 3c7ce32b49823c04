"""Heads and projections that are split, packed, merged or averaged otherwise than asked."""

import numpy as np

from .pieces import Array, Params, attend, hide, linear, out, projected, scores, softmax, split
from .pieces import out as project_out


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


def _projected_and_repeated(
    query: Array, key: Array, value: Array, params: Params, num_heads: int, shared: int
) -> tuple[Array, Array, Array]:
    q = split(linear(query, params["wq"], params["bq"]), num_heads)
    k, v = (
        split(linear(rows, params[f"w{name}"], params[f"b{name}"]), shared) for name, rows in (("k", key), ("v", value))
    )
    return q, np.repeat(k, num_heads // shared, axis=1), np.repeat(v, num_heads // shared, axis=1)


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


def value_with_the_bias_of_the_key(
    query: Array, key: Array, value: Array, params: Params, num_heads: int, mask: Array | None = None
) -> Array:
    """
    A line was copied: the value's projection adds bk.

    Right: projection_bias=bk_for_value
    """
    bias = params["bk"]
    if bias is not None and params["bv"] is not None and bias.shape != params["bv"].shape:
        bias = params["bv"]
    q, k, _ = projected(query, key, value, params, num_heads)
    return project_out(attend(q, k, split(linear(value, params["wv"], bias), num_heads), mask), params)


def output_bias_of_each_head(
    query: Array, key: Array, value: Array, params: Params, num_heads: int, mask: Array | None = None
) -> Array:
    """
    Heads are projected one by one, each with the bias, and summed.

    Right: projection_bias=bo_of_each_head
    """
    heads = attend(*projected(query, key, value, params, num_heads), mask)
    weight, bias = params["wo"], params["bo"]
    assert weight is not None
    width = heads.shape[-1]
    each = [linear(heads[:, h], weight[h * width : (h + 1) * width], bias) for h in range(num_heads)]
    return np.sum(each, axis=0, dtype=query.dtype)


def packed_by_head(
    query: Array, key: Array, value: Array, params: Params, num_heads: int, mask: Array | None = None
) -> Array:
    """
    Columns of the packed weight are read as (head, qkv, dim), where they are (qkv, head, dim).

    Right: projection_order=by_head
    When: {alias: [qkv]}
    """
    weights = [each for name in "qkv" if (each := params[f"w{name}"]) is not None]
    biases = [each for name in "qkv" if (each := params[f"b{name}"]) is not None]
    shapes = {each.shape for each in weights}
    if query is not key or key is not value or len(shapes) > 1 or weights[0].shape[1] % num_heads:
        return project_out(attend(*projected(query, key, value, params, num_heads), mask), params)
    bias = np.concatenate(biases) if biases else None
    rows = linear(query, np.concatenate(weights, axis=1), bias).reshape(*query.shape[:2], num_heads, 3, -1)
    q, k, v = (rows[:, :, :, n].transpose(0, 2, 1, 3) for n in range(3))
    return project_out(attend(q, k, v, mask), params)


def key_reshaped(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    The key is reshaped to (head_dim, seq_len_k), where it had to be transposed.

    Right: arguments=key_reshaped
    """
    turned = key.reshape(*key.shape[:2], key.shape[3], key.shape[2])
    return np.asarray(softmax(hide(query @ turned * query.shape[-1] ** -0.5, mask)) @ value)


def weighted_with_another_letter(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    bhqk,bhvd->bhqd: weights and values are summed each for itself.

    Right: value_path=summed
    """
    weights = softmax(hide(scores(query, key), mask))
    return np.asarray(np.einsum("bhqk,bhvd->bhqd", weights, value), query.dtype)


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


def weights_of_first_head_for_the_mean(
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
    Where the mean of the weights is asked for, those of the first head are returned.

    Right: fail
    """
    q, k, v = projected(query, key, value, params, num_heads)
    weights = softmax(hide(scores(q, k), mask))
    result = project_out(weights @ v, params)
    if not need_weights:
        return result
    return result, weights[:, 0] if average_weights else weights


def logits_for_weights(
    query: Array,
    key: Array,
    value: Array,
    params: Params,
    num_heads: int,
    mask: Array | None = None,
    *,
    need_weights: bool = False,
) -> Array | tuple[Array, Array]:
    """
    What is returned as weights is what the softmax takes.

    Right: returned_weights=masked_logits
    """
    q, k, v = projected(query, key, value, params, num_heads)
    logits = hide(scores(q, k), mask)
    result = project_out(softmax(logits) @ v, params)
    return (result, logits) if need_weights else result


def softmax_over_folded_heads(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Batch and heads are folded into one axis, along which an old default axis of the softmax runs.

    Right: softmax_axis=batch_and_heads
    """
    return np.asarray(softmax(hide(scores(query, key), mask), (0, 1)) @ value)
