"""Pydantic models of the case file format, and the JSON Schema made from them for editors."""

import json
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from conformance.spec import patterns, refusals, streams
from conformance.spec.case import Native, Poison, Projection
from conformance.spec.model import Model
from conformance.spec.old_names import current_value
from conformance.spec.published import PublishedFields

Size = Annotated[int, Field(ge=1)]
Name = Annotated[str, Field(pattern=r"^[a-z0-9_]+$", max_length=100)]
Shift = Annotated[int, Field(ge=-(2**31), lt=2**31)]
Width = Annotated[int, Field(ge=0, lt=2**31)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
# Bounds are derived in float64: the square of a factor times the squares of a query and a key must not overflow.
Factor = Annotated[float, Field(ge=-1e60, le=1e60, allow_inf_nan=False)]

Element = Literal["bool", "int", "float"]
TrueMeans = Literal["attend", "ignore"]
Axis = Literal["b", "h", "q", "k"]
Lengths = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
Literals = Annotated[list[Any], Field(min_length=1)]
SomeProjections = Annotated[list[Projection], Field(min_length=1)]
Biases = Annotated[
    Annotated[bool, Tag("flag")] | Annotated[SomeProjections, Tag("some")],
    Discriminator(lambda given: "some" if isinstance(given, list) else "flag"),
]
Layout = Literal["contiguous", "transposed", "column_major", "offset", "expanded"]
# Files may have the old name of a pattern or mistake.
Pattern = Annotated[patterns.Name, BeforeValidator(partial(current_value, "pattern"))]
Mistake = Annotated[refusals.Name, BeforeValidator(partial(current_value, "mistake"))]
Output = Literal["output", "weights", "weights_mean", "gradients", "present", "scaled", "capped", "logits"]


class OverAxes(Model):
    """Common fields of masks that are given by their content."""

    axes: list[Axis] | None = Field(
        default=None,
        description="Axes of the mask. Default: [b, k] for key_padding, [b, q, k] with lengths, otherwise [q, k].",
    )
    values: Literals | None = Field(default=None, description="The content of the mask: a nested list over the axes.")
    pattern: Pattern | None = Field(default=None, description="The content of the mask: a named pattern over the axes.")
    lengths: Lengths | None = Field(
        default=None, description="For each batch element: the number of keys, from the first, that are attended."
    )
    seed: Seed = Field(default=0, description="Seed of random patterns and distributions.")
    true_means: TrueMeans = Field(
        default="attend", description="How boolean values are read: True means attend, or True means ignore."
    )
    verbatim: bool = Field(default=False, description="Passed to the subject without conversion.")
    attached: bool = Field(default=False, description="Attached to its tensor instead of passed as an argument.")
    short: Size | None = Field(
        default=None, description="Number of last keys that are masked, and left out where the array may be shorter."
    )


class KeyPadding(OverAxes):
    """Which keys of each batch element may be attended."""

    kind: Literal["key_padding"]
    element: Element = Field(default="bool", description="Element type in which the mask is passed.")


class Attention(OverAxes):
    """Which positions may be attended, over any axes; without the axis k, whole query rows are masked."""

    kind: Literal["attention"]
    element: Element = Field(default="bool", description="Element type in which the mask is passed.")
    lengths_q: Lengths | None = Field(
        default=None, description="For each batch element: the number of queries, from the first, that attend."
    )


class Additive(OverAxes):
    """Numbers added to the logits."""

    kind: Literal["additive"]
    element: Literal["float"] = Field(default="float", description="Additive masks are floats.")
    lengths_q: Lengths | None = Field(
        default=None, description="For each batch element: the number of queries, from the first, that attend."
    )
    distribution: streams.Distribution | None = Field(
        default=None, description="The content of the mask: random numbers over the axes."
    )


class Causal(Model):
    """Key <= query + offset."""

    kind: Literal["causal"]
    offset: Literal["start", "end", "past", "lengths"] | Shift = Field(
        default="start",
        description="start: 0; end: seq_len_k - seq_len_q; past: length of the past; lengths: keys of the batch "
        "element - seq_len_q; or an integer.",
    )
    element: Element = Field(
        default="bool", description="Element type in which the mask is passed where it is passed as an array."
    )


class Window(Model):
    """query + offset - left <= key <= query + offset + right."""

    kind: Literal["window"]
    left: Width | None = Field(default=None, description="Keys on this side of the query; null means unbounded.")
    right: Width | None = Field(default=None, description="Keys on this side of the query; null means unbounded.")
    offset: Literal["start", "past", "lengths"] = Field(
        default="start",
        description="start: 0; past: length of the past; lengths: keys of the batch element - seq_len_q.",
    )
    element: Element = Field(
        default="bool", description="Element type in which the mask is passed where it is passed as an array."
    )


AnyMask = Annotated[KeyPadding | Attention | Additive | Causal | Window, Field(discriminator="kind")]

MASKS: dict[str, type[Model]] = {
    "key_padding": KeyPadding,
    "attention": Attention,
    "causal": Causal,
    "window": Window,
    "additive": Additive,
}


class InputFields(Model):
    """How query, key and value are made."""

    distribution: streams.Distribution = Field(default="bell", description="Distribution of arrays that are not given.")
    seed: Seed = 0
    alias: Literal["none", "kv", "qkv"] = Field(default="none", description="Which arrays are the same object.")
    clean: bool | None = Field(
        default=None, description="true: masked keys and values have ordinary size; false: they are large."
    )
    poison: Poison | None = Field(
        default=None,
        description="NaN or infinity in masked keys or values, in an attended one, or in a query; or a key of zeros.",
    )
    gain: float = Field(default=1.0, description="A power of two by which the query is multiplied.", gt=0.0)
    query: Literals | None = None
    key: Literals | None = None
    value: Literals | None = None
    file: str | None = Field(default=None, description="An npz file in the folder of the suite.", min_length=1)
    layout: Layout = Field(default="contiguous", description="Memory layout of query, key and value.")


class Entry(Model):
    """One case after defaults and matrix were applied."""

    name: Name = Field(description="Unique in the suite.")
    summary: str | None = Field(default=None, description="One sentence; default: that of the suite.", min_length=1)
    tags: list[Name] = Field(default=[], description="e.g. smoke")
    operator: Literal["sdpa", "mha"]
    dtype: Literal["float64", "float32", "float16", "bfloat16"] = "float32"
    batch: Size
    num_heads: Size
    num_kv_heads: Size | None = Field(default=None, description="Must divide num_heads; default: num_heads.")
    seq_len_q: Size
    seq_len_k: Size
    head_dim: Size
    value_dim: Size | None = Field(default=None, description="Width of a value head; default: head_dim.")
    query_dim: Size | None = Field(default=None, description="mha; default: num_heads * head_dim.")
    kdim: Size | None = Field(default=None, description="mha; default: query_dim.")
    vdim: Size | None = Field(default=None, description="mha; default: query_dim.")
    output_dim: Size | None = Field(
        default=None, description="mha; default: query_dim, or num_heads * value_dim without an output projection."
    )
    biases: Biases | None = Field(
        default=None,
        description="mha: whether all projections have biases, or a list of those that have; default: true.",
    )
    bias_kv: bool | None = Field(
        default=None, description="mha: append one learned key and value, which are always attended."
    )
    zero_key: bool | None = Field(
        default=None, description="mha: append one key and value of zeros, which are always attended."
    )
    activation: Literal["relu"] | None = Field(
        default=None, description="mha: activation applied to the projected query, key and value."
    )
    residual: bool | None = Field(default=None, description="mha: add the query to the output.")
    output_projection: bool | None = Field(
        default=None, description="mha: whether there is an output projection; default: true."
    )
    scale: Factor | None = Field(default=None, description="sdpa; default: 1/sqrt(head_dim).")
    softcap: Factor | None = Field(default=None, description="softcap * tanh(logits / softcap), before masks.", gt=0.0)
    dropout_p: float | None = Field(
        default=None,
        description="mha: dropout probability; the call is inference, so dropout must have no effect.",
        gt=0.0,
        lt=1.0,
    )
    past: Size | None = Field(
        default=None, description="Number of first keys and values that are passed as a past; default: none."
    )
    calls: Literal[2] | None = Field(
        default=None, description="The call is made twice with the same objects; the second reply is judged."
    )
    masks: list[AnyMask] = Field(
        default=[], description="Boolean masks are combined with AND; additive masks are summed."
    )
    inputs: InputFields = InputFields()
    outputs: list[Output] = Field(default=["output"], description="Requested outputs.", min_length=1)
    expect: Literal["error"] | None = Field(
        default=None, description="The call must be refused because of its mistake."
    )
    mistake: Mistake | None = Field(default=None, description="The mistake that is made in an otherwise valid call.")
    native: list[Native] = Field(
        default=[], description="Arguments that the call must use; a subject without them is unsupported."
    )
    published: PublishedFields | None = Field(default=None, description="Numbers published elsewhere for this case.")


class Suite(Model):
    """A suite file; its entries are validated one by one, after expansion."""

    format: Literal[1]
    suite: str = Field(description="The file's path in the case folder, without .yaml.", min_length=1)
    summary: str = Field(description="One sentence.", min_length=1)
    defaults: dict[str, Any] = Field(default={})
    cases: list[dict[str, Any]] = Field(min_length=1)


def fields(path: tuple[str | int, ...], kind: object = None) -> tuple[str, ...]:
    """Return the valid keys of the mapping at `path` of an entry; `kind` is the kind of the mask there."""
    model: type[Model] = Entry
    if path[:1] == ("inputs",):
        model = InputFields
    elif path[:1] == ("published",):
        model = PublishedFields
    elif path[:1] == ("masks",) and isinstance(kind, str) and kind in MASKS:
        model = MASKS[kind]
    return (*model.model_fields, "matrix") if model is Entry else tuple(model.model_fields)


METADATA = {"^x-": {"description": "Metadata; ignored."}}

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """
    Make the JSON Schema of a suite file.

    It is less strict than the loader: fields that a matrix or the defaults may supply are not required, and sizes are
    not compared.
    """
    suite, entry = Suite.model_json_schema(), Entry.model_json_schema()
    definitions = entry.pop("$defs") | {"Fields": _fields(entry)}
    fields = {"$ref": "#/$defs/Fields"}
    suite["properties"]["defaults"] = {
        **fields,
        "propertyNames": {"not": {"const": "name"}},
        "description": "Fields of every case that does not set them itself.",
    }
    suite["properties"]["cases"]["items"] = {**fields, "required": ["name"]}
    for definition in (suite, *definitions.values()):
        if definition.get("additionalProperties") is False:
            definition["patternProperties"] = METADATA
    return {"$schema": DIALECT, **_tidy(suite), "$defs": _tidy(definitions)}


def text() -> str:
    """Serialise the schema, as in cases/case.schema.json."""
    return json.dumps(json_schema(), indent=1) + "\n"


def _fields(entry: dict[str, Any]) -> dict[str, Any]:
    """Make the schema of a case or of the defaults: the fields of an entry and a matrix, none of them required."""
    matrix = {
        "description": "Mapping of field paths (dtype, inputs.seed, masks.0.true_means) to lists of values; the case "
        "is expanded to their product.",
        "type": "object",
        "additionalProperties": {"type": "array", "minItems": 1},
        "patternProperties": METADATA,
    }
    fields = {key: value for key, value in entry.items() if key not in ("required", "description")}
    return {**fields, "properties": {**entry["properties"], "matrix": matrix}}


def _tidy(schema: Any) -> Any:
    """Drop titles that repeat field names, and details that only some versions of pydantic write."""
    if isinstance(schema, list):
        return [_tidy(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if len(schema.get("allOf", ())) == 1:
        schema = {**schema["allOf"][0], **{key: value for key, value in schema.items() if key != "allOf"}}
    dropped = {"title"} if isinstance(schema.get("title"), str) else set()
    dropped |= {"enum"} if "const" in schema else set()
    return {key: _tidy(value) for key, value in schema.items() if key not in dropped}
