"""Cases in the sizes that a function takes: some kernels take few values of head_dim, or whole blocks of queries."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from conformance.checking.signature import Sizes
from conformance.spec.case import WIDTHS, ArrayMask, Case, Mask
from conformance.spec.published import Nested


def in_sizes(case: Case, sizes: Sizes) -> Case:
    """
    Return a case in sizes that the function takes; a case whose arrays are given literally stays as it is.

    A literal mask is repeated along its axes. Padding hides as many keys as before, or all of them. A case of grouped
    heads keeps its heads.
    """
    head_dim = sizes.head_dim(case.head_dim)
    queries, keys = sizes.lengths(case.seq_len_q, case.seq_len_k)
    new: dict[str, Any] = {
        "head_dim": head_dim,
        "value_dim": head_dim if case.value_dim == case.head_dim else sizes.head_dim(case.value_dim),
        "seq_len_q": queries,
        "seq_len_k": keys,
    }
    if sizes.num_heads and case.num_kv_heads == case.num_heads:
        before, width = case.num_heads * case.head_dim, sizes.num_heads * head_dim
        new |= {"num_heads": sizes.num_heads, "num_kv_heads": sizes.num_heads}
        new |= {name: width for name in WIDTHS if getattr(case, name) == before}
    changed = {name: size for name, size in new.items() if size != getattr(case, name)}
    inputs = case.inputs
    literal = (case.published, inputs.file, inputs.query, inputs.key, inputs.value)
    if not changed or any(each is not None for each in literal):
        return case
    resized = replace(case, **changed)
    masks = tuple(_mask(mask, case, resized) for mask in case.masks)
    settings = json.loads(case.settings) | changed
    for number, (old, mask) in enumerate(zip(case.masks, masks, strict=True)):
        settings |= {f"masks.{number}.{name}": getattr(mask, name) for name in _changed(old, mask)}
    return replace(resized, masks=masks, settings=json.dumps(settings))


def _mask(mask: Mask, old: Case, new: Case) -> Mask:
    """Return a mask of the case in its new sizes."""
    if not isinstance(mask, ArrayMask):
        return mask
    values = None if mask.values is None else _repeated(mask.values, [new.axes[axis] for axis in mask.axes])
    return replace(
        mask,
        values=values,
        lengths=_hiding_as_many(mask.lengths, old.seq_len_k, new.seq_len_k),
        lengths_q=_hiding_as_many(mask.lengths_q, old.seq_len_q, new.seq_len_q),
    )


def _changed(old: Mask, new: Mask) -> list[str]:
    """Return the fields of a mask that depend on sizes and differ."""
    names = ("values", "lengths", "lengths_q") if isinstance(new, ArrayMask) else ()
    return [name for name in names if getattr(old, name) != getattr(new, name)]


def _hiding_as_many(lengths: tuple[int, ...] | None, old: int, new: int) -> tuple[int, ...] | None:
    """Return lengths that leave out as many positions of `new` as these do of `old`; 0 stays 0."""
    return None if lengths is None else tuple(each and each + new - old for each in lengths)


def _repeated(values: Nested, sizes: Sequence[int]) -> Nested:
    """Repeat nested tuples along each axis up to these sizes."""
    if not sizes:
        return values
    inner = [_repeated(each, sizes[1:]) for each in values]
    return tuple(inner[number % len(inner)] for number in range(sizes[0]))
