"""Variations of a bias that holds the most negative finite number, which models hand over in place of -inf."""

from dataclasses import replace

import numpy as np

from conformance.oracle.variation import Variation, problem_row
from conformance.spec.problem import Group, Problem
from conformance.spec.rounding import largest


def _masking(problem: Problem) -> Problem:
    """Float masks with -inf where they hold the most negative number of the dtype; the same object where none does."""
    lowest = -largest(problem.dtype)
    if not any(group.element == "float" and (group.values == lowest).any() for group in problem.groups):
        return problem
    return problem.but(groups=tuple(_without(group, lowest) for group in problem.groups))


def _without(group: Group, lowest: float) -> Group:
    if group.element != "float":
        return group
    return replace(group, values=np.where(group.values == lowest, -np.inf, group.values))


ROWS: tuple[Variation, ...] = (
    problem_row(
        "lowest_bias",
        "masks",
        "takes the most negative number in a float mask for -inf, so that a row of it is a fully masked row",
        "",
        _masking,
    ),
)
