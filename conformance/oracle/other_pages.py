"""Variations that are slips of a kernel which finds its keys in pages of a cache."""

from dataclasses import replace

from conformance.oracle.other_masks import causal, each_group
from conformance.oracle.variation import ProblemMap, Variation, problem_row
from conformance.spec.problem import Group, Problem

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


ROWS: tuple[Variation, ...] = tuple(
    problem_row(
        "causal_alignment",
        f"end_of_page_{page}",
        f"counts keys in whole pages of {page} for a flag aligned to the last: up to {page - 1} too many are seen",
        "pass the mask",
        _ends_with_page(page),
    )
    for page in PAGES
)
