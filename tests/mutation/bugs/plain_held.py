"""
Bugs that were held out: written after the others, and tried once before anything was changed for them.

Of these thirteen three were named right at first (the wrong order of where, the flag of square calls, the scale twice),
seven were rejected without a name, three got a wrong one; then the table got the words that it lacked. What stands
after `Right:` was added with them.
"""

import numpy as np

from .pieces import Array, Params, attend, hide, linear, past, projected, scores, softmax
from .pieces import out as project_out


def where_in_the_wrong_order(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    np.where(mask, fill, logits): what may be seen is filled.

    Right: polarity[mask]=ignore or polarity[mask]=ignore+fully_masked_row=uniform
    """
    logits = scores(query, key)
    if mask is not None:
        logits = np.where(mask, np.asarray(max(-1e9, float(np.finfo(logits.dtype).min)), logits.dtype), logits)
    return np.asarray(softmax(logits) @ value)


def scale_by_precedence(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    head_dim ** -1 / 2 is (1 / head_dim) / 2.

    Right: fail
    """
    return attend(query, key, value, mask, query.shape[-1] ** -1 / 2)


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


def key_reshaped(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    The key is reshaped to (head_dim, seq_len_k), where it had to be transposed.

    Right: arguments=key_reshaped
    """
    turned = key.reshape(*key.shape[:2], key.shape[3], key.shape[2])
    return np.asarray(softmax(hide(query @ turned * query.shape[-1] ** -0.5, mask)) @ value)


def bias_added_twice(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, bias: Array | None = None
) -> Array:
    """
    The bias goes into the scores, and again into the softmax.

    Right: bias_scale=doubled
    """
    logits = scores(query, key)
    if bias is not None:
        logits = logits + bias + bias
    return np.asarray(softmax(hide(logits, mask)) @ value)


def softmax_over_folded_heads(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Batch and heads are folded into one axis, along which an old default axis of the softmax runs.

    Right: softmax_axis=items_and_heads
    """
    return np.asarray(softmax(hide(scores(query, key), mask), (0, 1)) @ value)


def weighted_with_another_letter(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    bhqk,bhvd->bhqd: weights and values are summed each for itself.

    Right: value_path=summed
    """
    weights = softmax(hide(scores(query, key), mask))
    return np.asarray(np.einsum("bhqk,bhvd->bhqd", weights, value), query.dtype)


def mask_of_items_on_heads(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    A mask of (batch, 1, ...) is put on the heads, where there are as many.

    Right: mask_axes[mask]=items_as_heads or mask_axes[mask]=items_tiled
    When: {sizes_equal: [[batch, num_heads]]}
    """
    batch, heads = query.shape[:2]
    if mask is not None and batch == heads and mask.shape[:2] == (batch, 1):
        mask = mask.swapaxes(0, 1)
    return attend(query, key, value, mask)


def last_key_dropped(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    range(seq_len_k - 1).

    Right: key_tail=last_dropped
    """
    length = max(key.shape[2] - 1, 1)
    mask = mask if mask is None or mask.shape[-1] == 1 else mask[..., :length]
    return attend(query, key[:, :, :length], value[:, :, :length], mask)


def diagonal_always_seen(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Every token sees itself, so that no row is empty.

    Right: always_attended=own_position
    """
    if mask is not None:
        mask = mask | np.eye(query.shape[2], key.shape[2], dtype=bool)
    return attend(query, key, value, mask)


def scaled_twice(
    query: Array, key: Array, value: Array, params: Params, num_heads: int, mask: Array | None = None
) -> Array:
    """
    The projected query is scaled, and the logits are again.

    Right: scale=squared
    """
    q, k, v = projected(query, key, value, params, num_heads)
    return project_out(attend(q * q.shape[-1] ** -0.5, k, v, mask), params)


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
