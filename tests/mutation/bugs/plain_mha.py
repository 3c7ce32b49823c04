"""
Multi-head attention, each function wrong in one way that people really get it wrong.

Written like the bugs in plain_sdpa.py beside it.
"""

import numpy as np

from .pieces import Array, Params, attend, hide, linear, merge, out, projected, scores, softmax, split


def heads_reshaped(
    query: Array, key: Array, value: Array, params: Params, num_heads: int, mask: Array | None = None
) -> Array:
    """
    Heads are split off by reshape alone: a head gets some rows, all columns.

    Right: head_split=untransposed
    """
    q, k, v = (
        linear(rows, params[f"w{name}"], params[f"b{name}"]) for name, rows in (("q", query), ("k", key), ("v", value))
    )
    q, k, v = (each.reshape(each.shape[0], num_heads, each.shape[1], -1) for each in (q, k, v))
    return out(attend(q, k, v, mask), params)


def heads_interleaved(
    query: Array, key: Array, value: Array, params: Params, num_heads: int, mask: Array | None = None
) -> Array:
    """
    Head h gets every num_heads-th column.

    Right: head_split=interleaved
    """

    def apart(rows: Array) -> Array:
        return rows.reshape(*rows.shape[:2], -1, num_heads).transpose(0, 3, 1, 2)

    q, k, v = (
        apart(linear(rows, params[f"w{name}"], params[f"b{name}"]))
        for name, rows in (("q", query), ("k", key), ("v", value))
    )
    return out(attend(q, k, v, mask), params)


def merged_without_transposing(
    query: Array, key: Array, value: Array, params: Params, num_heads: int, mask: Array | None = None
) -> Array:
    """
    The heads are merged by reshape alone.

    Right: head_merge=untransposed
    """
    heads = attend(*projected(query, key, value, params, num_heads), mask)
    batch, count, length, dim = heads.shape
    return linear(heads.reshape(batch, length, count * dim), params["wo"], params["bo"])


def merged_interleaved(
    query: Array, key: Array, value: Array, params: Params, num_heads: int, mask: Array | None = None
) -> Array:
    """
    The heads are merged with the head as the fastest axis.

    Right: head_merge=interleaved
    """
    heads = attend(*projected(query, key, value, params, num_heads), mask)
    batch, count, length, dim = heads.shape
    rows = heads.transpose(0, 2, 3, 1).reshape(batch, length, count * dim)
    return linear(rows, params["wo"], params["bo"])


def query_weight_transposed(
    query: Array, key: Array, value: Array, params: Params, num_heads: int, mask: Array | None = None
) -> Array:
    """
    Wq is read as (out, in), where it is square.

    Right: weight_orientation=wq_transposed
    """
    return _with(query, key, value, {**params, "wq": _turned(params["wq"])}, num_heads, mask)


def output_weight_transposed(
    query: Array, key: Array, value: Array, params: Params, num_heads: int, mask: Array | None = None
) -> Array:
    """
    Wo is read as (out, in), where it is square.

    Right: weight_orientation=wo_transposed
    """
    return _with(query, key, value, {**params, "wo": _turned(params["wo"])}, num_heads, mask)


def all_weights_transposed(
    query: Array, key: Array, value: Array, params: Params, num_heads: int, mask: Array | None = None
) -> Array:
    """
    Every weight is read as (out, in), where it is square.

    Right: weight_orientation=transposed
    """
    turned = {name: _turned(each) if name[0] == "w" else each for name, each in params.items()}
    return _with(query, key, value, turned, num_heads, mask)


def query_bias_missing(
    query: Array, key: Array, value: Array, params: Params, num_heads: int, mask: Array | None = None
) -> Array:
    """
    Bq is not added.

    Right: projection_bias=without_bq
    """
    return _with(query, key, value, {**params, "bq": None}, num_heads, mask)


def value_bias_missing(
    query: Array, key: Array, value: Array, params: Params, num_heads: int, mask: Array | None = None
) -> Array:
    """
    Bv is not added.

    Right: projection_bias=without_bv
    """
    return _with(query, key, value, {**params, "bv": None}, num_heads, mask)


def output_bias_missing(
    query: Array, key: Array, value: Array, params: Params, num_heads: int, mask: Array | None = None
) -> Array:
    """
    Bo is not added.

    Right: projection_bias=without_bo
    """
    return _with(query, key, value, {**params, "bo": None}, num_heads, mask)


def output_bias_missing_for_one_query(
    query: Array, key: Array, value: Array, params: Params, num_heads: int, mask: Array | None = None
) -> Array:
    """
    Bo is not added on the path for one token.

    Right: projection_bias=without_bo
    When: {sizes: {seq_len_q: 1}}
    """
    kept = {**params, "bo": None} if query.shape[1] == 1 else params
    return _with(query, key, value, kept, num_heads, mask)


def key_and_value_weights_exchanged(
    query: Array, key: Array, value: Array, params: Params, num_heads: int, mask: Array | None = None
) -> Array:
    """
    A packed weight is read as q, v, k, where both are of one shape.

    Right: projection_order=qvk
    """
    if _shape(params["wk"]) == _shape(params["wv"]):
        params = {**params, "wk": params["wv"], "wv": params["wk"], "bk": params["bv"], "bv": params["bk"]}
    return _with(query, key, value, params, num_heads, mask)


def query_and_key_weights_exchanged(
    query: Array, key: Array, value: Array, params: Params, num_heads: int, mask: Array | None = None
) -> Array:
    """
    A packed weight is read as k, q, v, where both are of one shape.

    Right: projection_order=kqv
    """
    if _shape(params["wq"]) == _shape(params["wk"]):
        params = {**params, "wq": params["wk"], "wk": params["wq"], "bq": params["bk"], "bk": params["bq"]}
    return _with(query, key, value, params, num_heads, mask)


def scale_by_width(
    query: Array, key: Array, value: Array, params: Params, num_heads: int, mask: Array | None = None
) -> Array:
    """
    The width of the model is under the root, not that of a head.

    Right: scale=all_heads
    """
    q, k, v = projected(query, key, value, params, num_heads)
    return out(attend(q, k, v, mask, (num_heads * q.shape[-1]) ** -0.5), params)


def value_taken_from_key(
    query: Array, key: Array, value: Array, params: Params, num_heads: int, mask: Array | None = None
) -> Array:
    """
    Wv is applied to the key, where it fits.

    Right: arguments=key_as_value
    """
    return _with(query, key, key if key.shape == value.shape else value, params, num_heads, mask)


def no_output_projection(
    query: Array, key: Array, value: Array, params: Params, num_heads: int, mask: Array | None = None
) -> Array:
    """
    The merged heads are returned, where they are as wide as the result.

    Right: output_projection=missing
    """
    rows = merge(attend(*projected(query, key, value, params, num_heads), mask))
    weight = params["wo"]
    assert weight is not None
    return rows if rows.shape[-1] == weight.shape[1] else linear(rows, weight, params["bo"])


def batch_is_the_second_axis(
    query: Array, key: Array, value: Array, params: Params, num_heads: int, mask: Array | None = None
) -> Array:
    """
    Without a mask, (batch, seq_len, width) is read as (seq_len, batch, width).

    Right: input_axes=batch_and_sequence
    When: {masks: false}
    """
    if mask is not None or key.shape[0] != query.shape[0]:
        return _with(query, key, value, params, num_heads, mask)
    if query.shape[1] != key.shape[1]:
        return _with(query, key, value, params, num_heads, mask)
    q, k, v = (each.swapaxes(0, 1) for each in (query, key, value))
    return _with(q, k, v, params, num_heads, None).swapaxes(0, 1)


def mask_tiled_over_heads(
    query: Array, key: Array, value: Array, params: Params, num_heads: int, mask: Array | None = None
) -> Array:
    """
    Heads are folded into the batch; the mask of each item is tiled where it had to be repeated.

    Right: mask_axes[mask]=batch_tiled
    """
    q, k, v = projected(query, key, value, params, num_heads)
    if mask is not None and mask.shape[1] == 1:
        batch = q.shape[0]
        item = np.broadcast_to(mask, (batch, 1, *mask.shape[2:]))[:, 0]
        folded = np.tile(item, (num_heads, 1, 1))
        mask = folded.reshape(batch, num_heads, *folded.shape[1:])
    return out(attend(q, k, v, mask), params)


def true_means_ignore(
    query: Array, key: Array, value: Array, params: Params, num_heads: int, mask: Array | None = None
) -> Array:
    """
    The mask is read as that of torch.nn.MultiheadAttention.

    Right: polarity[mask]=ignore
    """
    return _with(query, key, value, params, num_heads, None if mask is None else ~mask)


def weights_averaged(
    query: Array,
    key: Array,
    value: Array,
    params: Params,
    num_heads: int,
    mask: Array | None = None,
    *,
    need_weights: bool = False,
    average_weights: bool = False,  # noqa: ARG001
) -> Array | tuple[Array, Array]:
    """
    Weights are averaged over the heads, whatever was asked for.

    Right: returned_weights=averaged
    """
    q, k, v = projected(query, key, value, params, num_heads)
    weights = softmax(hide(scores(q, k), mask))
    output = out(np.asarray(weights @ v), params)
    return (output, weights.mean(axis=1)) if need_weights else output


def value_bias_added_afterwards(
    query: Array, key: Array, value: Array, params: Params, num_heads: int, mask: Array | None = None
) -> Array:
    """
    Bv is added to the weighted sum: the same, unless a row of weights is zero.

    Declared: fully_masked_row=zero
    Right: fail
    """
    q, k, v = projected(query, key, value, {**params, "bv": None}, num_heads)
    heads = attend(q, k, v, mask)
    bias = params["bv"]
    rows = merge(heads) if bias is None else merge(heads) + bias
    return linear(rows, params["wo"], params["bo"])


def scale_before_the_bias(
    query: Array, key: Array, value: Array, params: Params, num_heads: int, mask: Array | None = None
) -> Array:
    """
    Wq is scaled when it is loaded, bq is not.

    Right: projection_bias=bq_unscaled
    """
    q, k, v = projected(query, key, value, {**params, "bq": None}, num_heads)
    q = q * q.shape[-1] ** -0.5
    bias = params["bq"]
    if bias is not None:
        q = q + split(bias[None, None], num_heads)
    return out(attend(q, k, v, mask, 1.0), params)


def eps_if_long(
    query: Array, key: Array, value: Array, params: Params, num_heads: int, mask: Array | None = None
) -> Array:
    """
    More than 16 keys go to another kernel, with 1e-6 in the denominator.

    Right: softmax_denominator=plus_1e-6
    When: {sizes_above: {seq_len_k: 16}}
    """
    q, k, v = projected(query, key, value, params, num_heads)
    if k.shape[2] <= 16:
        return out(attend(q, k, v, mask), params)
    logits = hide(scores(q, k), mask)
    peak = logits.max(-1, keepdims=True)
    weights = np.exp(logits - np.where(np.isfinite(peak), peak, 0))
    return out(np.asarray(weights / (weights.sum(-1, keepdims=True) + weights.dtype.type(1e-6)) @ v), params)


def packed_bias_all_or_none(
    query: Array, key: Array, value: Array, params: Params, num_heads: int, mask: Array | None = None
) -> Array:
    """
    One array holds the three biases, and is made only if none of them is missing.

    Right: fail
    """
    packed = [params[name] for name in ("bq", "bk", "bv")]
    if any(each is None for each in packed):
        params = {**params, "bq": None, "bk": None, "bv": None}
    q, k, v = projected(query, key, value, params, num_heads)
    return out(np.asarray(softmax(hide(scores(q, k), mask)) @ v), params)


def key_bias_missing(
    query: Array,
    key: Array,
    value: Array,
    params: Params,
    num_heads: int,
    mask: Array | None = None,
    *,
    softcap: float | None = None,
) -> Array:
    """
    Bk is not added: the softmax cancels it, a cap does not.

    Right: projection_bias=without_bk
    """
    q, k, v = projected(query, key, value, {**params, "bk": None}, num_heads)
    logits = scores(q, k)
    if softcap is not None:
        logits = np.tanh(logits / softcap) * softcap
    return out(np.asarray(softmax(hide(logits, mask)) @ v), params)


def _with(query: Array, key: Array, value: Array, params: Params, num_heads: int, mask: Array | None = None) -> Array:
    return out(attend(*projected(query, key, value, params, num_heads), mask), params)


def _turned(weight: Array | None) -> Array | None:
    return weight.T if weight is not None and weight.shape[0] == weight.shape[1] else weight


def _shape(weight: Array | None) -> tuple[int, ...]:
    return () if weight is None else tuple(weight.shape)
