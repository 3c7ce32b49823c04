"""
Slips of what is left over: heads, items and queries that a loop forgets or counts twice, arrays that are read alone.

They follow those of two people who did not know the table: those that had no name.
"""

import numpy as np

from .pieces import Array, Params, hide, out, projected, scores, softmax


def heads_in_pairs(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Two heads are computed at a time, and there are half as many steps as heads, rounded down.

    Right: row_answer=zero_of_heads_behind_the_last_whole_2
    """
    done = np.zeros((*query.shape[:-1], value.shape[-1]), query.dtype)
    whole = softmax(hide(scores(query, key), mask)) @ value
    for step in range(query.shape[1] // 2):
        pair = slice(2 * step, 2 * step + 2)
        done[:, pair] = whole[:, pair]
    return done


def mean_kept_from_item_to_item(
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
    One buffer takes the sum of the weights over the heads for one item after another, and is never cleared.

    Right: exchange=weights_items_summed_so_far
    """
    q, k, v = projected(query, key, value, params, num_heads)
    weights = softmax(hide(scores(q, k), mask))
    output = out(weights @ v, params)
    if not need_weights:
        return output
    if not average_weights:
        return output, weights
    buffer = np.zeros(weights.shape[2:], weights.dtype)
    means = []
    for item in weights:
        for head in item:
            buffer = buffer + head
        means.append(buffer / num_heads)
    return output, np.stack(means)


def values_flattened_as_they_lie(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    The values alone are flattened for an inner loop, in the order of the memory and not of the axes.

    Right: arguments=values_in_memory_order
    """
    value = value.ravel(order="K").reshape(value.shape)
    return np.asarray(softmax(hide(scores(query, key), mask)) @ value)


def bias_in_a_float32_buffer(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, bias: Array | None = None
) -> Array:
    """
    What is added to the logits is gathered in float32, whatever the inputs are.

    Right: float_mask[bias]=rounded_to_float32
    """
    logits = hide(scores(query, key), mask)
    if bias is not None:
        logits = logits + bias.astype(np.float32)
    return np.asarray(softmax(logits) @ value)
