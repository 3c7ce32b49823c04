"""Convert an expanded entry to a case: validate it, resolve sizes, and check its fields against each other."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from conformance.spec import array_files, document, model_faults
from conformance.spec.case import PROJECTIONS, ArrayMask, Case, CausalMask, Inputs, Mask, Projection, WindowMask
from conformance.spec.entry_checks import SIZES, WIDTHS, check, faulty_fields
from conformance.spec.mask_checks import check_mask, nested, not_a_number
from conformance.spec.mistakes import Fault
from conformance.spec.published import LITERALS, NAMES, PublishedFields, frozen, published

Shared = TypeVar("Shared")


def faults(
    model: PublishedFields, shapes: Mapping[str, tuple[int, ...]] | None, suite: Path, root: Path
) -> Iterator[Fault]:
    """Yield the faults of published numbers; `shapes`: shapes of the outputs, or None if the sizes are faulty."""
    if (model.digits is None) == (model.rtol is None and model.atol is None):
        yield Fault(("published",), "expected either digits, or rtol and atol: the precision of the published numbers")
    given = [name for name in LITERALS if getattr(model, name) is not None]
    if not given and model.file is None:
        yield Fault(
            ("published",), f"published contains no numbers: expected at least one of {', '.join(LITERALS)}, or file"
        )
    for name in given if shapes is not None else ():
        values = frozen(getattr(model, name))
        yield from nested(values, (shapes or {})[name], lambda each: not_a_number(each, "float64"), ("published", name))
    if model.file is not None:
        yield from array_files.faults(("published", "file"), model.file, NAMES, shapes, suite, root)


# Replacements for faulty required fields, so that the other fields can still be checked.
STAND_INS: dict[str, Any] = {
    "name": "stand_in",
    "operator": "mha",
    "batch": 1,
    "num_heads": 1,
    "seq_len_q": 1,
    "seq_len_k": 1,
    "head_dim": 1,
}

MASK_STAND_IN = {"kind": "causal"}


@dataclass(frozen=True)
class Origin:
    """The fields of a case that its entry does not have; summary: that of the suite."""

    id: str = ""
    suite: str = ""
    summary: str = ""
    definition: str = ""
    settings: str = "{}"
    source: str = ""
    thorough: bool = False


UNKNOWN = Origin()


def read_entry(
    plain: Mapping[str, Any], suite: Path, root: Path, origin: Origin = UNKNOWN
) -> tuple[Case | None, list[Fault]]:
    """
    Make a case from an expanded entry without metadata, and list all faults of the entry.

    suite: the suite file. root: the case folder. origin: the other fields of the case.
    """
    try:
        entry, entry_faults, faulty, broken = document.Entry.model_validate(plain), [], set[str](), set[int]()
    except ValidationError as error:
        entry_faults = model_faults.of_entry(error, plain)
        faulty, broken = _faulty(model_faults.paths(error, plain))
        entry = document.Entry.model_validate(_repaired(plain, faulty, broken))
    case = _resolved(entry, origin, suite)
    faulty = faulty_fields(faulty, entry)
    entry_faults += check(entry, case, faulty)
    for number, mask in enumerate(case.masks):
        if number not in broken and "masks" not in faulty:
            entry_faults += [_inside(fault, number) for fault in check_mask(mask, case, faulty)]
    if "inputs" not in faulty:
        entry_faults += _input_faults(case, entry, suite, root, faulty)
    if entry.published is not None and "published" not in faulty:
        shapes = None if faulty & {"operator", *SIZES, *WIDTHS} else case.output_shapes
        entry_faults += faults(entry.published, shapes, suite, root)
    return (None, entry_faults) if faulty or broken else (case, entry_faults)


def _inside(fault: Fault, number: int) -> Fault:
    return Fault(("masks", number, *fault.path), fault.message, at_key=fault.at_key)


def _faulty(paths: Iterable[model_faults.Path]) -> tuple[set[str], set[int]]:
    """Return the faulty fields and the numbers of faulty masks; a fault inside a mask affects only that mask."""
    faulty: set[str] = set()
    masks: set[int] = set()
    for first, *rest in paths:
        if first == "masks" and rest and isinstance(rest[0], int):
            masks.add(rest[0])
        else:
            faulty.add(str(first))
    return faulty, masks


def _repaired(plain: Mapping[str, Any], faulty: set[str], broken: set[int]) -> dict[str, Any]:
    sound = {key: value for key, value in plain.items() if key not in faulty}
    if broken and "masks" in sound:
        sound["masks"] = [MASK_STAND_IN if number in broken else mask for number, mask in enumerate(sound["masks"])]
    return STAND_INS | sound


def _resolved(entry: document.Entry, origin: Origin, suite: Path) -> Case:
    """Fill in every absent size."""
    query_dim = entry.query_dim or entry.num_heads * entry.head_dim
    projected = entry.output_projection is not False
    merged = entry.num_heads * (entry.value_dim or entry.head_dim)
    return Case(
        id=origin.id,
        suite=origin.suite,
        name=entry.name,
        summary=entry.summary or origin.summary,
        operator=entry.operator,
        dtype=entry.dtype,
        batch=entry.batch,
        num_heads=entry.num_heads,
        num_kv_heads=entry.num_kv_heads or entry.num_heads,
        seq_len_q=entry.seq_len_q,
        seq_len_k=entry.seq_len_k,
        head_dim=entry.head_dim,
        value_dim=entry.value_dim or entry.head_dim,
        query_dim=query_dim,
        kdim=entry.kdim or query_dim,
        vdim=entry.vdim or query_dim,
        output_dim=entry.output_dim or (query_dim if projected else merged),
        biases=_biases(entry),
        bias_kv=entry.bias_kv is True,
        zero_key=entry.zero_key is True,
        activation=entry.activation,
        residual=entry.residual is True,
        output_projection=projected,
        scale=None if entry.scale is None else float(entry.scale),
        softcap=None if entry.softcap is None else float(entry.softcap),
        dropout_p=entry.dropout_p,
        past=entry.past or 0,
        calls=entry.calls or 1,
        masks=_masks(entry),
        inputs=_inputs(entry.inputs, suite),
        outputs=_same(tuple(entry.outputs)),
        tags=tuple(entry.tags),
        published=published(entry.published, suite),
        mistake=entry.mistake,
        native=tuple(entry.native),
        definition=origin.definition,
        settings=origin.settings,
        source=origin.source,
        thorough=origin.thorough,
    )


@lru_cache(maxsize=1024)
def _same(value: Shared) -> Shared:
    """The first of all equal values: many cases have the same masks and outputs."""
    return value


def _masks(entry: document.Entry) -> tuple[Mask, ...]:
    masks = tuple(map(_mask, entry.masks))
    literal = any(isinstance(mask, ArrayMask) and mask.values is not None for mask in masks)
    return masks if literal else _same(masks)  # 0.0 and -0.0 are equal, and not the same


# The same object for all cases.
EVERY_BIAS: frozenset[Projection] = frozenset(PROJECTIONS)


def _biases(entry: document.Entry) -> frozenset[Projection]:
    if isinstance(entry.biases, list):
        return frozenset(entry.biases)
    return frozenset() if entry.biases is False else EVERY_BIAS


def _mask(model: document.AnyMask) -> Mask:
    if isinstance(model, document.Causal):
        return CausalMask(model.offset, model.element)
    if isinstance(model, document.Window):
        return WindowMask(model.left, model.right, model.offset, model.element)
    return ArrayMask(
        kind=model.kind,
        axes=tuple(model.axes) if model.axes is not None else _default_axes(model),
        element=model.element,
        values=frozen(model.values),
        pattern=model.pattern,
        lengths=frozen(model.lengths),
        lengths_q=None if isinstance(model, document.KeyPadding) else frozen(model.lengths_q),
        distribution=model.distribution if isinstance(model, document.Additive) else None,
        seed=model.seed,
        true_means=model.true_means,
        verbatim=model.verbatim,
        attached=model.attached,
        short=model.short or 0,
    )


def _default_axes(model: document.OverAxes) -> tuple[str, ...]:
    if isinstance(model, document.KeyPadding):
        return ("b", "k")
    return ("q", "k") if model.lengths is None else ("b", "q", "k")


def _inputs(model: document.InputFields, suite: Path) -> Inputs:
    return Inputs(
        distribution=model.distribution,
        seed=model.seed,
        alias=model.alias,
        clean=model.clean,
        poison=model.poison,
        gain=float(model.gain),
        query=frozen(model.query),
        key=frozen(model.key),
        value=frozen(model.value),
        file=None if model.file is None else suite.parent / model.file,
        layout=model.layout,
    )


def _input_faults(case: Case, entry: document.Entry, suite: Path, root: Path, faulty: set[str]) -> Iterator[Fault]:
    """Yield the faults of arrays that are given in the case or in a file."""
    sized = not faulty & {"operator", "dtype", *SIZES, *WIDTHS}
    for name, shape in case.input_shapes.items():
        literal = getattr(case.inputs, name)
        if literal is not None and sized:
            yield from nested(literal, shape, lambda value: not_a_number(value, case.dtype), ("inputs", name))
    if entry.inputs.file is not None:
        expected = case.input_shapes | case.parameter_shapes
        at = ("inputs", "file")
        yield from array_files.faults(at, entry.inputs.file, list(expected), expected if sized else None, suite, root)
