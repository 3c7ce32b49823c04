"""Conditions under which a known deviation or a cause shows: statements about a call and its problem."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, get_args

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from conformance.bridge.contract import Facts
from conformance.spec.problem import GRADIENT, GRADIENTS, Problem

Names = list[str]
Block = Annotated[int, Field(ge=1)]

# Maximum number of equivalent conditions that are printed; if there are more, none is known to be the condition.
MAX_CONDITIONS_SHOWN = 2

Dimension = Literal["batch", "num_heads", "seq_len_q", "seq_len_k"]
# The dimensions of the logits, and so of masks, in order.
DIMENSIONS: tuple[Dimension, ...] = get_args(Dimension)

OWN: dict[Dimension, str] = {
    "batch": "a mask for each batch element",
    "num_heads": "a mask for each head",
    "seq_len_q": "a mask row for each query",
    "seq_len_k": "a mask column for each key",
}
SHARED: dict[Dimension, str] = {
    "batch": "one mask for all batch elements",
    "num_heads": "one mask for all heads",
    "seq_len_q": "one mask row for all queries",
    "seq_len_k": "one mask column for all keys",
}
ALIASES = {
    "none": "with three tensors for query, key and value",
    "kv": "with one tensor for key and value",
    "qkv": "with one tensor for query, key and value",
}

MASK_WORDS = {
    "key_padding": "a key padding mask",
    "attention": "an attention mask",
    "causal": "a causal mask",
    "window": "a window",
    "additive": "an additive mask",
}

# Requirement -> what the call has (docs/adapters.md has the table), to follow "with"; others are called by their name.
HAVING = {
    "scale": "an explicit scale",
    "grouped_heads": "grouped heads",
    "value_dim": "value_dim != head_dim",
    "kdim": "kdim or vdim != query_dim",
    "query_dim": "query_dim != num_heads * head_dim",
    "output_dim": "output_dim != query_dim",
    "no_bias": "no biases",
    "some_biases": "biases in some projections only",
    "bias_kv": "a learned key and value (bias_kv)",
    "zero_key": "a key and value of zeros (zero_key)",
    "relu": "a ReLU after the projections",
    "residual": "a residual",
    "no_output_projection": "no output projection",
    "softcap": "a softcap",
    "dropout": "an inactive dropout",
    "past": "a past",
    "layout": "a memory layout of its own",
}
# Requirement -> what a call without it has, where "without" reads badly.
LACKING = {
    "value_dim": "with value_dim = head_dim",
    "kdim": "with kdim = vdim = query_dim",
    "query_dim": "with query_dim = num_heads * head_dim",
    "output_dim": "with output_dim = query_dim",
    "no_bias": "with biases",
    "no_output_projection": "with an output projection",
}


# A multiple of this number is even.
EVEN = 2


# The fields of a condition by what they are about; each field is in one of the four sets.
OF_CALL = frozenset(
    (
        "operator",
        "dtype",
        "device",
        "alias",
        "layout",
        "requirements",
        "without_requirements",
        "outputs",
        "without_outputs",
    )
)
OF_MASKS = frozenset(["masks", "verbatim", "slots", "without_slots", "kinds", "without_kinds", "elements"])
OF_SIZES = frozenset(
    [
        "sizes",
        "sizes_equal",
        "sizes_differ",
        "sizes_less",
        "sizes_above",
        "sizes_up_to",
        "sizes_multiple",
        "sizes_not_multiple",
    ]
)
OF_PROBLEM = frozenset(["fully_masked_row", "scaled", "mask_dims", "without_mask_dims"])


class Condition(BaseModel):
    """
    A conjunction: every given field must hold. A list of dtypes, devices, aliases or layouts means any of them.

    slots, without_slots: mask arguments that are all used, or all unused. elements: argument -> element type in which
    it is passed. kinds, without_kinds: kinds of masks that all occur, or none of which occurs. masks: whether any mask
    is given. mask_dims, without_mask_dims: dimensions of the logits along which some mask array has several entries, or
    one entry that is broadcast. outputs, without_outputs: outputs that are all requested, or none of which is
    requested. fully_masked_row: whether some row has nothing to attend. scaled: whether a scale is given. requirements,
    without_requirements: capabilities that are all requested, or none, named as in CAPABILITIES. layout: the layout in
    memory. sizes: dimension -> exact value. sizes_equal, sizes_differ, sizes_less: pairs of dimensions; in the last,
    the first is less than the second. sizes_above, sizes_up_to: dimension -> limit that it exceeds, or does not exceed.
    sizes_multiple, sizes_not_multiple: dimension -> number that divides it, or does not divide it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    operator: Literal["sdpa", "mha"] | None = None
    dtype: Names | None = None
    device: Names | None = None
    alias: Names | None = None
    slots: Names = Field(default_factory=list)
    without_slots: Names = Field(default_factory=list)
    elements: dict[str, Literal["bool", "int", "float", "flag"]] = Field(default_factory=dict)
    kinds: Names = Field(default_factory=list)
    without_kinds: Names = Field(default_factory=list)
    masks: bool | None = None
    verbatim: bool | None = None
    mask_dims: list[Dimension] = Field(default_factory=list)
    without_mask_dims: list[Dimension] = Field(default_factory=list)
    outputs: Names = Field(default_factory=list)
    without_outputs: Names = Field(default_factory=list)
    # `dead_row` is the old name of this field; existing lists may still use it.
    fully_masked_row: bool | None = Field(default=None, validation_alias=AliasChoices("fully_masked_row", "dead_row"))
    scaled: bool | None = None
    requirements: Names = Field(default_factory=list)
    without_requirements: Names = Field(default_factory=list)
    layout: Names | None = None
    sizes: dict[str, int] = Field(default_factory=dict)
    sizes_equal: list[tuple[str, str]] = Field(default_factory=list)
    sizes_differ: list[tuple[str, str]] = Field(default_factory=list)
    sizes_less: list[tuple[str, str]] = Field(default_factory=list)
    sizes_above: dict[str, int] = Field(default_factory=dict)
    sizes_up_to: dict[str, int] = Field(default_factory=dict)
    sizes_multiple: dict[str, Block] = Field(default_factory=dict)
    sizes_not_multiple: dict[str, Block] = Field(default_factory=dict)

    def holds(self, facts: Facts, problem: Problem) -> bool:
        """Whether the condition holds for a call; only the fields that are given are checked."""
        given = self.model_fields_set
        return (
            (given.isdisjoint(OF_CALL) or self._about_call(facts))
            and (given.isdisjoint(OF_MASKS) or self._about_masks(facts))
            and (given.isdisjoint(OF_SIZES) or self._about_sizes(facts))
            and (given.isdisjoint(OF_PROBLEM) or self._about_problem(problem))
        )

    def _about_call(self, facts: Facts) -> bool:
        outputs = {GRADIENTS if name.startswith(GRADIENT) else name for name in facts.outputs}
        return (
            self.operator in (None, facts.operator)
            and _among(self.dtype, facts.dtype)
            and _among(self.device, facts.device)
            and _among(self.alias, facts.alias)
            and _among(self.layout, facts.layout)
            and set(facts.requirements).issuperset(self.requirements)
            and set(facts.requirements).isdisjoint(self.without_requirements)
            and outputs.issuperset(self.outputs)
            and outputs.isdisjoint(self.without_outputs)
        )

    def _about_masks(self, facts: Facts) -> bool:
        used = {mask.slot: mask.element for mask in facts.masks}
        kinds = {kind for mask in facts.masks for kind in mask.kinds}
        verbatim = any(mask.verbatim for mask in facts.masks)
        return (
            self.masks in (None, bool(used))
            and self.verbatim in (None, verbatim)
            and set(used).issuperset(self.slots)
            and set(used).isdisjoint(self.without_slots)
            and kinds.issuperset(self.kinds)
            and kinds.isdisjoint(self.without_kinds)
            and all(used.get(slot) == element for slot, element in self.elements.items())
        )

    def _about_sizes(self, facts: Facts) -> bool:
        sizes = facts.sizes
        return (
            all(sizes.get(name) == value for name, value in self.sizes.items())
            and all(sizes.get(a) == sizes.get(b) for a, b in self.sizes_equal)
            and all(sizes.get(a) != sizes.get(b) for a, b in self.sizes_differ)
            and all(a in sizes and b in sizes and sizes[a] < sizes[b] for a, b in self.sizes_less)
            and all(sizes.get(name, limit) > limit for name, limit in self.sizes_above.items())
            and all(sizes.get(name, limit + 1) <= limit for name, limit in self.sizes_up_to.items())
            and all(name in sizes and sizes[name] % block == 0 for name, block in self.sizes_multiple.items())
            and all(name in sizes and sizes[name] % block > 0 for name, block in self.sizes_not_multiple.items())
        )

    def _about_problem(self, problem: Problem) -> bool:
        masked_row = not bool(problem.attended().any(axis=-1).all()) if self.fully_masked_row is not None else None
        shapes = [operand.values.shape for operand in problem.mask_operands if operand.element != "flag"]
        return (
            self.fully_masked_row == masked_row
            and self.scaled in (None, problem.scale is not None)
            and all(any(shape[DIMENSIONS.index(name)] > 1 for shape in shapes) for name in self.mask_dims)
            and all(any(shape[DIMENSIONS.index(name)] == 1 for shape in shapes) for name in self.without_mask_dims)
        )

    def and_also(self, other: "Condition") -> "Condition":
        """Both conditions together; lists and mappings that both give are merged, other fields come from `other`."""
        merged = self.model_dump(exclude_defaults=True)
        for name, value in other.model_dump(exclude_defaults=True).items():
            current = merged.get(name)
            if isinstance(current, dict):
                merged[name] = {**current, **value}
            elif isinstance(current, list) and name not in ("dtype", "device", "alias", "layout"):
                merged[name] = [*current, *value]
            else:
                merged[name] = value
        return Condition(**merged)

    def record(self) -> dict[str, Any]:
        """The given fields, as in a file of known deviations."""
        return self.model_dump(mode="json", exclude_defaults=True)

    @property
    def words(self) -> str:
        """The condition in words that follow "only"; "" if it always holds."""
        return " and ".join((*self._call_words(), *self._mask_words(), *self._size_words()))

    def _call_words(self) -> Iterator[str]:
        if self.operator:
            yield f"in calls of {self.operator}"
        if self.dtype:
            yield f"in {' or '.join(self.dtype)}"
        if self.device:
            yield f"on {' or '.join(self.device)}"
        if self.alias:
            yield " or ".join(ALIASES[each] for each in self.alias)
        if self.outputs:
            yield f"with {' and '.join(self.outputs)} requested"
        if self.without_outputs:
            yield f"with no {' or '.join(self.without_outputs)} requested"
        yield from self._requirement_words()
        if self.layout:
            yield f"with query, key and value in memory layout {' or '.join(self.layout)}"
        if self.scaled is not None:
            yield f"with {'a' if self.scaled else 'no'} scale given"

    def _requirement_words(self) -> Iterator[str]:
        if self.requirements:
            yield f"with {' and '.join(HAVING.get(each, each) for each in self.requirements)}"
        for absent in self.without_requirements:
            yield LACKING.get(absent) or f"without {HAVING.get(absent, absent)}"

    def _mask_words(self) -> Iterator[str]:
        if self.masks is not None:
            yield "with a mask" if self.masks else "without a mask"
        if self.verbatim is not None:
            yield "with a mask array passed unchanged" if self.verbatim else "with every mask converted"
        yield from (f"with {slot} given" for slot in self.slots)
        yield from (f"without {slot}" for slot in self.without_slots)
        for slot, element in self.elements.items():
            yield f"with {slot} given" if element == "flag" else f"with {slot} of type {element}"
        yield from (f"with {MASK_WORDS.get(kind, kind)}" for kind in self.kinds)
        yield from (f"without {MASK_WORDS.get(kind, kind)}" for kind in self.without_kinds)
        if self.fully_masked_row is not None:
            yield "with a fully masked row" if self.fully_masked_row else "without a fully masked row"
        yield from (f"with {OWN[name]}" for name in self.mask_dims)
        yield from (f"with {SHARED[name]}" for name in self.without_mask_dims)

    def _size_words(self) -> Iterator[str]:
        yield from (f"with {name} = {value}" for name, value in self.sizes.items())
        yield from (f"with {a} = {b}" for a, b in self.sizes_equal)
        yield from (f"with {a} != {b}" for a, b in self.sizes_differ)
        yield from (f"with {a} < {b}" for a, b in self.sizes_less)
        yield from (f"with {name} > {limit}" for name, limit in self.sizes_above.items())
        yield from (f"with {name} <= {limit}" for name, limit in self.sizes_up_to.items())
        for name, block in self.sizes_multiple.items():
            yield f"with an even {name}" if block == EVEN else f"with {name} a multiple of {block}"
        for name, block in self.sizes_not_multiple.items():
            yield f"with an odd {name}" if block == EVEN else f"with {name} not a multiple of {block}"


def _among(allowed: Names | None, value: str) -> bool:
    return allowed is None or value in allowed


def always() -> Condition:
    """The condition that holds for every call."""
    return Condition(**dict[str, Any]())


def condition_text(guards: Sequence[Condition]) -> str:
    """Equivalent conditions in words; if there are too many, what the calls have in common."""
    first, *rest = (guard.words for guard in guards)
    if len(guards) > MAX_CONDITIONS_SHOWN:
        return f"only in some of the calls {first}"
    return f"only {', or only '.join((first, *rest))}" + (" (no case tells which)" if rest else "")
