"""Variations of a mask with one column for all keys, which hides whole queries."""

from dataclasses import replace

import numpy as np

from conformance.oracle.other_masks import each_group
from conformance.oracle.variation import Variation
from conformance.spec.problem import Group, Problem


def _for_first_key(problem: Problem, group: Group) -> Group:
    """The other keys are past the end of the mask, and go without it."""
    if group.element == "flag" or group.values.shape[3] > 1:
        return group
    later = np.arange(problem.seq_len_k) > 0
    return replace(group, values=np.where(later, group.element != "float", group.values))


ROWS: tuple[Variation, ...] = (
    Variation(
        "mask_columns",
        "first_1",
        "applies a mask with one column for all keys to the first key alone",
        "write the mask out for every key",
        "problem",
        problem=each_group(_for_first_key),
        concerns=lambda problem: problem.seq_len_k > 1,
    ),
)
