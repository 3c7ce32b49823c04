"""The schema that editors read is in the folder of the cases and is current."""

import json
from pathlib import Path

from conformance.spec.document import Entry, InputFields, Suite, json_schema, text

CASES = Path(__file__).parents[2] / "cases"


def test_the_schema_beside_the_cases_is_current() -> None:
    written = (CASES / "case.schema.json").read_text(encoding="utf-8")
    assert written == text(), "write it again: conformance schema > cases/case.schema.json"


def test_every_suite_points_at_the_schema() -> None:
    suites = sorted(CASES.rglob("*.yaml"))
    assert suites
    for suite in suites:
        first = suite.read_text(encoding="utf-8").splitlines()[0]
        assert first.startswith("# yaml-language-server: $schema="), suite
        assert (suite.parent / first.partition("=")[2]).resolve() == CASES / "case.schema.json", suite


def test_the_schema_knows_every_field() -> None:
    schema = json_schema()
    json.dumps(schema, allow_nan=False)
    definitions = schema["$defs"]
    assert set(schema["properties"]) == set(Suite.model_fields)
    assert set(definitions["Fields"]["properties"]) == {*Entry.model_fields, "matrix"}
    assert set(definitions["InputFields"]["properties"]) == set(InputFields.model_fields)
    assert {"Attention", "KeyPadding", "Causal", "Window", "Additive"} <= set(definitions)


def test_nothing_that_defaults_may_supply_is_required() -> None:
    schema = json_schema()
    assert "required" not in schema["$defs"]["Fields"]
    assert schema["properties"]["cases"]["items"]["required"] == ["name"]


def test_metadata_is_allowed_everywhere() -> None:
    schema = json_schema()
    closed = [one for one in (schema, *schema["$defs"].values()) if one.get("additionalProperties") is False]
    assert len(closed) >= 8
    assert all("^x-" in one["patternProperties"] for one in closed)
