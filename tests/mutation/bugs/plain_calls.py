"""
Scaled dot-product attention, called wrongly: arguments and axes exchanged where they fit.

Written like the bugs in plain_sdpa.py beside it.
"""

import numpy as np

from .pieces import Array, attend


def query_and_key_exchanged(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    The first two arguments are exchanged, where there are as many queries as keys.

    Right: arguments=query_key
    """
    return attend(key, query, value, mask) if query.shape == key.shape else attend(query, key, value, mask)


def heads_are_the_third_axis(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    Without a mask, (batch, num_heads, seq_len, dim) is read as (batch, seq_len, num_heads, dim), where lengths agree.

    Right: input_axes=heads_and_sequence
    When: {masks: false}
    """
    if mask is not None or query.shape[2] != key.shape[2] or query.shape[1] != key.shape[1]:
        return attend(query, key, value, mask)
    q, k, v = (each.swapaxes(1, 2) for each in (query, key, value))
    return np.asarray(attend(q, k, v).swapaxes(1, 2))
