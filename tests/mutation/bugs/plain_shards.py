"""
Slips of attention that is shared out: heads over devices, keys over devices, the rows of a mask over threads.

They follow those of somebody who did not know the table: those that had no name, or no condition.
"""

import numpy as np

from .pieces import Array, Params, attend, hide, linear, merge, past, projected, scores, softmax


def group_of_one_query_stored_across(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, num_kv_heads: int | None = None
) -> Array:
    """
    A single query is attended group by group, and member m of group g is written to head m * num_kv_heads + g.

    Right: fail
    """
    heads, groups = query.shape[1], num_kv_heads or query.shape[1]
    members = heads // groups
    keys, values = (np.repeat(each, members, axis=1) for each in (key, value))
    right = attend(query, keys, values, mask)
    if query.shape[2] > 1:
        return right
    stored = np.empty_like(right)
    for head in range(heads):
        stored[:, head % members * groups + head // members] = right[:, head]
    return stored


def output_bias_of_both_devices(
    query: Array, key: Array, value: Array, params: Params, num_heads: int, mask: Array | None = None
) -> Array:
    """
    Two devices take half of the heads each where that leaves none over; both add bo before their outputs are summed.

    Right: projection_bias=bo_twice
    When: {sizes_multiple: {num_heads: 2}}
    """
    columns, wo = merge(attend(*projected(query, key, value, params, num_heads), mask)), params["wo"]
    assert wo is not None
    devices = 1 if num_heads % 2 else 2
    shares = zip(np.split(columns, devices, axis=2), np.split(wo, devices), strict=True)
    return np.sum([linear(rows, weight, params["bo"]) for rows, weight in shares], axis=0, dtype=query.dtype)


def mask_not_sliced_for_the_second_device(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, bias: Array | None = None
) -> Array:
    """
    Each device has half of the heads, and the whole mask: both count the heads of it from zero. The bias is sliced.

    Right: fail
    """
    logits, heads = scores(query, key), query.shape[1]
    if bias is not None:
        logits = logits + bias
    if mask is not None and mask.shape[1] > 1 and heads % 2 == 0:
        mask = np.concatenate([mask[:, : heads // 2]] * 2, axis=1)
    return np.asarray(softmax(hide(logits, mask)) @ value, query.dtype)


def mask_row_for_the_first_query(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, bias: Array | None = None
) -> Array:
    """
    Rows of a mask or bias are added one by one to those of the logits, and one row for all queries ends with the first.

    A bias of -inf is added to NaN, and other rows do not hide it.

    Right: mask_rows=first_1 or nonfinite_key=leaks_where_added
    """
    logits = scores(query, key)
    for row in range(query.shape[2]):
        if bias is not None and row < bias.shape[2]:
            logits[:, :, row] += bias[:, :, row]
        if mask is not None and row < mask.shape[2]:
            logits[:, :, row] = hide(logits[:, :, row], mask[:, :, row])
    return np.asarray(softmax(logits) @ value, query.dtype)


def logsumexp_of_a_half_that_sees_nothing(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, is_causal: bool = False
) -> Array:
    """
    Two devices hold half of the keys each, and weigh their outputs by logsumexps; that of no key is left at zero.

    Right: fail
    """
    logits = hide(scores(query, key), mask)
    if is_causal:
        logits = hide(logits, past(logits))
    middle = (key.shape[-2] + 1) // 2
    outputs, sums = [], []
    for place in (np.s_[:middle], np.s_[middle:]):
        own = logits[..., place]
        if own.shape[-1] == 0:
            continue
        peak = own.max(axis=-1, keepdims=True)
        top = np.where(peak == -np.inf, np.zeros_like(peak), peak)
        total = np.exp(own - top).sum(axis=-1, keepdims=True)
        outputs.append(softmax(own) @ value[..., place, :])
        sums.append(np.where(total == 0, 0, np.log(np.where(total == 0, 1, total)) + top))
    shares = softmax(np.stack(sums), axis=0)
    return np.asarray((shares * np.stack(outputs)).sum(axis=0), query.dtype)
