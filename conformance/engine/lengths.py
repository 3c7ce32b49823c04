"""
Masks that are handed over as lengths: how many keys, or queries, of each item take part, from the first.

Only what the mask says is written: one whose attended positions are no prefix has no lengths, and goes elsewhere.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from conformance.engine.slots import Slot
from conformance.spec.masks import as_bool, is_boolean, spanned
from conformance.spec.problem import Array, Group, Problem

LENGTHS = "lengths"
"""The role of such an argument; its only form is [b, k] or [b, q]."""


def lengths_of(problem: Problem, slot: Slot, group: Group) -> Array | None:
    """The lengths that mean what the mask means, shape (batch,), int32; None where there are none."""
    axis = slot.axes[0][1]
    if group.verbatim or not is_boolean(group) or not set(spanned(group.values)) <= {"b", axis}:
        return None
    size = problem.seq_len_k if axis == "k" else problem.seq_len_q
    attended = np.broadcast_to(as_bool(group).values.reshape(group.values.shape[0], -1), (problem.batch, size))
    lengths = attended.sum(axis=1)
    return lengths.astype(np.int32) if np.array_equal(attended, _prefixes(lengths, size)) else None


def in_parts(problem: Problem, slots: Mapping[str, Slot]) -> Iterator[Group]:
    """
    The masks of a problem; one over queries and keys is two where an argument takes each.

    An item whose mask attends nowhere has no attended key and no attended query. A part that masks nothing needs no
    argument.
    """
    forms = {slot.axes for slot in slots.values()}
    apart = {(("b", "q"),), (("b", "k"),)} <= forms
    for group in problem.groups:
        parts = _apart(group) if apart else None
        yield from parts or (group,)


def _apart(group: Group) -> tuple[Group, ...] | None:
    """By query and by key, if the mask is the product of a prefix of both: what of them masks anything."""
    if group.verbatim or group.kinds != ("attention",) or not is_boolean(group):
        return None
    if not {"q", "k"} <= set(spanned(group.values)) <= {"b", "q", "k"}:
        return None
    attended = as_bool(group).values
    by_query, by_key = (np.asarray(attended.any(axis=axis, keepdims=True)) for axis in (3, 2))
    for part in (by_query, by_key):
        flat = part.reshape(part.shape[0], -1)
        if not np.array_equal(flat, _prefixes(flat.sum(axis=1), flat.shape[1])):
            return None
    if not np.array_equal(by_query & by_key, attended):
        return None
    parts = (
        replace(group, element="bool", values=by_query),
        replace(group, kinds=("key_padding",), element="bool", values=by_key),
    )
    return tuple(part for part in parts if not part.values.all()) or None


def _prefixes(lengths: Array, size: int) -> Array:
    """True at the first lengths[b] of `size` positions, shape (batch, size)."""
    return np.arange(size) < lengths[:, None]
