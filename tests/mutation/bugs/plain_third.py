"""
Bugs of a third set for which the table had no word, and their sisters.

The forty of that set were written by one who knew neither the table nor the other bugs. When they were tried, 29 were
named right and 3 in a tie, 4 right in part, and 4 not at all; none was named wrong.
"""

import numpy as np

from .pieces import Array, Params, attend, hide, linear, past, projected, scores, softmax, split
from .pieces import out as project_out

BLOCK = 16


def zeros_attended(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Keys and values are filled up with zeros to whole blocks, which nobody masks: each has a logit of zero.

    Right: key_tail=zeros_16
    """
    more = -key.shape[-2] % BLOCK
    if mask is not None:
        seen = np.broadcast_to(mask, (*mask.shape[:-1], key.shape[-2]))
        mask = np.concatenate([seen, np.ones((*seen.shape[:-1], more), dtype=bool)], axis=-1)
    key, value = (np.pad(each, ((0, 0), (0, 0), (0, more), (0, 0))) for each in (key, value))
    return attend(query, key, value, mask)


def causal_within_a_block(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, is_causal: bool = False
) -> Array:
    """
    A tiled kernel compares the query with the place of a key in its block.

    Right: fail
    """
    logits = scores(query, key)
    if is_causal:
        first = past(logits[..., :BLOCK])
        seen = np.concatenate([first] * -(-key.shape[-2] // BLOCK), axis=-1)[:, : key.shape[-2]]
        mask = seen if mask is None else mask & seen
    return np.asarray(softmax(hide(logits, mask)) @ value)


def _in_blocks(
    query: Array, key: Array, value: Array, mask: Array | None, *, output_fades: bool, total_fades: bool
) -> Array:
    logits = hide(scores(query, key), mask).astype(np.promote_types(query.dtype, np.float32))
    peak = np.full((*logits.shape[:-1], 1), -np.inf, logits.dtype)
    total, result = np.zeros_like(peak), np.zeros((*logits.shape[:-1], value.shape[-1]), logits.dtype)
    for start in range(0, logits.shape[-1], BLOCK):
        block = logits[..., start : start + BLOCK]
        risen = np.maximum(peak, block.max(-1, keepdims=True))
        steady = np.where(np.isfinite(risen), risen, 0)
        weights, fade = np.exp(block - steady), np.exp(peak - steady)
        total = total * (fade if total_fades else 1) + weights.sum(-1, keepdims=True)
        result = result * (fade if output_fades else 1) + weights @ value[..., start : start + BLOCK, :]
        peak = risen
    return np.asarray(result / np.where(total == 0, 1, total), query.dtype)


def values_not_rescaled(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Online softmax that rescales its denominator alone when the maximum rises.

    Right: online_softmax=not_rescaled_16
    """
    return _in_blocks(query, key, value, mask, output_fades=False, total_fades=True)


def denominator_not_rescaled(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Online softmax that rescales the weighted values alone.

    Right: online_softmax=total_not_rescaled_16
    """
    return _in_blocks(query, key, value, mask, output_fades=True, total_fades=False)


def nothing_rescaled(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Online softmax that rescales neither.

    Right: online_softmax=nothing_rescaled_16
    """
    return _in_blocks(query, key, value, mask, output_fades=False, total_fades=False)


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
