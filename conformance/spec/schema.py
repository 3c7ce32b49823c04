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
    definitions = entry.pop("$defs") | {"Case": _case(entry)}
    definitions["Defaults"] = _defaults(definitions["Case"])
    suite["properties"]["defaults"] = {"$ref": "#/$defs/Defaults"}
    suite["properties"]["cases"]["items"] = {"$ref": "#/$defs/Case"}
    for definition in (suite, *definitions.values()):
        if definition.get("additionalProperties") is False:
            definition["patternProperties"] = METADATA
    return {"$schema": DIALECT, **suite, "title": "Attention conformance suite", "$defs": definitions}


def text() -> str:
    """Write the schema as it lies beside the cases."""
    return json.dumps(json_schema(), indent=1) + "\n"


def _case(entry: dict[str, Any]) -> dict[str, Any]:
    """One entry as written: only its name is required."""
    matrix = {
        "description": "Field paths (dtype, inputs.seed, masks.0.true_means) to lists of values; the case "
        "expands to their product.",
        "type": "object",
        "additionalProperties": {"type": "array", "minItems": 1},
        "patternProperties": METADATA,
    }
    return {**entry, "properties": {**entry["properties"], "matrix": matrix}, "required": ["name"]}


def _defaults(case: dict[str, Any]) -> dict[str, Any]:
    """Give the fields that a case may have but its name."""
    properties = {name: field for name, field in case["properties"].items() if name != "name"}
    rest = {key: value for key, value in case.items() if key not in ("required", "title", "description")}
    return {**rest, "description": "Fields for every case that does not write them.", "properties": properties}
