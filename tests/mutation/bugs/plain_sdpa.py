"""
Scaled dot-product attention, each function wrong in one way that people really get it wrong.

Written from experience and from bug trackers, without looking at the table of deviations. What stands after `Right:`
was written before the tool was asked (docs/mutation.md says how it is read).
"""

import numpy as np

from .pieces import Array, attend, hide, past, scores, softmax


def true_means_ignore(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    The mask is read as that of torch.nn.MultiheadAttention.

    Right: polarity[mask]=ignore
    """
    return attend(query, key, value, None if mask is None else ~mask)


def scale_missing(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    The logits are not scaled.

    Right: scale=none
    """
    return attend(query, key, value, mask, 1.0)


def scale_by_dim(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Divided by head_dim, the root forgotten.

    Right: scale=squared
    """
    return attend(query, key, value, mask, 1 / query.shape[-1])


def scale_by_all_heads(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    The width of all heads together is under the root.

    Right: scale=all_heads
    """
    return attend(query, key, value, mask, (query.shape[1] * query.shape[-1]) ** -0.5)


def scale_by_length(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    The wrong axis is under the root.

    Right: scale=seq_len
    """
    return attend(query, key, value, mask, key.shape[-2] ** -0.5)


def scale_by_value_dim(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    The value's width is under the root.

    Right: scale=value_dim
    """
    return attend(query, key, value, mask, value.shape[-1] ** -0.5)


def scale_upside_down(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Multiplied by the root of head_dim.

    Right: scale=inverted
    """
    return attend(query, key, value, mask, query.shape[-1] ** 0.5)


def scale_argument_ignored(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, scale: float | None = None
) -> Array:
    """
    The caller's scale is dropped.

    Right: scale=ignored
    """
    assert scale is None or scale == scale  # noqa: PLR0124 - it is looked at, and no more
    return attend(query, key, value, mask)


def bias_is_scaled(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, bias: Array | None = None
) -> Array:
    """
    The bias is added before the scale.

    Right: bias_scale=scaled
    """
    logits = query @ key.swapaxes(-1, -2)
    logits = (logits if bias is None else logits + bias) * query.shape[-1] ** -0.5
    return np.asarray(softmax(hide(logits, mask)) @ value)


def bias_ignored(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    *,
    bias: Array | None = None,  # noqa: ARG001
) -> Array:
    """
    An additive mask has no effect.

    Right: use[bias]=ignored
    """
    return attend(query, key, value, mask)


def bias_cast_to_bool(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, bias: Array | None = None
) -> Array:
    """
    What is not zero in a float mask attends.

    Right: float_mask[bias]=cast_to_bool
    """
    logits = scores(query, key)
    if bias is not None:
        logits = hide(logits, bias.astype(bool))
    return np.asarray(softmax(hide(logits, mask)) @ value)


def bias_subtracted(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, bias: Array | None = None
) -> Array:
    """
    The sign of the bias is wrong.

    Right: float_mask[bias]=subtracted
    """
    logits = scores(query, key)
    return np.asarray(softmax(hide(logits if bias is None else logits - bias, mask)) @ value)


def bias_of_first_head(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, bias: Array | None = None
) -> Array:
    """
    Every head gets the bias of the first.

    Right: mask_axes[bias]=first_head
    """
    logits = scores(query, key)
    return np.asarray(softmax(hide(logits if bias is None else logits + bias[:, :1], mask)) @ value)


def softmax_over_queries(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    The softmax runs over axis -2.

    Right: softmax_axis=queries
    """
    return np.asarray(softmax(hide(scores(query, key), mask), -2) @ value)


def softmax_over_heads(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    The softmax runs over axis 1.

    Right: softmax_axis=heads
    """
    return np.asarray(softmax(hide(scores(query, key), mask), 1) @ value)


def softmax_in_base_two(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    exp2, without the factor log2(e).

    Right: softmax_base=two
    """
    logits = hide(scores(query, key), mask)
    peak = logits.max(-1, keepdims=True)
    weights = np.exp2(logits - np.where(np.isfinite(peak), peak, 0))
    total = weights.sum(-1, keepdims=True)
    return np.asarray(weights / np.where(total == 0, 1, total) @ value)


def softmax_without_maximum(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    The exponential overflows for large logits.

    NumPy computes in float16 throughout where its inputs are.

    Right: softmax_maximum=missing or softmax_maximum=missing_guarded or in_float16 when {dtype: [float16]}
    """
    weights = np.exp(hide(scores(query, key), mask))
    total = weights.sum(-1, keepdims=True)
    return np.asarray(weights / np.where(total == 0, 1, total) @ value)


def softmax_with_eps(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    1e-6 in the denominator, so that nothing is divided by zero.

    Right: softmax_denominator=plus_1e-6
    """
    logits = hide(scores(query, key), mask)
    peak = logits.max(-1, keepdims=True)
    weights = np.exp(logits - np.where(np.isfinite(peak), peak, 0))
    return np.asarray(weights / (weights.sum(-1, keepdims=True) + weights.dtype.type(1e-6)) @ value)


def softmax_with_eps_in_float32(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    The same, in the kernel for float32 alone.

    Right: softmax_denominator=plus_1e-6
    When: {dtype: [float32]}
    """
    return (softmax_with_eps if query.dtype == np.float32 else attend)(query, key, value, mask)


def softmax_with_maximum_of_all(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    One maximum for the whole tensor: rows far below it vanish.

    Right: softmax_maximum=of_all
    """
    logits = hide(scores(query, key), mask)
    peak = logits.max()
    weights = np.exp(logits - (peak if np.isfinite(peak) else 0))
    total = weights.sum(-1, keepdims=True)
    return np.asarray(weights / np.where(total == 0, 1, total) @ value)


def softmax_in_half(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    The softmax runs in float16, whatever came in.

    Right: softmax_in_float16 or scores_and_softmax_in_float16
    """
    weights = softmax(hide(scores(query, key).astype(np.float16), mask))
    return np.asarray(weights.astype(value.dtype) @ value)


def products_summed_in_half(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    float16 products are summed one after the other in float16, as without an fp32 accumulator.

    Right: float16_accumulation or in_float16
    When: {dtype: [float16]}
    """
    if query.dtype != np.float16:
        return attend(query, key, value, mask)
    logits = np.zeros((*query.shape[:-1], key.shape[-2]), np.float16)
    for i in range(query.shape[-1]):
        logits = logits + query[..., :, None, i] * key[..., None, :, i]
    weights = softmax(hide(logits * query.shape[-1] ** -0.5, mask))
    result = np.zeros((*query.shape[:-1], value.shape[-1]), np.float16)
    for j in range(key.shape[-2]):
        result = result + weights[..., j, None] * value[..., j, None, :]
    return np.asarray(result)


def result_in_double(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    A float64 array of one number, the scale, carries the result along.

    Right: result_dtype=float64
    """
    return np.asarray(softmax(hide(scores(query, key, 1.0) * np.array([query.shape[-1] ** -0.5]), mask)) @ value)


def mask_ignored(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,  # noqa: ARG001
) -> Array:
    """
    The mask has no effect.

    Right: use[mask]=ignored
    """
    return attend(query, key, value)


def mask_after_softmax(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    What is masked is set to zero after the softmax; the rest does not sum to one.

    Right: mask_fill=zero_after_softmax
    """
    weights = softmax(scores(query, key))
    return np.asarray((weights if mask is None else weights * mask) @ value)


def mask_times_logits(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Masked logits become zero, which is not nothing.

    Right: mask_fill=zero
    """
    return np.asarray(softmax(hide(scores(query, key), mask, 0.0)) @ value)


def mask_added_as_numbers(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    True adds one to a logit.

    Right: number_mask[mask]=added
    """
    logits = scores(query, key)
    return np.asarray(softmax(logits if mask is None else logits + mask.astype(logits.dtype)) @ value)


def mask_with_tiny(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    finfo.tiny, where finfo.min was meant.

    Right: mask_fill=zero
    """
    return np.asarray(softmax(hide(scores(query, key), mask, float(np.finfo(query.dtype).tiny))) @ value)


def mask_adds_ten_thousand(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    The additive mask of BERT: large logits still win.

    Right: mask_fill=minus_1e4
    """
    logits = scores(query, key)
    return np.asarray(softmax(logits if mask is None else logits + (1 - mask.astype(logits.dtype)) * -1e4) @ value)


def mask_adds_a_billion(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    (1 - mask) * -1e9, which in float16 is zero times infinity.

    Right: mask_fill=minus_1e9 or mask_fill=times_infinity when {dtype: [float16]}
    """
    logits = scores(query, key)
    return np.asarray(softmax(logits if mask is None else logits + (1 - mask.astype(logits.dtype)) * -1e9) @ value)


def mask_fill_positive(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    The sign of the fill is wrong: only what is masked is seen.

    Right: mask_fill=adds_10000
    """
    logits = scores(query, key)
    return np.asarray(softmax(logits if mask is None else logits + (1 - mask.astype(logits.dtype)) * 1e4) @ value)


def mask_of_first_item(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Every item of the batch gets the mask of the first.

    Right: mask_axes[mask]=first_batch
    """
    return attend(query, key, value, None if mask is None else mask[:1])


def mask_of_first_head(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Every head gets the mask of the first.

    Right: mask_axes[mask]=first_head
    """
    return attend(query, key, value, None if mask is None else mask[:, :1])


def mask_of_first_query(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Every query gets the mask of the first.

    Right: mask_axes[mask]=first_query
    """
    return attend(query, key, value, None if mask is None else mask[:, :, :1])


def mask_tiled_over_heads(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Heads are folded into the batch; the mask of each item is tiled where it had to be repeated.

    Right: mask_axes[mask]=batch_tiled
    """
    batch, heads, length, _ = query.shape
    q, k, v = (each.reshape(batch * heads, *each.shape[2:]) for each in (query, key, value))
    if mask is None or mask.shape[1] != 1:
        return attend(query, key, value, mask)
    item = np.broadcast_to(mask, (batch, 1, *mask.shape[2:]))[:, 0]
    return attend(q, k, v, np.tile(item, (heads, 1, 1))).reshape(batch, heads, length, -1)


def mask_transposed_if_square(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Rows and columns of the mask are exchanged, which only fits where there are as many queries as keys.

    Right: mask_axes[mask]=transposed
    """
    square = query.shape[2] == key.shape[2]
    return attend(query, key, value, mask.swapaxes(-1, -2) if square and mask is not None else mask)


def mask_ignored_for_one_query(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    The path for one token at a time has no mask.

    Right: use[mask]=ignored
    When: {sizes: {seq_len_q: 1}}
    """
    return attend(query, key, value, None if query.shape[2] == 1 else mask)


def causal_ignored(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    *,
    is_causal: bool = False,  # noqa: ARG001
) -> Array:
    """
    The flag has no effect.

    Right: use[is_causal]=ignored
    """
    return attend(query, key, value, mask)


def causal_ignored_with_mask(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, is_causal: bool = False
) -> Array:
    """
    The flag has no effect if a mask is given too.

    Right: use[is_causal]=ignored_beside_others
    """
    if is_causal and mask is None:
        mask = past(scores(query, key))
    return attend(query, key, value, mask)


def mask_ignored_with_causal(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, is_causal: bool = False
) -> Array:
    """
    The fast causal path takes no mask.

    Right: use[mask]=ignored_beside_others
    """
    return attend(query, key, value, past(scores(query, key)) if is_causal else mask)


def causal_or_mask(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, is_causal: bool = False
) -> Array:
    """
    What either of the two allows is seen.

    Right: mask_combination=or
    """
    if is_causal:
        seen = past(scores(query, key))
        mask = seen if mask is None else mask | seen
    return attend(query, key, value, mask)


def causal_without_itself(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, is_causal: bool = False
) -> Array:
    """
    A token does not see itself.

    Right: causal_alignment=strict
    """
    if is_causal:
        seen = past(scores(query, key), -1)
        mask = seen if mask is None else mask & seen
    return attend(query, key, value, mask)


def causal_sees_the_next(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, is_causal: bool = False
) -> Array:
    """
    A token sees the next one.

    Right: causal_alignment=one_ahead
    """
    if is_causal:
        seen = past(scores(query, key), 1)
        mask = seen if mask is None else mask & seen
    return attend(query, key, value, mask)


def causal_upside_down(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, is_causal: bool = False
) -> Array:
    """
    A token sees itself and what comes after: triu for tril.

    Right: causal_alignment=reversed
    """
    if is_causal:
        seen = ~past(scores(query, key), -1)
        mask = seen if mask is None else mask & seen
    return attend(query, key, value, mask)


def causal_always_top_left(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    *,
    is_causal: bool = False,
    causal_alignment: str = "top_left",
) -> Array:
    """
    The anchor that is asked for is not looked at.

    Right: causal_alignment=always_top_left
    """
    assert causal_alignment
    if is_causal:
        seen = past(scores(query, key))
        mask = seen if mask is None else mask & seen
    return attend(query, key, value, mask)


def padding_inverted(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, key_padding_mask: Array | None = None
) -> Array:
    """
    True in the padding mask is read as: this is padding.

    Right: polarity[key_padding_mask]=ignore
    """
    if key_padding_mask is not None:
        real = ~key_padding_mask[:, None, None, :]
        mask = real if mask is None else mask & real
    return attend(query, key, value, mask)


def padding_on_queries(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, key_padding_mask: Array | None = None
) -> Array:
    """
    The padding mask lies along the queries; where that does not fit, along the keys.

    Right: mask_axes[key_padding_mask]=transposed
    """
    if key_padding_mask is not None:
        fits = query.shape[2] == key.shape[2]
        real = key_padding_mask[:, None, :, None] if fits else key_padding_mask[:, None, None, :]
        mask = real if mask is None else mask & real
    return attend(query, key, value, mask)


def padding_replaces_mask(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, key_padding_mask: Array | None = None
) -> Array:
    """
    The last mask wins.

    Right: mask_combination=last_wins or use[mask]=ignored_beside_others
    """
    if key_padding_mask is not None:
        mask = key_padding_mask[:, None, None, :]
    return attend(query, key, value, mask)


def padding_of_first_item(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, key_padding_mask: Array | None = None
) -> Array:
    """
    Every item has the padding of the first.

    Right: mask_axes[key_padding_mask]=first_batch
    """
    if key_padding_mask is not None:
        real = key_padding_mask[:1, None, None, :]
        mask = real if mask is None else mask & real
    return attend(query, key, value, mask)


def padding_broadcast_from_the_right(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, key_padding_mask: Array | None = None
) -> Array:
    """
    (batch, seq_len_k) goes in as it is: NumPy lines it up as (seq_len_q, seq_len_k), or refuses.

    Right: error or mask_axes[key_padding_mask]=batch_as_queries
    """
    if key_padding_mask is not None:
        mask = key_padding_mask if mask is None else mask & key_padding_mask
    return attend(query, key, value, mask)


def window_short_on_the_left(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    *,
    window: tuple[int | None, int | None] | None = None,
) -> Array:
    """
    Left counts the token itself.

    Right: window_edges=left_shorter
    """
    return _windowed(query, key, value, mask, window, left_edge=1)


def window_long_on_the_left(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    *,
    window: tuple[int | None, int | None] | None = None,
) -> Array:
    """
    One more than left.

    Right: window_edges=left_longer
    """
    return _windowed(query, key, value, mask, window, left_edge=-1)


def window_short_on_the_right(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    *,
    window: tuple[int | None, int | None] | None = None,
) -> Array:
    """
    Right is exclusive.

    Right: window_edges=right_shorter
    """
    return _windowed(query, key, value, mask, window, right_edge=1)


def window_without_right(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    *,
    window: tuple[int | None, int | None] | None = None,
) -> Array:
    """
    Only the left side is looked at.

    Right: window_edges=left_only
    """
    return _windowed(query, key, value, mask, None if window is None else (window[0], None))


def _windowed(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None,
    window: tuple[int | None, int | None] | None,
    left_edge: int = 0,
    right_edge: int = 0,
) -> Array:
    left, right = window or (None, None)
    behind = np.arange(query.shape[2])[:, None] - np.arange(key.shape[2])
    seen = np.ones(behind.shape, bool)
    if left is not None:
        seen &= behind <= left - left_edge
    if right is not None:
        seen &= -behind <= right - right_edge
    return attend(query, key, value, seen if mask is None else mask & seen)


def groups_tiled(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, num_kv_heads: int | None = None
) -> Array:
    """
    Query head h reads key head h modulo num_kv_heads.

    Right: grouped_heads=tile
    """
    times = query.shape[1] // (num_kv_heads or query.shape[1])
    return attend(query, np.tile(key, (1, times, 1, 1)), np.tile(value, (1, times, 1, 1)), mask)


def groups_of_first_head(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, num_kv_heads: int | None = None
) -> Array:
    """
    Grouped heads all read the first key head, as in multi-query attention.

    Right: grouped_heads=first
    """
    if num_kv_heads is not None and num_kv_heads < query.shape[1]:
        key, value = key[:, :1], value[:, :1]
    return attend(query, key, value, mask)


def weights_averaged(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, need_weights: bool = False
) -> Array | tuple[Array, Array]:
    """
    Weights come averaged over the heads, where those of each head are promised.

    Right: returned_weights=averaged
    """
    weights = softmax(hide(scores(query, key), mask))
    output = np.asarray(weights @ value)
    return (output, weights.mean(axis=1)) if need_weights else output


def weights_before_softmax(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, need_weights: bool = False
) -> Array | tuple[Array, Array]:
    """
    What is returned as weights are the logits.

    Right: returned_weights=before_softmax
    """
    logits = scores(query, key)
    output = np.asarray(softmax(hide(logits, mask)) @ value)
    return (output, logits) if need_weights else output


def weights_without_mask(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, need_weights: bool = False
) -> Array | tuple[Array, Array]:
    """
    The weights that are returned are those without a mask.

    Right: returned_weights=unmasked
    """
    output = attend(query, key, value, mask)
    return (output, softmax(scores(query, key))) if need_weights else output


def dropout_at_inference(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, dropout_p: float = 0.1
) -> Array:
    """
    A tenth of the weights is dropped whatever dropout_p says.

    Right: nondeterministic
    """
    rate = max(dropout_p, 0.1)
    weights = softmax(hide(scores(query, key), mask))
    kept = np.random.default_rng().random(weights.shape) >= rate
    return np.asarray((weights * kept / (1 - rate)).astype(weights.dtype) @ value)


def masked_values_leak(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Zero times NaN: an empty slot of a cache spoils every row.

    Declared: nonfinite_value=isolated
    Right: nonfinite_value=leaks
    """
    return attend(query, key, value, mask)


def value_is_key(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    The key is summed where it is as wide as the value.

    Right: value_path=key
    """
    return attend(query, key, key if key.shape == value.shape else value, mask)


def scaled_in_place(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    The query is scaled in place; where it is the key and the value too, so are they.

    Right: fail
    """
    query *= query.shape[-1] ** -0.5
    return attend(query, key, value, mask, 1.0)


def result_added_to_the_last(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    The buffer of a result is kept by its shape, and not cleared.

    Right: order_dependent or nondeterministic
    """
    result = attend(query, key, value, mask)
    kept = _KEPT.setdefault((result.shape, str(result.dtype)), np.zeros_like(result))
    kept += result
    return kept


_KEPT: dict[tuple[tuple[int, ...], str], Array] = {}


def keys_after_the_last_tile_dropped(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Keys are read in tiles of 16; what is left over after the last whole one is dropped.

    Right: key_tail=dropped_16
    When: {sizes_above: {seq_len_k: 15}}
    """
    whole = key.shape[2] // 16 * 16 or key.shape[2]
    mask = mask if mask is None or mask.shape[-1] == 1 else mask[..., :whole]
    return attend(query, key[:, :, :whole], value[:, :, :whole], mask)


def running_sum_not_rescaled(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Online softmax over blocks of 16 keys: when the maximum rises, the sum so far keeps its old scale.

    Right: online_softmax=not_rescaled_16
    """
    logits = hide(scores(query, key), mask)
    peak = np.full((*logits.shape[:-1], 1), -np.inf, logits.dtype)
    total, result = np.zeros_like(peak), np.zeros((*logits.shape[:-1], value.shape[-1]), logits.dtype)
    for start in range(0, logits.shape[-1], 16):
        block = logits[..., start : start + 16]
        risen = np.maximum(peak, block.max(-1, keepdims=True))
        safe = np.where(np.isfinite(risen), risen, 0)
        weights = np.exp(block - safe)
        total = total * np.exp(peak - safe) + weights.sum(-1, keepdims=True)
        result = result + weights @ value[..., start : start + 16, :]
        peak = risen
    return np.asarray(result / np.where(total == 0, 1, total))


def wide_heads_cut(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    The product reads no more than 64 numbers of a head.

    Right: fail
    """
    return attend(query[..., :64], key[..., :64], value, mask, query.shape[-1] ** -0.5)


def key_of_first_item(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    The stride of the batch is missing for the key.

    Right: fail
    """
    return attend(query, key[:1], value, mask)


def last_odd_query_not_written(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Queries are taken two at a time; of an odd number, more than one, the last is left at zero.

    Right: query_tail=zero
    When: {sizes_not_multiple: {seq_len_q: 2}, sizes_above: {seq_len_q: 1}}
    """
    result = attend(query, key, value, mask)
    if query.shape[2] % 2 and query.shape[2] > 1:
        result[:, :, -1] = 0
    return result


def causal_sees_the_next_if_long(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, is_causal: bool = False
) -> Array:
    """
    More than 32 keys go to another kernel, which is off by one.

    Right: causal_alignment=one_ahead
    When: {sizes_above: {seq_len_k: 32}}
    """
    if is_causal:
        seen = past(scores(query, key), int(key.shape[2] > 32))
        mask = seen if mask is None else mask & seen
    return attend(query, key, value, mask)


def output_not_transposed(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    The result comes as (batch, seq_len_q, num_heads, value_dim).

    Right: output_axes=transposed
    """
    return attend(query, key, value, mask).swapaxes(1, 2)


def weights_transposed_if_square(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Key times query, for query times key: fits where there are as many of both.

    Right: value_path=weights_transposed
    """
    logits = hide(scores(query, key), mask)
    weights = softmax(logits)
    return np.asarray((weights.swapaxes(-1, -2) if query.shape[2] == key.shape[2] else weights) @ value)


def softcap_after_mask(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, softcap: float | None = None
) -> Array:
    """
    The cap makes -softcap of minus infinity: masked keys are seen again.

    Right: softcap=after_mask
    """
    logits = hide(scores(query, key), mask)
    if softcap is not None:
        logits = np.tanh(logits / softcap) * softcap
    return np.asarray(softmax(logits) @ value)


def softcap_ignored(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    *,
    softcap: float | None = None,  # noqa: ARG001
) -> Array:
    """
    The cap has no effect.

    Right: softcap=ignored
    """
    return attend(query, key, value, mask)


def softcap_before_scale(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, softcap: float | None = None
) -> Array:
    """
    The products are capped, then scaled.

    Right: softcap=before_scale
    """
    logits = scores(query, key, 1.0)
    if softcap is not None:
        logits = np.tanh(logits / softcap) * softcap
    return np.asarray(softmax(hide(logits * query.shape[-1] ** -0.5, mask)) @ value)
