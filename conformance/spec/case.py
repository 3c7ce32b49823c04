"""A case: one attention call in a vocabulary that names no framework, with every size resolved, and its features."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, get_args

from conformance.bridge.contract import SECOND_CALL
from conformance.spec import refusals
from conformance.spec.problem import AXES, GRADIENT, GRADIENTS, PRESENT, PRESENTS, SCORES
from conformance.spec.published import Published

# A literal array: tuples in tuples of bools, ints and floats.
Nested = tuple[Any, ...]

Element = Literal["bool", "int", "float"]

# Of query, key, value and output, as in wq and bq.
Projection = Literal["q", "k", "v", "o"]

PROJECTIONS: tuple[Projection, ...] = get_args(Projection)

# Roles of arguments, and a mask that leaves out keys.
Native = Literal["causal", "window", "lengths", "short"]

# Numbers that are none in all keys, or values, that nobody attends.
Hidden = Literal["nan_keys", "nan_values", "inf_keys", "inf_values"]

# One such number in a key, or value, that is attended, or in a query that attends.
Attended = Literal["nan_attended_key", "nan_attended_value", "inf_attended_value", "nan_query"]

Poison = Literal[Hidden, Attended]


@dataclass(frozen=True)
class ArrayMask:
    """
    A mask given by what it holds over some axes of the logits.

    kind: key_padding, attention or additive. axes: a part of AXES, in their order. One source says what it holds:
    values (literal, of the shape of the axes), pattern (a name in `patterns`; leading takes lengths), lengths (and
    lengths_q), or distribution (additive). element, true_means, verbatim, attached, short: as in docs/cases.md.
    """

    kind: Literal["key_padding", "attention", "additive"]
    axes: tuple[str, ...]
    element: Element = "bool"
    values: Nested | None = None
    pattern: str | None = None
    lengths: tuple[int, ...] | None = None
    lengths_q: tuple[int, ...] | None = None
    distribution: str | None = None
    seed: int = 0
    true_means: Literal["attend", "ignore"] = "attend"
    verbatim: bool = False
    attached: bool = False
    short: int = 0


@dataclass(frozen=True)
class CausalMask:
    """
    Key <= query + offset.

    offset "start" is 0, "end" is seq_len_k - seq_len_q, "past" the length of the past, and "lengths", of each item, the
    number of keys that key_padding leaves less seq_len_q.
    """

    offset: Literal["start", "end", "past", "lengths"] | int = "start"
    element: Element = "bool"
    kind: Literal["causal"] = "causal"


@dataclass(frozen=True)
class WindowMask:
    """query + offset - left <= key <= query + offset + right; None is unbounded, offset as in CausalMask."""

    left: int | None = None
    right: int | None = None
    offset: Literal["start", "past", "lengths"] = "start"
    element: Element = "bool"
    kind: Literal["window"] = "window"


Mask = ArrayMask | CausalMask | WindowMask


@dataclass(frozen=True)
class Inputs:
    """
    Where query, key and value come from.

    clean: None where the case does not say. poison: what of query, key and value is NaN or infinite: the number, and
    where it stands. query, key, value: literal arrays in place of drawn ones; file: an npz with any of them, or of the
    parameters. layout: how the three lie in memory, one of `bridge.strides.LAYOUTS`.
    """

    distribution: str = "bell"
    seed: int = 0
    alias: Literal["none", "kv", "qkv"] = "none"
    clean: bool | None = None
    poison: Poison | None = None
    gain: float = 1.0
    query: Nested | None = None
    key: Nested | None = None
    value: Nested | None = None
    file: Path | None = None
    layout: Literal["contiguous", "transposed", "column_major", "offset", "expanded"] = "contiguous"


@dataclass(frozen=True)
class Case:
    """
    One entry of a suite, expanded. Field names are those of docs/cases.md; sizes are resolved.

    The fields from query_dim to output_projection mean nothing for sdpa. scale None is 1/sqrt(head_dim), softcap None
    no cap, dropout_p None no dropout. past: how many of the keys and values, the first, come as a past. calls: how
    often the call is made, with the same objects; the last reply counts. mistake: the call has it and must be refused;
    everything else is said of the valid call, its twin. native: roles of arguments that the call must use, and "short":
    a subject that has none declines. yaml: the expanded entry as text, to show. source: where the entry begins,
    "cases/masks/key_padding.yaml:6". thorough: only a thorough run asks it.
    """

    id: str
    suite: str
    name: str
    summary: str
    operator: Literal["sdpa", "mha"]
    dtype: str
    batch: int
    num_heads: int
    num_kv_heads: int
    seq_len_q: int
    seq_len_k: int
    head_dim: int
    value_dim: int
    query_dim: int
    kdim: int
    vdim: int
    output_dim: int
    biases: frozenset[Projection] = frozenset(PROJECTIONS)
    bias_kv: bool = False
    zero_key: bool = False
    activation: Literal["relu"] | None = None
    residual: bool = False
    output_projection: bool = True
    scale: float | None = None
    softcap: float | None = None
    dropout_p: float | None = None
    past: int = 0
    masks: tuple[Mask, ...] = ()
    inputs: Inputs = field(default_factory=Inputs)
    outputs: tuple[str, ...] = ("output",)
    tags: tuple[str, ...] = ()
    published: Published | None = None
    calls: int = 1
    mistake: refusals.Name | None = None
    native: tuple[Native, ...] = ()
    yaml: str = ""
    source: str = ""
    thorough: bool = False

    @property
    def axes(self) -> dict[str, int]:
        """The size of each axis of the logits."""
        return {axis: getattr(self, size) for axis, size in AXES.items()}

    @property
    def verbatim(self) -> bool:
        """Whether a mask is handed over as the case wrote it."""
        return any(isinstance(mask, ArrayMask) and mask.verbatim for mask in self.masks)

    @property
    def input_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of query, key and value, positions on the last axis but one."""
        if self.operator == "mha":
            return {
                "query": (self.batch, self.seq_len_q, self.query_dim),
                "key": (self.batch, self.seq_len_k, self.kdim),
                "value": (self.batch, self.seq_len_k, self.vdim),
            }
        return {
            "query": (self.batch, self.num_heads, self.seq_len_q, self.head_dim),
            "key": (self.batch, self.num_kv_heads, self.seq_len_k, self.head_dim),
            "value": (self.batch, self.num_kv_heads, self.seq_len_k, self.value_dim),
        }

    @property
    def output_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of everything that can be asked for."""
        output = (self.batch, self.num_heads, self.seq_len_q, self.value_dim)
        return {
            "output": output if self.operator == "sdpa" else (self.batch, self.seq_len_q, self.output_dim),
            "weights": (self.batch, self.num_heads, self.seq_len_q, self.seq_len_k),
            "weights_mean": (self.batch, self.seq_len_q, self.seq_len_k),
            **dict.fromkeys(SCORES, (self.batch, self.num_heads, self.seq_len_q, self.seq_len_k)),
            "present_key": self.input_shapes["key"],
            "present_value": self.input_shapes["value"],
        }

    @property
    def gradient_names(self) -> tuple[str, ...]:
        """What gradients are returned as: one output for each input and parameter."""
        return tuple(GRADIENT + name for name in (*self.input_shapes, *self.parameter_shapes))

    def reply_names(self, outputs: Iterable[str]) -> tuple[str, ...]:
        """The arrays that make up these outputs: gradients are several, and key and value are present."""
        several = {GRADIENTS: self.gradient_names, PRESENT: PRESENTS}
        return tuple(one for name in outputs for one in several.get(name, (name,)))

    @property
    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the projections, (in, out), and of their biases; empty for sdpa."""
        if self.operator == "sdpa":
            return {}
        weights = {
            "wq": (self.query_dim, self.num_heads * self.head_dim),
            "wk": (self.kdim, self.num_kv_heads * self.head_dim),
            "wv": (self.vdim, self.num_kv_heads * self.value_dim),
            "wo": (self.num_heads * self.value_dim, self.output_dim),
        }
        if not self.output_projection:
            del weights["wo"]
        shapes: dict[str, tuple[int, ...]] = {}
        for name, shape in weights.items():
            shapes[name] = shape
            if name[1] in self.biases:
                shapes["b" + name[1]] = shape[1:]
        return shapes | {f"bias_{letter}": weights["w" + letter][1:] for letter in "kv" if self.bias_kv}

    def requirements(self) -> tuple[str, ...]:
        """What an adapter must list in CAPABILITIES to be given this case (docs/adapters.md)."""
        mha = self.operator == "mha"
        projections = PROJECTIONS if self.output_projection else PROJECTIONS[:-1]
        needed = {
            "scale": self.scale is not None,
            "grouped_heads": self.num_kv_heads < self.num_heads,
            "value_dim": self.value_dim != self.head_dim,
            "kdim": mha and not self.kdim == self.vdim == self.query_dim,
            "query_dim": mha and self.query_dim != self.num_heads * self.head_dim,
            "output_dim": mha and self.output_projection and self.output_dim != self.query_dim,
            "no_bias": mha and not self.biases,
            "some_biases": mha and bool(self.biases) and not self.biases.issuperset(projections),
            "bias_kv": self.bias_kv,
            "zero_key": self.zero_key,
            "relu": self.activation == "relu",
            "residual": self.residual,
            "no_output_projection": not self.output_projection,
            "softcap": self.softcap is not None,
            "dropout": self.dropout_p is not None,
            "layout": self.inputs.layout != "contiguous",
            "past": self.past > 0,
            SECOND_CALL: self.calls > 1,
            "mistakes": self.mistake not in (None, "num_heads"),
            "mistaken_heads": self.mistake == "num_heads",
        }
        return tuple(name for name, holds in needed.items() if holds)


SIZES = ("batch", "num_heads", "num_kv_heads", "seq_len_q", "seq_len_k", "head_dim", "value_dim")
# Sizes of mha alone.
WIDTHS = ("query_dim", "kdim", "vdim", "output_dim")


def features(case: Case) -> frozenset[str]:
    """
    Name everything that a case has: operator, dtype, outputs, alias, requirements, masks, relations of sizes.

    A mask has its kind, how it is handed over, and whether as it stands; two sizes are equal or one is the smaller.
    """
    plain = (f"operator {case.operator}", f"dtype {case.dtype}", f"alias {case.inputs.alias}")
    outputs = (f"output {name}" for name in case.outputs)
    wrong = () if case.mistake is None else (f"mistake {case.mistake}",)
    needed = (f"requirement {name}" for name in case.requirements())
    return frozenset((*plain, *wrong, *outputs, *needed, *_masks(case), *_relations(case)))


def asked(case: Case) -> tuple[str, ...]:
    """What a case asks of a subject beyond its operator, in order: features without the relations of sizes."""
    ordinary = {f"operator {case.operator}", "alias none", *_relations(case)}
    return tuple(sorted(features(case) - ordinary))


def _masks(case: Case) -> Iterator[str]:
    for mask in case.masks:
        yield f"mask {mask.kind}"
        yield f"mask {mask.kind} as {mask.element}"
        if isinstance(mask, ArrayMask) and mask.verbatim:
            yield f"mask {mask.kind} verbatim as {mask.element}"
        if isinstance(mask, ArrayMask) and mask.attached:
            yield f"mask {mask.kind} attached"


def _relations(case: Case) -> Iterator[str]:
    names = SIZES if case.operator == "sdpa" else (*SIZES, *WIDTHS)
    for name in names:
        if getattr(case, name) == 1:
            yield f"{name} = 1"
    for one, other in combinations(names, 2):
        first, second = getattr(case, one), getattr(case, other)
        yield f"{one} {'=' if first == second else '<' if first < second else '>'} {other}"


def ordinary(cases: Iterable[Case]) -> tuple[Case, ...]:
    """Cases of which every feature is also that of another."""
    known = {case.id: (case, features(case)) for case in cases}
    counted = Counter(feature for _, having in known.values() for feature in having)
    return tuple(case for case, having in known.values() if all(counted[feature] > 1 for feature in having))
