"""Mask algebra: conventions, combination, layout on the axes of an argument, and the mask operands of a case."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from conformance.spec import patterns, streams
from conformance.spec.case import ArrayMask, Case, CausalMask, Mask, WindowMask
from conformance.spec.problem import AXES, SLOTLESS, Array, MaskOperand
from conformance.spec.rounding import round_to

KINDS = ("key_padding", "attention", "causal", "window", "additive")
# Every pair of element type and meaning that can represent a boolean mask without loss.
CONVENTIONS = (
    ("bool", "attend"),
    ("bool", "ignore"),
    ("int", "attend"),
    ("int", "ignore"),
    ("float", "add"),
    ("float", "attend"),
)


class Inexpressible(ValueError):  # noqa: N818 - an answer, not an error
    """A mask cannot be written in the requested form without changing its meaning."""


def is_boolean(operand: MaskOperand) -> bool:
    """Whether the mask operand only allows or masks positions, and adds no finite number."""
    if operand.element != "float":
        return True
    return bool(np.all((operand.values == 0) | (operand.values == -np.inf)))


def as_bool(operand: MaskOperand) -> MaskOperand:
    """
    Convert a mask operand to booleans, True = attend.

    Raises:
        Inexpressible: the mask adds finite numbers.
    """
    if operand.element == "bool":
        return operand
    if not is_boolean(operand):
        raise Inexpressible("a mask that adds finite numbers to the logits cannot be written as booleans")
    values = operand.values == 0 if operand.element == "float" else operand.values != 0
    return replace(operand, element="bool", values=values)


def as_float(operand: MaskOperand) -> MaskOperand:
    """Convert a mask operand to numbers added to the logits: 0 = attend, -inf = masked."""
    if operand.element == "float":
        return operand
    return replace(operand, element="float", values=np.where(operand.values != 0, 0.0, -np.inf))


def write(allowed: Array, element: str, meaning: str) -> Array:
    """
    Write booleans (True = attend) in one of CONVENTIONS: bool, int64 0/1, or float64.

    Raises:
        Inexpressible: there is no such convention.
    """
    if (element, meaning) not in CONVENTIONS:
        raise Inexpressible(f"no convention writes a boolean mask as {element} read as {meaning!r}")
    if meaning == "add":
        return np.where(allowed, 0.0, -np.inf)
    values = ~allowed if meaning == "ignore" else allowed
    return values.astype({"bool": np.bool_, "int": np.int64, "float": np.float64}[element])


def read(array: Array, element: str, meaning: str) -> Array:
    """Read an array in one of CONVENTIONS as booleans, True = attend; the inverse of `write`."""
    if (element, meaning) not in CONVENTIONS:
        raise Inexpressible(f"no convention reads {element} as {meaning!r}")
    if meaning == "add":
        return np.asarray(array != -np.inf)
    return np.asarray(array == 0 if meaning == "ignore" else array != 0)


def fold(mask_operands: Sequence[MaskOperand], slot: str) -> MaskOperand:
    """
    Combine mask operands into one: AND of the boolean ones, plus the sum of the additive ones.

    The result is boolean if all operands are boolean (in their common element type, else bool), and float otherwise.
    """
    if len(mask_operands) == 1:
        return replace(mask_operands[0], slot=slot)
    kinds = tuple(dict.fromkeys(kind for operand in mask_operands for kind in operand.kinds))
    elements = {operand.element for operand in mask_operands}
    if elements <= {"bool", "int"}:
        values = mask_operands[0].values != 0
        for operand in mask_operands[1:]:
            values = values & (operand.values != 0)
        return MaskOperand(slot, kinds, elements.pop() if len(elements) == 1 else "bool", values)
    if all(is_boolean(operand) for operand in mask_operands) and elements != {"float"}:
        return fold([as_bool(operand) for operand in mask_operands], slot)
    added = [as_float(operand).values for operand in mask_operands]
    return MaskOperand(slot, kinds, "float", np.asarray(sum(added[1:], start=added[0])))


def spanned(values: Array) -> tuple[str, ...]:
    """Return the axes that a mask spans, i.e. those whose size is not one."""
    return tuple(axis for axis, size in zip(AXES, values.shape, strict=True) if size > 1)


def covers(axes: Sequence[str], values: Array) -> bool:
    """Whether an argument with `axes` (names of AXES, `b*h`, `1`) can represent the 4-D mask `values`."""
    named = {part for axis in axes for part in axis.split("*")}
    return set(spanned(values)) <= named


def lay_out(
    values: Array, sizes: tuple[int, int, int, int], axes: Sequence[str], broadcast: Sequence[str] = ()
) -> Array:
    """
    Reshape 4-D `values` to the axes of an argument.

    axes: the axes of the argument, in order; `b*h` is batch and heads folded, batch-major; `1` is an axis of size one.
    An axis that the mask does not span is expanded, or keeps size one if it is in `broadcast`.

    Raises:
        Inexpressible: the mask spans an axis that the argument lacks.
    """
    if not covers(axes, values):
        raise Inexpressible(f"a mask over {' '.join(spanned(values))} does not fit an argument over {' '.join(axes)}")
    named = [part for axis in axes for part in axis.split("*")]
    full = tuple(
        1 if axis not in named or (axis in broadcast and values.shape[i] == 1) else sizes[i]
        for i, axis in enumerate(AXES)
    )
    lengths = dict(zip(AXES, full, strict=True)) | {"1": 1}
    shape = [int(np.prod([lengths[part] for part in axis.split("*")])) for axis in axes]
    return np.broadcast_to(values, full).reshape(shape)


def mask_operand(case: Case, mask: Mask, stream: str) -> MaskOperand:
    """
    Make the mask operand of one mask, not yet assigned to an argument; `stream` names its random numbers.

    `values` has size one on the axes that the mask does not span.
    """
    if isinstance(mask, ArrayMask):
        values = _spread(_written(case, mask, stream), mask.axes)
        written = MaskOperand(SLOTLESS, (mask.kind,), mask.element, values, verbatim=mask.verbatim, short=mask.short)
        return replace(written, attached=mask.attached)
    if mask.offset == "lengths":
        return _moved(case, mask)
    query, key = np.arange(case.seq_len_q)[:, None], np.arange(case.seq_len_k)[None, :]
    if isinstance(mask, CausalMask):
        offset = _offset(case, mask)
        attended = key <= query + offset
        return MaskOperand(SLOTLESS, ("causal",), mask.element, _flat(attended, mask), offset=offset)
    offset = _offset(case, mask)
    left = None if mask.left is None else mask.left - offset
    right = None if mask.right is None else mask.right + offset
    attended = _in_window(left, right, query, key)
    return MaskOperand(SLOTLESS, ("window",), mask.element, _flat(attended, mask), window=(left, right))


def _moved(case: Case, mask: CausalMask | WindowMask) -> MaskOperand:
    """Make a causal mask or window that moves with the number of unpadded keys of each batch element."""
    left, right = (None, 0) if isinstance(mask, CausalMask) else (mask.left, mask.right)
    position = np.arange(case.seq_len_q)[:, None] + np.array(padding_lengths(case))[:, None, None] - case.seq_len_q
    attended = _as_element(_in_window(left, right, position, np.arange(case.seq_len_k)), mask.element, verbatim=False)
    return MaskOperand(SLOTLESS, (mask.kind,), mask.element, _spread(attended, ("b", "q", "k")), moved=(left, right))


def padding_lengths(case: Case) -> tuple[int, ...] | None:
    """Return the key_padding lengths of each batch element; None unless exactly one such mask has lengths."""
    lengths = [m.lengths for m in case.masks if isinstance(m, ArrayMask) and m.kind == "key_padding" and not m.pattern]
    return lengths[0] if len(lengths) == 1 else None


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
    """Reshape (q, k) to (1, 1, q, k), in the element type of the mask."""
    return _spread(_as_element(attended, mask.element, verbatim=False), ("q", "k"))


def _spread(values: Array, axes: tuple[str, ...]) -> Array:
    """Reshape an array over `axes` to the four axes of the logits, with size one on the others."""
    sizes = dict(zip(axes, values.shape, strict=True))
    return values.reshape([sizes.get(axis, 1) for axis in AXES])


def _written(case: Case, mask: ArrayMask, stream: str) -> Array:
    """Make the content of the mask over its own axes, as `MaskOperand.values` describes it."""
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
