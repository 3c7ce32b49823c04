"""Checks between the fields of a mask, and between a mask and the sizes of the case."""

from collections.abc import Callable, Iterator
from math import inf, isfinite, isnan, prod

import numpy as np

from conformance.spec import patterns
from conformance.spec.case import ArrayMask, Case, Mask, WindowMask
from conformance.spec.entry_checks import MAX_ELEMENTS
from conformance.spec.masks import mask_operand
from conformance.spec.mistakes import Fault
from conformance.spec.problem import AXES
from conformance.spec.rounding import round_to
from conformance.spec.texts import quoted

Path = tuple[str | int, ...]

SOURCES = ("values", "pattern", "lengths", "distribution")


def check_mask(mask: Mask, case: Case, faulty: set[str]) -> Iterator[Fault]:
    """Yield the faults of one mask, with paths inside it; sizes in `faulty` are not used."""
    mask_faults = list(_faults(mask, case, faulty))
    yield from mask_faults
    sized = not faulty & {AXES[axis] for axis in mask.axes} if isinstance(mask, ArrayMask) else False
    if isinstance(mask, ArrayMask) and mask.short and sized and not mask_faults:
        yield from _short(mask, case)


def _short(mask: ArrayMask, case: Case) -> Iterator[Fault]:
    """Check that the keys left out by `short` are masked; only valid masks that are not too large are written out."""
    if mask.short >= case.seq_len_k or "k" not in mask.axes or mask.verbatim:
        yield Fault(
            ("short",),
            f"short {mask.short} needs a mask over keys that is not verbatim, and must be less than seq_len_k",
        )
    elif prod(case.axes[axis] for axis in mask.axes) <= MAX_ELEMENTS:
        last = mask_operand(case, mask, "").values[..., -mask.short :]
        if np.any(last != (-np.inf if mask.kind == "additive" else 0)):
            yield Fault(
                ("short",),
                f"short {mask.short}: the mask must mask the last {mask.short} keys, because the array leaves them out",
            )


def _faults(mask: Mask, case: Case, faulty: set[str]) -> Iterator[Fault]:
    if isinstance(mask, WindowMask) and mask.left is None and mask.right is None:
        yield Fault((), "a window needs left or right, or both")
    if not isinstance(mask, ArrayMask):
        return
    broken = list(_axes(mask))
    yield from broken
    yield from _source(mask)
    yield from _reading(mask)
    if broken or faulty & {AXES[axis] for axis in mask.axes}:
        return
    yield from _needed_axes(mask)
    if "b" in mask.axes:
        yield from _lengths(mask, "lengths", mask.lengths, case.batch, case.seq_len_k)
        yield from _lengths(mask, "lengths_q", mask.lengths_q, case.batch, case.seq_len_q)
    if mask.values is not None:
        shape = tuple(case.axes[axis] for axis in mask.axes)
        wrong = _leaf(mask, case.dtype)
        yield from nested(mask.values, shape, wrong, ("values",))


def _axes(mask: ArrayMask) -> Iterator[Fault]:
    ordered = tuple(axis for axis in AXES if axis in mask.axes)
    listed = f"[{', '.join(mask.axes)}]"
    if mask.kind == "key_padding" and mask.axes != ("b", "k"):
        yield Fault(("axes",), f"a key_padding mask has axes [b, k], not {listed}; use kind attention for other axes")
    elif mask.kind == "additive" and "k" not in mask.axes:
        yield Fault(
            ("axes",),
            f"axes {listed}: an additive mask needs the axis k, because a constant added to a whole row has no effect",
        )
    elif mask.axes != ordered or not mask.axes:
        yield Fault(("axes",), f"axes {listed}: expected some of b, h, q, k, each once and in this order")


def _source(mask: ArrayMask) -> Iterator[Fault]:
    """Check that the content has exactly one source; the pattern `leading` and its lengths count as one."""
    given = [name for name in SOURCES if getattr(mask, name) is not None]
    options = "values, pattern or " + ("distribution" if mask.kind == "additive" else "lengths")
    leading = mask.pattern == patterns.LEADING
    if leading and mask.lengths is None:
        yield Fault(("pattern",), "pattern leading needs lengths: the number of attended keys of each batch element")
    elif not given and mask.lengths_q is None:
        yield Fault((), f"the mask needs one of {options}")
    elif len(given) > 1 and not (leading and len(given) == 2):  # noqa: PLR2004 - leading and its lengths
        yield Fault((given[1],), f"{' and '.join(given)} cannot be combined; give one of {options}", at_key=True)
    if mask.lengths_q is not None and mask.lengths is None:
        yield Fault(("lengths_q",), "lengths_q also needs lengths", at_key=True)


def _reading(mask: ArrayMask) -> Iterator[Fault]:
    """Check that true_means: ignore has an effect."""
    if mask.true_means == "attend":
        return
    if mask.values is not None and mask.verbatim:
        message = "true_means: ignore has no effect on verbatim values: write the inverted array instead"
    elif mask.values is None and not mask.verbatim:
        message = "true_means: ignore needs literal values or verbatim: true"
    elif mask.distribution is not None or (mask.kind == "additive" and mask.values is not None):
        message = "true_means: ignore has no meaning for numbers that are added to the logits"
    else:
        return
    yield Fault(("true_means",), message)


def _needed_axes(mask: ArrayMask) -> Iterator[Fault]:
    needs: tuple[str, ...] = ()
    what = f"pattern {mask.pattern}"
    if mask.lengths is not None:
        needs, what = ("b", "k") if mask.lengths_q is None else ("b", "q", "k"), "a mask with lengths"
    elif mask.pattern in patterns.PATTERNS:
        needs = patterns.PATTERNS[str(mask.pattern)].needs
    missing = [axis for axis in needs if axis not in mask.axes]
    if missing:
        field = "pattern" if mask.lengths is None else "lengths"
        listed = f"[{', '.join(mask.axes)}]"
        yield Fault((field,), f"{what} needs the axis {' and '.join(missing)}; the mask has {listed}")


def _lengths(mask: ArrayMask, name: str, lengths: tuple[int, ...] | None, batch: int, size: int) -> Iterator[Fault]:
    if lengths is None or mask.values is not None:
        return
    if len(lengths) != batch:
        yield Fault((name,), f"{name} has {len(lengths)} numbers; expected {batch}, one for each batch element")
    for number, length in enumerate(lengths):
        if length > size:
            yield Fault((name, number), f"{name}: {length} is more than the {size} positions of the axis")


def _leaf(mask: ArrayMask, dtype: str) -> Callable[[object], str | None]:
    """Return a function that says what a literal value of this mask must be, or None if the value is valid."""
    if mask.kind == "additive" or (mask.verbatim and mask.element == "float"):
        return lambda value: _not_addable(value, dtype)
    if mask.verbatim and mask.element == "int":
        return _not_int32
    return lambda value: None if value in (0, 1) and not isinstance(value, float) else "0, 1, true or false"


def _not_int32(value: object) -> str | None:
    fits = isinstance(value, int) and not isinstance(value, bool) and -(2**31) <= value < 2**31
    return None if fits else "a 32-bit integer"


def _not_addable(value: object, dtype: str) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or isnan(value) or value == inf:
        return "a number or -.inf"
    rounded = float(round_to(np.asarray(float(value)), dtype))
    return f"a number within the range of {dtype}" if rounded == inf else None


def not_a_number(value: object, dtype: str) -> str | None:
    """Say what a literal input must be, or None if it is valid; infinities and NaN are valid."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "a number"
    finite = isfinite(value)
    holds = not finite or isfinite(float(round_to(np.asarray(float(value)), dtype)))
    return None if holds else f"a number within the range of {dtype}"


def nested(
    values: object, shape: tuple[int, ...], wrong: Callable[[object], str | None], path: Path
) -> Iterator[Fault]:
    """Yield where a nested list differs from `shape` or has a wrong value; only the first wrong value of each row."""
    if not shape:
        expected = "a number, not a list" if isinstance(values, tuple) else wrong(values)
        if expected:
            yield Fault(path, f"expected {expected}, got {quoted(values)}")
        return
    if not isinstance(values, tuple):
        yield Fault(path, f"expected a list of {shape[0]} items, got {quoted(values)}")
    elif len(values) != shape[0]:
        yield Fault(path, f"expected {shape[0]} items, got {len(values)} (the expected shape here is {shape})")
    else:
        for number, value in enumerate(values):
            faults = list(nested(value, shape[1:], wrong, (*path, number)))
            yield from faults
            if faults and len(shape) == 1:
                return
