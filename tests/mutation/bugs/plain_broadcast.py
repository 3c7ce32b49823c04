"""
Numbers that are cleaned away where they are attended, and masks of one column that are not for all keys.

They follow two that `check` had let pass, since no case asked for what they need.
"""

import numpy as np

from .pieces import Array, Params, attend, hide, out, projected, scores, softmax


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


def mask_is_stored_over_as_many_keys_as_it_has(
    query: Array, key: Array, value: Array, mask: Array | None = None
) -> Array:
    """
    Logits are hidden for as many keys as the mask has columns, and one column for all keys ends with the first.

    Right: mask_columns=first_1
    """
    logits = scores(query, key)
    if mask is not None:
        columns = mask.shape[-1]
        logits[..., :columns] = hide(logits[..., :columns], mask)
    return np.asarray(softmax(logits) @ value, query.dtype)


def mask_is_filled_up_to_all_keys(
    query: Array, key: Array, value: Array, params: Params, num_heads: int, mask: Array | None = None
) -> Array:
    """
    A mask over fewer keys than there are lets the rest be attended, also one that is a single column for all.

    Right: mask_columns=first_1
    """
    if mask is not None:
        more = key.shape[1] - mask.shape[-1]
        mask = np.pad(mask, [(0, 0)] * 3 + [(0, more)], constant_values=True)
    return out(attend(*projected(query, key, value, params, num_heads), mask), params)
