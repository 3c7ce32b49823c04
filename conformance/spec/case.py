"""A case: one attention call, described independently of any framework with all sizes resolved, and its features."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Literal, get_args

from conformance.bridge.contract import SECOND_CALL
from conformance.spec import refusals, yaml_syntax
from conformance.spec.matrix import with_settings
from conformance.spec.problem import AXES, GRADIENT, GRADIENTS, PRESENT, PRESENTS, SCORES
from conformance.spec.published import Nested, Published

Element = Literal["bool", "int", "float"]

# Projections of query, key, value and output, as in wq and bq.
Projection = Literal["q", "k", "v", "o"]

PROJECTIONS: tuple[Projection, ...] = get_args(Projection)

# Argument roles that a case may require; short is a mask with fewer keys than there are.
Native = Literal["causal", "window", "lengths", "short"]

# Non-finite numbers in all keys, or values, that no query attends.
Hidden = Literal["nan_keys", "nan_values", "inf_keys", "inf_values"]

# One non-finite number in an attended key or value, or in a query.
Attended = Literal["nan_attended_key", "nan_attended_value", "inf_attended_value", "nan_query"]

# An attended key of zeros, so that its logits are exactly zero.
Zero = Literal["zero_attended_key"]

Poison = Literal[Hidden, Attended, Zero]


@dataclass(frozen=True, slots=True)
class ArrayMask:
    """
    A mask given by its content over some axes of the logits.

    kind: key_padding, attention or additive. axes: some of AXES, in that order. The content has one source: values
    (literal, of the shape of the axes), pattern (a name in `patterns`; leading also takes lengths), lengths (and
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


@dataclass(frozen=True, slots=True)
class CausalMask:
    """
    A causal mask: key <= query + offset.

    offset: "start" is 0, "end" is seq_len_k - seq_len_q, "past" is the length of the past. "lengths" is, for each batch
    element, the number of keys that key_padding leaves minus seq_len_q.
    """

    offset: Literal["start", "end", "past", "lengths"] | int = "start"
    element: Element = "bool"
    kind: Literal["causal"] = "causal"


@dataclass(frozen=True, slots=True)
class WindowMask:
    """A window: query + offset - left <= key <= query + offset + right; None is unbounded, offset as in CausalMask."""

    left: int | None = None
    right: int | None = None
    offset: Literal["start", "past", "lengths"] = "start"
    element: Element = "bool"
    kind: Literal["window"] = "window"


Mask = ArrayMask | CausalMask | WindowMask


@dataclass(frozen=True, slots=True)
class Inputs:
    """
    How query, key and value are made.

    clean: None if the case does not set it. poison: the non-finite number or the zeros, and where they are.
    query, key, value: literal arrays instead of drawn ones. file: an npz file with any of them or of the parameters.
    layout: memory layout of query, key and value, one of `bridge.tensor.LAYOUTS`.
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


@dataclass(frozen=True, slots=True)
class Case:
    """
    One expanded entry of a suite. Field names are those of docs/cases.md; sizes are resolved.

    The fields from query_dim to output_projection have no meaning for sdpa. scale: None is 1/sqrt(head_dim). softcap,
    dropout_p: None is no softcap and no dropout. past: number of first keys and values that are passed as a past.
    calls: how often the call is made with the same objects; the last reply is judged. mistake: the mistake of a call
    that must be refused; all other fields describe the valid call, its twin. native: argument roles that the call must
    use, or "short"; a subject without them declines. definition: the entry as JSON, before its matrix is applied; the
    cases of an entry share it. settings: what the matrix sets in it, as JSON: path -> value. source: where the entry
    begins, such as "cases/masks/key_padding.yaml:6". thorough: whether only thorough runs include the case.
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
    definition: str = ""
    settings: str = "{}"
    source: str = ""
    thorough: bool = False

    @property
    def yaml(self) -> str:
        """The expanded entry as YAML, name first, for reports. It is written on request: few cases need it."""
        entry = with_settings(json.loads(self.definition), json.loads(self.settings))
        return yaml_syntax.write({"name": entry.get("name"), **entry})

    @property
    def axes(self) -> dict[str, int]:
        """Size of each axis of the logits."""
        return {axis: getattr(self, size) for axis, size in AXES.items()}

    @property
    def verbatim(self) -> bool:
        """Whether a mask is passed exactly as the case wrote it."""
        return any(isinstance(mask, ArrayMask) and mask.verbatim for mask in self.masks)

    @property
    def input_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of query, key and value; the second to last axis is the sequence."""
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
        """Shapes of all outputs that a case can request, except gradients."""
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
        """Output names of the gradients: one for each input and parameter."""
        return tuple(GRADIENT + name for name in (*self.input_shapes, *self.parameter_shapes))

    def reply_names(self, outputs: Iterable[str]) -> tuple[str, ...]:
        """Names of the arrays in a reply with these outputs: `gradients` and `present` are several arrays each."""
        groups = {GRADIENTS: self.gradient_names, PRESENT: PRESENTS}
        return tuple(member for name in outputs for member in groups.get(name, (name,)))

    @property
    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the projection weights, (in, out), and of the biases; empty for sdpa."""
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
        """Capabilities that an adapter must list in CAPABILITIES to receive this case (docs/adapters.md)."""
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
# Sizes that only mha has.
WIDTHS = ("query_dim", "kdim", "vdim", "output_dim")


def features(case: Case) -> frozenset[str]:
    """
    Return the features of a case: operator, dtype, outputs, alias, requirements, masks and size relations.

    A mask has features for its kind, its element type, and whether it is verbatim. A size relation is =, < or > between
    two sizes, or that a size is 1.
    """
    plain = (f"operator {case.operator}", f"dtype {case.dtype}", f"alias {case.inputs.alias}")
    outputs = (f"output {name}" for name in case.outputs)
    mistake = () if case.mistake is None else (f"mistake {case.mistake}",)
    needed = (f"requirement {name}" for name in case.requirements())
    return frozenset((*plain, *mistake, *outputs, *needed, *_masks(case), *_relations(case)))


def asked(case: Case) -> tuple[str, ...]:
    """Return, sorted, the features of a case without its operator and size relations."""
    excluded = {f"operator {case.operator}", "alias none", *_relations(case)}
    return tuple(sorted(features(case) - excluded))


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
    """Return the cases whose every feature also occurs in another case."""
    known = {case.id: (case, features(case)) for case in cases}
    counts = Counter(feature for _, own in known.values() for feature in own)
    return tuple(case for case, own in known.values() if all(counts[feature] > 1 for feature in own))
