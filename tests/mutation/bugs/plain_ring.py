"""
Slips of what is put together again: heads that become one, halves of a sequence, pages of several items.

They follow those of two people who did not know the table: those that had no name.
"""

import numpy as np

from .pieces import Array, Params, hide, out, past, projected, scores, softmax


def mean_before_the_softmax(
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
    To save memory, what is averaged over the heads is the logits; one softmax makes weights of them.

    Right: fail
    """
    q, k, v = projected(query, key, value, params, num_heads)
    logits = hide(scores(q, k), mask)
    weights = softmax(logits)
    output = out(weights @ v, params)
    if not need_weights:
        return output
    if not average_weights:
        return output, weights
    return output, softmax(np.add.reduce(logits, axis=1) / num_heads)


def second_half_begins_anew(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, is_causal: bool = False
) -> Array:
    """
    Two devices share a sequence: what came before is attended whole, and what a device has itself by its own places.

    Right: fail
    """
    logits = hide(scores(query, key), mask)
    if is_causal:
        queries, keys = ((length + 1) // 2 for length in logits.shape[-2:])
        first, second = logits[..., :queries, :], logits[..., queries:, keys:]
        first[..., keys:] = -np.inf
        first[..., :keys] = hide(first[..., :keys], past(first[..., :keys]))
        second[...] = hide(second, past(second))
    return np.asarray(softmax(logits) @ value)


def pages_rounded_down(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    All items share one pool of pages of 8; a page that is not full is not counted when the next item looks for its own.

    Right: fail
    """

    def pooled(heads: Array) -> Array:
        batch, count, length, dim = heads.shape
        first = [item * (length // 8) * 8 for item in range(batch)]
        pool = np.empty((count, first[-1] + length, dim), heads.dtype)
        for item, start in enumerate(first):
            pool[:, start : start + length] = heads[item]
        return np.stack([pool[:, start : start + length] for start in first])

    return np.asarray(softmax(hide(scores(query, pooled(key)), mask)) @ pooled(value))


def last_key_of_each_item(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    *,
    is_causal: bool = False,
    causal_alignment: str = "top_left",
    key_padding_mask: Array | None = None,
) -> Array:
    """
    Where the flag ends with the last key, it is taken for the last that an item has, as if padding were no key.

    Right: fail
    """
    logits = hide(scores(query, key), mask)
    queries, keys = logits.shape[-2:]
    if is_causal and causal_alignment == "top_left":
        logits = hide(logits, past(logits))
    elif is_causal:
        counts = [keys] * len(logits) if key_padding_mask is None else np.count_nonzero(key_padding_mask, axis=1)
        logits = np.stack([hide(each, past(each[0], int(n) - queries)) for each, n in zip(logits, counts, strict=True)])
    if key_padding_mask is not None:
        logits = hide(logits, key_padding_mask[:, None, None])
    return np.asarray(softmax(logits) @ value)


def memory_taken_for_dense(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    A buffer is made of what an array has in memory, by copying it in that order, and is given the array's shape.

    Right: fail
    """

    def buffer(array: Array) -> Array:
        axes = sorted(range(array.ndim), key=lambda axis: -array.strides[axis])
        return np.ascontiguousarray(array.transpose(axes)).reshape(array.shape)

    query, key, value = buffer(query), buffer(key), buffer(value)
    return np.asarray(softmax(hide(scores(query, key), mask)) @ value)
