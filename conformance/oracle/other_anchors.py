"""Variations that begin or end a causal flag elsewhere for a part of the call: a half of a sequence, an item."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from conformance.oracle.other_masks import causal, each_group
from conformance.oracle.other_packing import left_by_padding
from conformance.oracle.other_tiles import changed
from conformance.oracle.variation import Variation, problem_row
from conformance.spec.problem import Array, Group, Problem


def _anew_in_second_half(problem: Problem, group: Group) -> Group:
    """Queries and keys are cut in two, the first half the longer one; the flag begins with the first key of a half."""
    if group.offset != 0:
        return group
    half, place = _halves(problem.seq_len_q)
    half_of_key, place_of_key = _halves(problem.seq_len_k)
    seen = (half_of_key < half[:, None]) | ((half_of_key == half[:, None]) & (place_of_key <= place[:, None]))
    return changed(group, seen[None, None])


def _halves(length: int) -> tuple[Array, Array]:
    """Of every place, which half it is in, and where in that."""
    longer = -(-length // 2)
    return np.arange(length) // longer, np.arange(length) % longer


def _ends_with_item(problem: Problem, group: Group) -> Group:
    """
    A flag that ends with the last key is shifted by the keys that padding leaves of an item, less seq_len_q.

    Not where there are as many queries as keys: such a flag may as well begin with the first key.
    """
    more, kept = problem.seq_len_k - problem.seq_len_q, left_by_padding(problem)
    if not more or group.offset != more or kept is None:
        return group
    last = np.arange(problem.seq_len_q)[:, None] + kept.sum(axis=-1, keepdims=True) - problem.seq_len_q
    seen = np.arange(problem.seq_len_k) <= last
    return group if np.array_equal(seen, group.values) else replace(group, values=seen, offset=None)


def _not_before_the_first_key(problem: Problem, group: Group) -> Group:
    """Places are counted without a sign, or a past is thought of, which is never shorter than nothing."""
    if group.offset is None or group.offset >= 0:
        return group
    return replace(group, values=causal(problem.seq_len_q, problem.seq_len_k, 0), offset=0)


def _begins_before_keys(problem: Problem) -> bool:
    return any(group.offset is not None and group.offset < 0 for group in problem.groups)


def _other_lengths(problem: Problem) -> bool:
    return problem.seq_len_q != problem.seq_len_k


def _ends_beside_padding(problem: Problem) -> bool:
    return _other_lengths(problem) and left_by_padding(problem) is not None


def _row(
    name: str, sentence: str, change: Callable[[Problem, Group], Group], concerns: Callable[[Problem], bool]
) -> Variation:
    made = problem_row("causal_alignment", name, sentence, "pass the mask", each_group(change))
    return replace(made, concerns=concerns)


ROWS: tuple[Variation, ...] = (
    _row(
        "anew_in_second_half",
        "shows the second half of the queries the first half of the keys whole, and begins the causal flag anew with "
        "the second half, which matters where seq_len_q and seq_len_k differ",
        _anew_in_second_half,
        _other_lengths,
    ),
    _row(
        "end_of_each_item",
        "aligns a flag for the last key by the number of keys that padding leaves of each item, not by seq_len_k",
        _ends_with_item,
        _ends_beside_padding,
    ),
    _row(
        "never_negative",
        "takes zero for a negative offset of the causal flag, so that one aligned to the last key is aligned to the "
        "first where there are more queries than keys",
        _not_before_the_first_key,
        _begins_before_keys,
    ),
)
