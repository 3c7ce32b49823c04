"""
Scaled dot-product attention with a habit of some model or program, each right somewhere and wrong here.

Written by one who had not looked at the other bugs, and run before the table of deviations had a name for most of
them: of the first eleven two were named right at once (scale twice, zeros for padded keys), of the next four none.
"""

import numpy as np

from .pieces import Array, attend, hide, past, scores, softmax


def weights_renormalised(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Exponentials are multiplied by the mask, after a maximum that hidden keys share in.

    Right: softmax_maximum=of_masked_keys
    """
    logits = scores(query, key)
    kept = np.exp(logits - logits.max(axis=-1, keepdims=True)) * (True if mask is None else mask)
    total = kept.sum(axis=-1, keepdims=True)
    return np.asarray((kept / np.where(total == 0, 1, total)) @ value)


def cosine(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Query and key have length one, as where logits must stay small.

    Right: fail
    """
    query = query / np.linalg.norm(query, axis=-1, keepdims=True)
    key = key / np.linalg.norm(key, axis=-1, keepdims=True)
    return attend(query, key, value, mask)


def distance_bias(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    ALiBi, always on.

    Right: fail
    """
    heads, queries, keys = query.shape[1], query.shape[2], key.shape[2]
    slopes = 2.0 ** (-8 * np.arange(1, heads + 1) / heads)
    apart = np.abs(np.arange(queries)[:, None] - np.arange(keys)[None])
    logits = scores(query, key) - (slopes[:, None, None] * apart).astype(query.dtype)
    return np.asarray(softmax(hide(logits, mask)) @ value)


def padded_keys_zeroed(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, key_padding_mask: Array | None = None
) -> Array:
    """
    Padded keys are zero, and not masked: so are their logits, but where a key is no number.

    Right: padded_keys=zeroed
    """
    if key_padding_mask is not None:
        key = key * key_padding_mask[:, None, :, None]
    return attend(query, key, value, mask)


def maximum_from_zero(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    The running maximum begins at zero.

    Right: softmax_maximum=from_zero
    """
    logits = hide(scores(query, key), mask)
    kept = np.exp(logits - np.maximum(logits.max(axis=-1, keepdims=True), 0))
    total = kept.sum(axis=-1, keepdims=True)
    return np.asarray((kept / np.where(total == 0, 1, total)) @ value)


def causal_by_default(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Without a mask it is a decoder.

    Right: causal_mask=unasked
    When: {masks: false}
    """
    return attend(query, key, value, past(scores(query, key)) if mask is None else mask)


def scale_of_one_size(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    The scale of heads of 64.

    Right: scale=is_0.125
    """
    return attend(query, key, value, mask, 0.125)


def scaled_twice(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    The caller scales the query, and so does this.

    Right: scale=squared
    """
    return attend(query * query.dtype.type(query.shape[-1] ** -0.5), key, value, mask)


def first_key_always_seen(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    The first key is a sink; where a mask has one column for all keys, that is every key, as it is for a dead row.

    Right: always_attended=first_key or always_attended=first_key when {mask_dims: [seq_len_k]}
    """
    if mask is not None:
        mask = mask.copy()
        mask[..., 0] = True
    return attend(query, key, value, mask)


def own_position_always_seen(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    The diagonal is opened, so that no row is empty.

    Right: always_attended=own_position
    """
    if mask is not None:
        mask = mask | np.eye(query.shape[2], key.shape[2], dtype=bool)
    return attend(query, key, value, mask)


def padding_counted(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, key_padding_mask: Array | None = None
) -> Array:
    """
    Padding is passed on as lengths, whichever side it is on.

    Right: mask_axes[key_padding_mask]=as_lengths
    """
    if key_padding_mask is not None:
        real = np.arange(key.shape[2]) < key_padding_mask.sum(axis=-1, keepdims=True)
        mask = real[:, None, None] if mask is None else mask & real[:, None, None]
    return attend(query, key, value, mask)


def mask_as_logarithm(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    The logarithm of the mask is added, with a little something against -inf: log(1e-9) - log(1 + 1e-9).

    Right: mask_fill=adds_-20.72326583794641
    """
    logits = scores(query, key)
    if mask is not None:
        logits = logits + np.log(mask + 1e-9).astype(logits.dtype)
    return np.asarray(softmax(logits) @ value)


def mask_fill_of_100(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    A number that seems low enough.

    Right: mask_fill=puts_-100
    """
    return np.asarray(softmax(hide(scores(query, key), mask, -100)) @ value)


def mask_of_last_item(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    A loop over items leaves the last mask.

    Right: fail
    """
    return attend(query, key, value, None if mask is None else mask[-1:])


def first_head_for_all(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    A loop over heads returns in its first turn.

    Right: head_result=first
    """
    result = attend(query, key, value, mask)
    return np.repeat(result[:, :1], result.shape[1], axis=1)


def result_rounded_to_float16(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    The result is handed on in float16, whatever came in.

    Right: results_in_float16
    """
    return attend(query, key, value, mask).astype(np.float16).astype(query.dtype)


def typing_slip_in_the_fill(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Masked logits are -1e-9, meant as -1e9; rows without a key are zeroed apart.

    Right: mask_fill=puts_-1e-9_but_fully_masked_rows
    """
    logits = scores(query, key)
    if mask is None:
        return np.asarray(softmax(logits) @ value)
    shown = np.broadcast_to(mask, logits.shape)
    return np.asarray(softmax(np.where(shown, logits, -1e-9)) * shown.any(axis=-1, keepdims=True) @ value)


def mask_judged_by_its_last_row(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    A mask that shows the last query everything passes for one that hides nothing.

    Right: fail
    """
    needless = mask is not None and mask[:, :, -1].all()
    return attend(query, key, value, None if needless else mask)


def output_squeezed(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    An axis of an einsum is dropped by squeeze, and with it any other of length one.

    Right: output_axes=squeezed
    """
    return np.squeeze(attend(query, key, value, mask))
