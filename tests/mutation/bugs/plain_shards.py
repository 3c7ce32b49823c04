"""
Slips of attention that is shared out: heads over devices, keys over devices, the rows of a mask over threads.

They follow those of somebody who did not know the table: those that had no name, or no condition.
"""

import numpy as np

from .pieces import Array, Params, attend, linear, merge, projected


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
