"""The file format as JSON Schema, for editors: what is valid where, and what it means, while one types."""

import json
from typing import Any

from conformance.spec.document import Entry, Suite

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
