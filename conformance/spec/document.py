"""The file format as pydantic models, field by field, and the same as JSON Schema for editors."""

import json
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from conformance.spec import patterns, refusals, streams
from conformance.spec.case import Native, Poison, Projection
from conformance.spec.model import Model
from conformance.spec.published import PublishedFields

Size = Annotated[int, Field(ge=1)]
Name = Annotated[str, Field(pattern=r"^[a-z0-9_]+$", max_length=100)]
Shift = Annotated[int, Field(ge=-(2**31), lt=2**31)]
Width = Annotated[int, Field(ge=0, lt=2**31)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
# Its square, times those of a query and a key, is far from the end of float64, in which bounds are derived.
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
Output = Literal["output", "weights", "weights_mean", "gradients", "present", "scaled", "capped", "logits"]


class OverAxes(Model):
    """What every mask that is given by what it holds has."""

    axes: list[Axis] | None = Field(
        default=None, description="[b, k] for key_padding; else [q, k] if absent, [b, q, k] with lengths."
    )
    values: Literals | None = Field(default=None, description="A nested list over the axes.")
    pattern: patterns.Name | None = Field(default=None, description="A named pattern over the axes.")
    lengths: Lengths | None = Field(default=None, description="For each item: its first n keys are attended.")
    seed: Seed = Field(default=0, description="For random ones.")
    true_means: TrueMeans = Field(default="attend", description="How literal boolean values are read.")
    verbatim: bool = Field(default=False, description="Handed over unconverted.")
    attached: bool = Field(default=False, description="Travels with its tensor instead of as an argument.")
    short: Size | None = Field(
        default=None, description="So many keys, the last, are masked, and left out of an array that may be shorter."
    )


class KeyPadding(OverAxes):
    """Which keys of each item may be attended."""

    kind: Literal["key_padding"]
    element: Element = Field(default="bool", description="How the mask is handed over.")


class Attention(OverAxes):
    """Which positions may be attended, over any axes; without k whole queries are hidden."""

    kind: Literal["attention"]
    element: Element = Field(default="bool", description="How the mask is handed over.")
    lengths_q: Lengths | None = Field(default=None, description="For each item: its first n queries attend.")


class Additive(OverAxes):
    """Numbers added to the logits."""

    kind: Literal["additive"]
    element: Literal["float"] = Field(default="float", description="Additive masks are floats.")
    lengths_q: Lengths | None = Field(default=None, description="For each item: its first n queries attend.")
    distribution: streams.Distribution | None = Field(default=None, description="Random numbers over the axes.")


class Causal(Model):
    """Key <= query + offset."""

    kind: Literal["causal"]
    offset: Literal["start", "end", "past", "lengths"] | Shift = Field(
        default="start",
        description="start: 0; end: seq_len_k - seq_len_q; past: its length; lengths: keys of the item - seq_len_q; "
        "or an integer.",
    )
    element: Element = Field(default="bool", description="How the mask is handed over where it is written out.")


class Window(Model):
    """query + offset - left <= key <= query + offset + right."""

    kind: Literal["window"]
    left: Width | None = Field(default=None, description="null is unbounded.")
    right: Width | None = Field(default=None, description="null is unbounded.")
    offset: Literal["start", "past", "lengths"] = Field(
        default="start", description="start: 0; past: its length; lengths: keys of the item - seq_len_q."
    )
    element: Element = Field(default="bool", description="How the mask is handed over where it is written out.")


AnyMask = Annotated[KeyPadding | Attention | Additive | Causal | Window, Field(discriminator="kind")]

MASKS: dict[str, type[Model]] = {
    "key_padding": KeyPadding,
    "attention": Attention,
    "causal": Causal,
    "window": Window,
    "additive": Additive,
}


class InputFields(Model):
    """Where query, key and value come from."""

    distribution: streams.Distribution = Field(
        default="bell", description="How arrays that are not spelled out are drawn."
    )
    seed: Seed = 0
    alias: Literal["none", "kv", "qkv"] = Field(default="none", description="Which arrays are the same object.")
    clean: bool | None = Field(default=None, description="true: masked keys and values are of ordinary size.")
    poison: Poison | None = Field(
        default=None,
        description="What stands in keys or values that nobody attends, in one that is attended, or in a query.",
    )
    gain: float = Field(default=1.0, description="A power of two; the query is multiplied by it.", gt=0.0)
    query: Literals | None = None
    key: Literals | None = None
    value: Literals | None = None
    file: str | None = Field(default=None, description="An npz beside the suite.", min_length=1)
    layout: Layout = Field(default="contiguous", description="How query, key and value lie in memory.")


class Entry(Model):
    """One case after its defaults and its matrix were applied."""

    name: Name = Field(description="Unique in the suite.")
    summary: str | None = Field(default=None, description="One sentence; the suite's if absent.", min_length=1)
    tags: list[Name] = Field(default=[], description="e.g. smoke")
    operator: Literal["sdpa", "mha"]
    dtype: Literal["float64", "float32", "float16", "bfloat16"] = "float32"
    batch: Size
    num_heads: Size
    num_kv_heads: Size | None = Field(default=None, description="Divides num_heads; num_heads if absent.")
    seq_len_q: Size
    seq_len_k: Size
    head_dim: Size
    value_dim: Size | None = Field(default=None, description="Width of a value head; head_dim if absent.")
    query_dim: Size | None = Field(default=None, description="mha: num_heads * head_dim if absent.")
    kdim: Size | None = Field(default=None, description="mha: query_dim if absent.")
    vdim: Size | None = Field(default=None, description="mha: query_dim if absent.")
    output_dim: Size | None = Field(default=None, description="mha: query_dim if absent.")
    biases: Biases | None = Field(
        default=None, description="mha: whether projections have biases, or which of them have; true if absent."
    )
    bias_kv: bool | None = Field(default=None, description="mha: one learned key and value more, always attended.")
    zero_key: bool | None = Field(default=None, description="mha: one key and value of zeros more, always attended.")
    activation: Literal["relu"] | None = Field(default=None, description="mha: of projected query, key and value.")
    residual: bool | None = Field(default=None, description="mha: whether the query is added to the output.")
    output_projection: bool | None = Field(default=None, description="mha: whether there is one; true if absent.")
    scale: Factor | None = Field(default=None, description="sdpa: absent is 1/sqrt(head_dim).")
    softcap: Factor | None = Field(default=None, description="softcap * tanh(logits / softcap), before masks.", gt=0.0)
    dropout_p: float | None = Field(
        default=None, description="mha: a dropout that inference leaves inactive.", gt=0.0, lt=1.0
    )
    past: Size | None = Field(
        default=None, description="So many of the keys and values, the first, come as a past; none if absent."
    )
    calls: Literal[2] | None = Field(
        default=None, description="The call is made twice, with the same objects; the second reply is judged."
    )
    masks: list[AnyMask] = Field(default=[], description="AND of the boolean ones plus the sum of the additive ones.")
    inputs: InputFields = InputFields()
    outputs: list[Output] = Field(default=["output"], description="What is asked for.", min_length=1)
    expect: Literal["error"] | None = Field(default=None, description="The call must be refused: it has a mistake.")
    mistake: refusals.Name | None = Field(default=None, description="What does not fit, of a call that does.")
    native: list[Native] = Field(
        default=[], description="Arguments that the call must use: a subject that has none of them is unsupported."
    )
    published: PublishedFields | None = Field(default=None, description="Numbers printed elsewhere for this case.")


class Suite(Model):
    """A suite file; entries are looked at one by one, after expansion."""

    format: Literal[1]
    suite: str = Field(description="The file's path in the case folder, without .yaml.", min_length=1)
    summary: str = Field(description="One sentence.", min_length=1)
    defaults: dict[str, Any] = Field(default={})
    cases: list[dict[str, Any]] = Field(min_length=1)


def fields(path: tuple[str | int, ...], kind: object = None) -> tuple[str, ...]:
    """Name the keys that are valid in the mapping at `path` of an entry; `kind` is that of a mask."""
    model: type[Model] = Entry
    if path[:1] == ("inputs",):
        model = InputFields
    elif path[:1] == ("published",):
        model = PublishedFields
    elif path[:1] == ("masks",) and isinstance(kind, str) and kind in MASKS:
        model = MASKS[kind]
    return (*model.model_fields, "matrix") if model is Entry else tuple(model.model_fields)


METADATA = {"^x-": {"description": "Metadata, read by nobody."}}

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """
    Give the schema of a suite file.

    It is wider than the loader: what a matrix or the defaults may still supply is not required, and sizes
    are not compared.
    """
    suite, entry = Suite.model_json_schema(), Entry.model_json_schema()
    definitions = entry.pop("$defs") | {"Fields": _fields(entry)}
    fields = {"$ref": "#/$defs/Fields"}
    suite["properties"]["defaults"] = {
        **fields,
        "propertyNames": {"not": {"const": "name"}},
        "description": "Fields for every case that does not write them.",
    }
    suite["properties"]["cases"]["items"] = {**fields, "required": ["name"]}
    for definition in (suite, *definitions.values()):
        if definition.get("additionalProperties") is False:
            definition["patternProperties"] = METADATA
    return {"$schema": DIALECT, **_tidy(suite), "$defs": _tidy(definitions)}


def text() -> str:
    """Write the schema as it lies beside the cases."""
    return json.dumps(json_schema(), indent=1) + "\n"


def _fields(entry: dict[str, Any]) -> dict[str, Any]:
    """Give what may stand in a case or in the defaults: an entry and a matrix, nothing required."""
    matrix = {
        "description": "Field paths (dtype, inputs.seed, masks.0.true_means) to lists of values; the case "
        "expands to their product.",
        "type": "object",
        "additionalProperties": {"type": "array", "minItems": 1},
        "patternProperties": METADATA,
    }
    fields = {key: value for key, value in entry.items() if key not in ("required", "description")}
    return {**fields, "properties": {**entry["properties"], "matrix": matrix}}


def _tidy(schema: Any) -> Any:
    """Drop titles made of field names, which an editor shows anyway, and what only some versions of pydantic write."""
    if isinstance(schema, list):
        return [_tidy(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if len(schema.get("allOf", ())) == 1:
        schema = {**schema["allOf"][0], **{key: value for key, value in schema.items() if key != "allOf"}}
    dropped = {"title"} if isinstance(schema.get("title"), str) else set()
    dropped |= {"enum"} if "const" in schema else set()
    return {key: _tidy(value) for key, value in schema.items() if key not in dropped}
