"""Variations that are slips of a kernel which finds its keys in pages of a cache."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from conformance.oracle.other_masks import causal, each_group
from conformance.oracle.state import State
from conformance.oracle.variation import HeadsMap, ProblemMap, Variation, problem_row
from conformance.spec.problem import Array, Group, Problem

PAGES = (4, 8, 16)
"""Keys of a page: few, since flags that are aligned to the last of many keys are rare."""


def _ends_with_page(page: int) -> ProblemMap:
    """
    A flag that ends with the last key ends where the last page of keys would, if nothing cut it off.

    Not where there are as many queries as keys: such a flag may as well begin with the first key.
    """

    def moved(problem: Problem, group: Group) -> Group:
        more = problem.seq_len_k - problem.seq_len_q
        rest = -problem.seq_len_k % page
        if group.offset != more or not more or not rest:
            return group
        seen = causal(problem.seq_len_q, problem.seq_len_k, more + rest)
        return replace(group, values=seen, offset=more + rest)

    return each_group(moved)


def _overlapping(page: int) -> HeadsMap:
    """
    An item has seq_len_k // page pages: what it holds behind them is overwritten by the first of the item after it.

    Without a page of its own it has what the last item has.
    """

    def apply(state: State) -> State:
        batch, length = state.key.shape[0], state.key.shape[2]
        own = length // page * page
        place = np.arange(batch)[:, None] * own + np.arange(length)
        item = np.minimum(place // own, batch - 1) if own else np.full_like(place, batch - 1)

        def read(heads: Array) -> Array:
            return np.asarray(heads.swapaxes(1, 2)[item, place - item * own].swapaxes(1, 2))

        return state.but(key=read(state.key), value=read(state.value))

    return apply


def _cut_pages(page: int) -> Callable[[Problem], bool]:
    """Whether there are items that the next one overwrites."""
    return lambda problem: problem.batch > 1 and problem.seq_len_k % page > 0


_ENDS: tuple[Variation, ...] = tuple(
    problem_row(
        "causal_alignment",
        f"end_of_page_{page}",
        f"counts keys in whole pages of {page} for a flag aligned to the last: up to {page - 1} too many are seen",
        "pass the mask",
        _ends_with_page(page),
    )
    for page in PAGES
)

_OVERLAPS: tuple[Variation, ...] = tuple(
    Variation(
        "arguments",
        f"pages_overlap_{page}",
        f"keeps seq_len_k // {page} pages of {page} keys and values for each item, rounded down: what comes after them "
        "is overwritten by the first of the next item",
        f"pad key and value, masked, to a multiple of {page}, or call once per item",
        "heads",
        heads=_overlapping(page),
        bounded=False,
        concerns=_cut_pages(page),
    )
    for page in PAGES
)

ROWS: tuple[Variation, ...] = (*_ENDS, *_OVERLAPS)
