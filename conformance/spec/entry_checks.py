"""
Checks between the fields of an entry; each fault has the path of the field to change.

Every check names the fields that it reads. It is skipped if one of them is already faulty, so that one mistake neither
hides another nor is reported twice.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from math import frexp, isfinite, prod
from sys import float_info
from typing import get_args

import numpy as np

from conformance.spec.case import Case, Hidden
from conformance.spec.document import Entry
from conformance.spec.masks import padding_lengths
from conformance.spec.mistakes import Fault
from conformance.spec.problem import GRADIENTS, PRESENT, SCORES
from conformance.spec.refusals import MIN_BATCH, REFUSALS
from conformance.spec.rounding import largest, round_to
from conformance.spec.streams import BOUNDS

# Maximum number of elements of a tensor.
MAX_ELEMENTS = 2**24

MHA_ONLY = (
    *("query_dim", "kdim", "vdim", "output_dim", "biases", "dropout_p"),
    *("bias_kv", "zero_key", "activation", "residual", "output_projection"),
)
SIZES = ("batch", "num_heads", "num_kv_heads", "seq_len_q", "seq_len_k", "head_dim", "value_dim")
WIDTHS = ("query_dim", "kdim", "vdim", "output_dim")

# Fields that the backward pass of the oracle does not support.
UNDERIVED = ("past", "bias_kv", "zero_key", "activation", "residual", "output_projection")

Check = Callable[[Entry, Case], Iterator[Fault]]


@dataclass(frozen=True)
class Rule:
    """A check, and the fields that must be valid for it to run."""

    reads: frozenset[str]
    check: Check


def operator_fields(entry: Entry, _case: Case) -> Iterator[Fault]:
    """Yield a fault for each field that the operator does not have."""
    if entry.operator == "mha" and entry.scale is not None:
        yield Fault(("scale",), "scale is only valid with operator sdpa", at_key=True)
    for name in MHA_ONLY if entry.operator == "sdpa" else ():
        if getattr(entry, name) is not None:
            yield Fault((name,), f"{name} is only valid with operator mha", at_key=True)


def grouped_heads(_entry: Entry, case: Case) -> Iterator[Fault]:
    """Check that num_kv_heads divides num_heads."""
    if case.num_heads % case.num_kv_heads:
        message = f"num_kv_heads {case.num_kv_heads} does not divide num_heads {case.num_heads}"
        yield Fault(("num_kv_heads",), message)


def elements(entry: Entry, case: Case) -> Iterator[Fault]:
    """Check that no tensor is too large, before anything is allocated. A faulty size counts as 1 here."""
    tensors = {"logits": tuple(case.axes.values()), **case.input_shapes, **case.parameter_shapes}
    heads, queries = case.batch * case.num_heads, case.batch * case.seq_len_q * case.num_heads
    tensors["projected queries"] = (queries, max(case.head_dim, case.value_dim))
    tensors["projected keys and values"] = (heads, case.seq_len_k, max(case.head_dim, case.value_dim))
    name, shape = max(tensors.items(), key=lambda item: prod(item[1]))
    if prod(shape) > MAX_ELEMENTS:
        written = [field for field in (*SIZES, *WIDTHS) if getattr(entry, field) is not None]
        worst = max(written, key=lambda field: getattr(entry, field))
        message = f"{name} {shape} would have {prod(shape)} elements; at most {MAX_ELEMENTS} (2**24) are allowed"
        yield Fault((worst,), message)


def alias(_entry: Entry, case: Case) -> Iterator[Fault]:
    """Check that aliased inputs have equal shapes and at most one literal array."""
    kind, shapes = case.inputs.alias, case.input_shapes
    names = {"none": (), "kv": ("key", "value"), "qkv": ("query", "key", "value")}[kind]
    if len({shapes[name] for name in names}) > 1:
        listed = ", ".join(f"{name} {shapes[name]}" for name in names)
        yield Fault(("inputs", "alias"), f"alias {kind} needs equal shapes, got {listed}")
    if kind == "qkv" and case.inputs.gain != 1:
        yield Fault(
            ("inputs", "gain"),
            "gain must be 1 with alias qkv: query and key are the same object, and gain is for the query only",
        )
    literal = [name for name in names if getattr(case.inputs, name) is not None]
    if len(literal) > 1:
        yield Fault(
            ("inputs", literal[1]), f"alias {kind} makes {' and '.join(literal)} the same array; give only one of them"
        )


def gain(_entry: Entry, case: Case) -> Iterator[Fault]:
    """Check that the gain is a power of two and keeps queries finite."""
    if frexp(case.inputs.gain)[0] != 0.5:  # noqa: PLR2004 - the significand of every power of two
        yield Fault(("inputs", "gain"), f"gain {case.inputs.gain:g} is not a power of two")
    elif _largest_query(case) * case.inputs.gain > largest(case.dtype):
        yield Fault(("inputs", "gain"), f"gain {case.inputs.gain:g} makes queries exceed the range of {case.dtype}")


def _largest_query(case: Case) -> float:
    """The largest finite magnitude in a literal or drawn query, before the gain."""
    if case.inputs.query is None:
        return BOUNDS[case.inputs.distribution]
    return max((abs(number) for number in _numbers(case.inputs.query) if isfinite(number)), default=0.0)


def _numbers(nested: object) -> Iterator[float]:
    """The numbers of a literal array; those that are none have a fault of their own."""
    if isinstance(nested, tuple):
        yield from chain.from_iterable(map(_numbers, nested))
    elif isinstance(nested, (int, float)):
        yield float(max(min(nested, float_info.max), -float_info.max)) if isinstance(nested, int) else nested


def poison(_entry: Entry, case: Case) -> Iterator[Fault]:
    """Check that poison has an array of its own and that no reading of the masks changes who attends it."""
    if case.inputs.poison is None:
        return
    if case.inputs.alias != "none":
        kind, number = case.inputs.alias, case.inputs.poison
        shared = "key and value" if kind == "kv" else "query, key and value"
        message = f"poison {number} needs separate arrays; alias {kind} makes {shared} the same array"
        yield Fault(("inputs", "poison"), message)
    if case.verbatim:
        yield Fault(
            ("inputs", "poison"), "poison is not allowed with verbatim masks: another reading of the mask may attend it"
        )
    if not case.masks and case.inputs.poison in get_args(Hidden):
        yield Fault(
            ("inputs", "poison"), f"poison {case.inputs.poison} needs a mask: it is placed where no query attends"
        )


def output(_entry: Entry, case: Case) -> Iterator[Fault]:
    """Check the output width: that of the merged heads without a projection, that of the query with a residual."""
    merged = case.num_heads * case.value_dim
    if not case.output_projection and case.output_dim != merged:
        message = f"output_dim {case.output_dim} needs an output projection; without one, output_dim is {merged}"
        yield Fault(("output_dim",), message)
    elif case.residual and case.output_dim != case.query_dim:
        message = f"residual needs query and output of the same width, got {case.query_dim} and {case.output_dim}"
        yield Fault(("residual",), message)


def layout(_entry: Entry, case: Case) -> Iterator[Fault]:
    """Check that layout expanded has several batch elements, and that nothing differs between them."""
    if case.inputs.layout != "expanded":
        return
    if case.batch == 1:
        yield Fault(
            ("inputs", "layout"), "layout expanded repeats one batch element; it needs a batch of at least 2, got 1"
        )
    if case.inputs.poison is not None:
        message = (
            f"poison {case.inputs.poison} differs between batch elements, but layout expanded makes them all equal"
        )
        yield Fault(("inputs", "layout"), message)
    if case.inputs.clean is False:
        yield Fault(
            ("inputs", "layout"),
            "large masked rows (clean: false) differ between batch elements, but layout expanded makes them all equal",
        )


def softcap(_entry: Entry, case: Case) -> Iterator[Fault]:
    """Check that the softcap is exact in the dtype under test, so that every implementation uses the same number."""
    if case.softcap is not None and float(round_to(np.asarray(case.softcap), case.dtype)) != case.softcap:
        yield Fault(
            ("softcap",), f"softcap {case.softcap!r} is not exact in {case.dtype}: implementations would round it"
        )


def moved(_entry: Entry, case: Case) -> Iterator[Fault]:
    """Check that offset lengths comes with the number of keys of each batch element."""
    for number, mask in enumerate(case.masks):
        if getattr(mask, "offset", None) == "lengths" and padding_lengths(case) is None:
            message = "offset lengths needs one key_padding mask with lengths: the number of keys of each batch element"
            yield Fault(("masks", number, "offset"), message)


def past(entry: Entry, case: Case) -> Iterator[Fault]:
    """Check that a past has separate arrays and leaves keys to the call, and that nothing refers to an absent past."""
    for number, mask in enumerate(case.masks):
        if getattr(mask, "offset", None) == "past" and not case.past:
            yield Fault(
                ("masks", number, "offset"), "offset past needs the field past: the number of keys from earlier calls"
            )
    if PRESENT in entry.outputs and not case.past:
        yield Fault(("outputs", entry.outputs.index(PRESENT)), "output present needs the field past")
    if not case.past:
        return
    if PRESENT in entry.outputs and case.operator == "mha":
        message = "output present is only valid with operator sdpa: a layer caches projected keys and values"
        yield Fault(("outputs", entry.outputs.index(PRESENT)), message)
    if case.past >= case.seq_len_k:
        yield Fault(
            ("past",),
            f"past {case.past} must be less than seq_len_k {case.seq_len_k}, so that the call itself has a key",
        )
    if case.inputs.alias == "qkv":
        yield Fault(
            ("inputs", "alias"),
            "alias qkv cannot be combined with past: query and key are one array there, but past splits the key",
        )
    if case.inputs.layout != "contiguous":
        yield Fault(
            ("inputs", "layout"),
            f"layout {case.inputs.layout} cannot be combined with past, which splits key and value into two arrays",
        )


def refusal(entry: Entry, case: Case) -> Iterator[Fault]:
    """Check that a call that must be refused has a mistake, and that the mistake is possible in this case."""
    if (entry.expect is None) != (entry.mistake is None):
        name, needed = (
            ("expect", "the field mistake, which says what is wrong with the call")
            if entry.mistake is None
            else ("mistake", "expect: error")
        )
        yield Fault((name,), f"{name} needs {needed}", at_key=True)
    if case.mistake is None:
        return
    refused = REFUSALS[case.mistake]
    if len(case.masks) < refused.masks:
        needed = "a mask" if refused.masks == 1 else f"{refused.masks} masks"
        yield Fault(("mistake",), f"mistake {case.mistake} needs {needed}")
    if refused.batch and case.batch < MIN_BATCH:
        yield Fault(
            ("mistake",),
            f"mistake {case.mistake} removes one batch element, so it needs a batch of at least {MIN_BATCH}, "
            f"got {case.batch}: otherwise the remaining batch element would be broadcast",
        )
    if case.mistake == "query_width" and case.operator == "sdpa":
        yield Fault(("mistake",), "mistake query_width is only valid with operator mha; use key_width with sdpa")
    if case.inputs.alias != "none":
        yield Fault(
            ("inputs", "alias"),
            f"a mistake needs separate query, key and value; alias {case.inputs.alias} makes them the same array",
        )
    for name, given in (("published", entry.published), ("past", entry.past)):
        if given is not None:
            yield Fault((name,), f"{name} is not allowed with expect: error", at_key=True)


def intermediate(entry: Entry, case: Case) -> Iterator[Fault]:
    """Check that intermediate results are requested of sdpa only."""
    for number, name in enumerate(entry.outputs):
        if name in SCORES and case.operator == "mha":
            yield Fault(("outputs", number), f"output {name} is only valid with operator sdpa")


def repeated(entry: Entry, _case: Case) -> Iterator[Fault]:
    """Check that each output is requested once."""
    for number, name in enumerate(entry.outputs):
        if name in entry.outputs[:number]:
            yield Fault(("outputs", number), f"output {name!r} is listed twice")


def gradients(entry: Entry, case: Case) -> Iterator[Fault]:
    """Check that gradients are requested only for separate, finite inputs and for supported fields."""
    if GRADIENTS not in entry.outputs:
        return
    if case.inputs.alias != "none":
        message = f"output gradients needs separate query, key and value, not alias {case.inputs.alias}"
        yield Fault(("inputs", "alias"), message)
    if case.inputs.poison is not None:
        yield Fault(("inputs", "poison"), "output gradients needs finite inputs, not poison")
    for name in UNDERIVED:
        if getattr(entry, name) not in (None, name == "output_projection"):
            yield Fault(
                (name,), f"output gradients is not supported with {name}: remove {name} or the output gradients"
            )


RULES = (
    Rule(frozenset({"operator"}), operator_fields),
    Rule(frozenset({"num_heads", "num_kv_heads"}), grouped_heads),
    Rule(frozenset(), elements),
    Rule(frozenset({"operator", "inputs", *SIZES, *WIDTHS}), alias),
    Rule(frozenset({"inputs", "dtype"}), gain),
    Rule(frozenset({"inputs", "masks"}), poison),
    Rule(frozenset({"operator", "residual", "output_projection", *SIZES, *WIDTHS}), output),
    Rule(frozenset({"inputs", "batch"}), layout),
    Rule(frozenset({"softcap", "dtype"}), softcap),
    Rule(frozenset({"batch", "num_heads", "seq_len_q", "seq_len_k", "masks"}), moved),
    Rule(frozenset({"operator", "past", "seq_len_k", "masks", "inputs", "outputs"}), past),
    Rule(frozenset({"operator", "outputs"}), intermediate),
    Rule(frozenset({"expect", "mistake", "operator", "batch", "masks", "inputs", "published", "past"}), refusal),
    Rule(frozenset({"outputs"}), repeated),
    Rule(frozenset({"outputs", "inputs", *UNDERIVED}), gradients),
)

# Sizes from which an absent size is derived, in order of dependency.
DEFAULTED = {
    "num_kv_heads": ("num_heads",),
    "value_dim": ("head_dim",),
    "query_dim": ("num_heads", "head_dim"),
    "kdim": ("query_dim",),
    "vdim": ("query_dim",),
    "output_dim": ("query_dim",),
}


def faulty_fields(faulty: set[str], entry: Entry) -> set[str]:
    """Add the absent sizes that would be derived from faulty ones."""
    result = set(faulty)
    for name, sources in DEFAULTED.items():
        if getattr(entry, name) is None and result & set(sources):
            result.add(name)
    return result


def check(entry: Entry, case: Case, faulty: set[str]) -> Iterator[Fault]:
    """Yield the faults of all checks that read no `faulty` field."""
    for rule in RULES:
        if not rule.reads & faulty:
            yield from rule.check(entry, case)
