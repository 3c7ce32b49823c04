"""The masks of a case as the groups of its problem, in their canonical meaning."""

from dataclasses import replace

import numpy as np

from conformance.spec import patterns, streams
from conformance.spec.case import ArrayMask, Case, CausalMask, Mask, WindowMask
from conformance.spec.problem import AXES, SLOTLESS, Array, Group
from conformance.spec.rounding import round_to


def group(case: Case, mask: Mask, stream: str) -> Group:
    """
    One mask as a group that no argument has taken yet; `stream` names its random numbers.

    values has size one on the axes that the mask does not span.
    """
    if isinstance(mask, ArrayMask):
        values = _spread(_written(case, mask, stream), mask.axes)
        written = Group(SLOTLESS, (mask.kind,), mask.element, values, verbatim=mask.verbatim, short=mask.short)
        return replace(written, attached=mask.attached)
    if mask.offset == "lengths":
        return _moved(case, mask)
    query, key = np.arange(case.seq_len_q)[:, None], np.arange(case.seq_len_k)[None, :]
    if isinstance(mask, CausalMask):
        offset = _offset(case, mask)
        attended = key <= query + offset
        return Group(SLOTLESS, ("causal",), mask.element, _flat(attended, mask), offset=offset)
    offset = _offset(case, mask)
    left = None if mask.left is None else mask.left - offset
    right = None if mask.right is None else mask.right + offset
    attended = _in_window(left, right, query, key)
    return Group(SLOTLESS, ("window",), mask.element, _flat(attended, mask), window=(left, right))


def _moved(case: Case, mask: CausalMask | WindowMask) -> Group:
    """A causal mask or window that moves with the keys which padding leaves of each item."""
    left, right = (None, 0) if isinstance(mask, CausalMask) else (mask.left, mask.right)
    place = np.arange(case.seq_len_q)[:, None] + np.array(padding_lengths(case))[:, None, None] - case.seq_len_q
    attended = _as_element(_in_window(left, right, place, np.arange(case.seq_len_k)), mask.element, verbatim=False)
    return Group(SLOTLESS, (mask.kind,), mask.element, _spread(attended, ("b", "q", "k")), moved=(left, right))


def padding_lengths(case: Case) -> tuple[int, ...] | None:
    """How many keys key_padding leaves of each item, from the first; None unless one such mask says so by lengths."""
    found = [m.lengths for m in case.masks if isinstance(m, ArrayMask) and m.kind == "key_padding" and not m.pattern]
    return found[0] if len(found) == 1 else None


def _offset(case: Case, mask: CausalMask | WindowMask) -> int:
    named: dict[str, int] = {"start": 0, "end": case.seq_len_k - case.seq_len_q, "past": case.past}
    return named[mask.offset] if isinstance(mask.offset, str) else mask.offset


def _in_window(left: int | None, right: int | None, query: Array, key: Array) -> Array:
    attended = np.ones(np.broadcast_shapes(query.shape, key.shape), dtype=bool)
    if left is not None:
        attended &= key >= query - left
    if right is not None:
        attended &= key <= query + right
    return attended


def _flat(attended: Array, mask: CausalMask | WindowMask) -> Array:
    """(q, k) to (1, 1, q, k) in the mask's element."""
    return _spread(_as_element(attended, mask.element, verbatim=False), ("q", "k"))


def _spread(values: Array, axes: tuple[str, ...]) -> Array:
    """Give an array over `axes` the four axes of the logits, size one where it does not span them."""
    sizes = dict(zip(axes, values.shape, strict=True))
    return values.reshape([sizes.get(axis, 1) for axis in AXES])


def _written(case: Case, mask: ArrayMask, stream: str) -> Array:
    """What the mask holds, over its axes, as `Group.values` describes it."""
    sizes = {axis: case.axes[axis] for axis in mask.axes}
    if mask.distribution is not None:
        return round_to(streams.draw(mask.distribution, mask.seed, stream, patterns.shape(sizes)), case.dtype)
    if mask.values is not None and (mask.verbatim or mask.kind == "additive"):
        return _literal(mask, case.dtype)
    attended = _attended(mask, sizes, stream)
    if mask.verbatim and mask.true_means == "ignore":
        attended = ~attended
    return _as_element(attended, mask.element, verbatim=mask.verbatim)


def _attended(mask: ArrayMask, sizes: patterns.Sizes, stream: str) -> Array:
    if mask.values is not None:
        literal = np.array(mask.values) != 0
        return np.asarray(~literal if mask.true_means == "ignore" else literal)
    if mask.lengths is not None:
        return patterns.from_lengths(sizes, mask.lengths, mask.lengths_q, leading=mask.pattern == patterns.LEADING)
    return patterns.make(mask.pattern or "all", sizes, mask.seed, stream)


def _literal(mask: ArrayMask, dtype: str) -> Array:
    if mask.element == "float":
        return round_to(np.array(mask.values, dtype=np.float64), dtype)
    return np.array(mask.values).astype(np.int64 if mask.element == "int" else bool)


def _as_element(attended: Array, element: str, *, verbatim: bool) -> Array:
    if element == "float":
        return np.where(attended, 0.0, -np.inf)
    return attended.astype(np.int64) if verbatim and element == "int" else attended
