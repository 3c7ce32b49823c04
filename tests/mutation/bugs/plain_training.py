"""
Slips of kernels that train models: heads filled up or cut off, states that go on, passes that are made again.

They follow twenty-eight of somebody who did not know the table: those that had no name, or one that is not exact.
"""

import numpy as np

from .pieces import Array, Params, attend, out, projected


def scale_of_the_block_of_a_head(
    query: Array, key: Array, value: Array, mask: Array | None = None, *, scale: float | None = None
) -> Array:
    """
    A head lies in a block of 16, 32, 64, ... numbers, whose width gives the scale.

    Right: scale=head_dim_power_of_two_from_16 or in_float16 when {dtype: [float16]}
    """
    block = 16
    while block < query.shape[-1]:
        block *= 2
    return attend(query, key, value, mask, block**-0.5 if scale is None else scale)


def product_of_whole_blocks(
    query: Array, key: Array, value: Array, params: Params, num_heads: int, mask: Array | None = None
) -> Array:
    """
    The product of query and key has as many steps of 8 numbers as fit into a head, which may be none.

    Right: head_dim=whole_parts_8
    """
    q, k, v = projected(query, key, value, params, num_heads)
    whole = q.shape[-1] // 8 * 8
    return out(attend(q[..., :whole], k[..., :whole], v, mask, q.shape[-1] ** -0.5), params)


def output_as_wide_as_the_query(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    The output is written for head_dim numbers of every row, into a buffer for all.

    Right: value_dim=of_keys
    """
    result = np.zeros((*query.shape[:-1], value.shape[-1]), query.dtype)
    width = query.shape[-1]
    result[..., :width] = attend(query, key, value[..., :width], mask)
    return result
