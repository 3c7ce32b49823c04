"""
Numbers that are cleaned away where they are attended, and masks of one column that are not for all keys.

They follow those of somebody who did not know the table, which `check` let pass.
"""

import numpy as np

from .pieces import Array, Params, attend, out, projected


def values_that_are_not_finite_count_as_zero(
    query: Array, key: Array, value: Array, mask: Array | None = None
) -> Array:
    """
    What padding holds is kept from the output by cleaning all values.

    Right: attended_nonfinite=value_zeroed
    """
    return attend(query, key, np.where(np.isfinite(value), value, np.zeros_like(value)), mask)


def output_without_nan(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """
    NaN of the output is replaced by zero: that of padding, which leaks, and that of what is attended.

    Right: attended_nonfinite=nan_output_zeroed+nonfinite_value=leaks
    """
    found = attend(query, key, value, mask)
    return np.asarray(np.where(np.isnan(found), np.zeros_like(found), found))


def key_without_nan_under_padding(
    query: Array, key: Array, value: Array, params: Params, num_heads: int, mask: Array | None = None
) -> Array:
    """
    Where there is a mask, keys are cleaned before they are projected.

    Right: attended_nonfinite=key_zeroed
    When: {masks: true}
    """
    clean = key if mask is None else np.nan_to_num(key)
    return np.asarray(out(attend(*projected(query, clean, value, params, num_heads), mask), params))
