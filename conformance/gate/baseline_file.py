"""The file of a baseline: its format, reading it with every fault told with its fix, writing it line by line."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from conformance.bridge.values import strict_json
from conformance.disk import write_asked
from conformance.judge.verdict import Verdict

SCHEMA = 1
Budget = float | Literal["inf", "nan"]


class Place(BaseModel):
    """An environment: versions of distributions, what output bits depend on beside them, the judging code."""

    model_config = ConfigDict(extra="forbid")

    versions: dict[str, str]
    machine: dict[str, str | int | None]
    judge: str


class Entry(BaseModel):
    """One cell, see `Observed`; keys that do not apply are absent. environment: where it is not the subject's."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    verdict: Verdict
    klass: str = Field("", alias="class")
    ways: list[str] = Field(default_factory=list)
    declared: dict[str, str] = Field(default_factory=dict)
    error: str = ""
    root: str = ""
    uncalibrated: bool = False
    looked: bool = False
    budget: Budget | None = None
    bits: str = ""
    environment: str = ""


class Subject(BaseModel):
    """What one subject showed, by case."""

    model_config = ConfigDict(extra="forbid")

    environment: str
    adapter: str
    cells: dict[str, Entry]


class BaselineFile(BaseModel):
    """The format of a baseline."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["baseline"]
    schema_: Annotated[Literal[1], Field(alias="schema")]
    environments: dict[str, Place]
    cases: dict[str, str]
    subjects: dict[str, Subject]


class BaselineError(ValueError):
    """A file that is no baseline of this version: where, what is wrong, and what to do."""


def read_baseline(path: Path) -> BaselineFile:
    """
    Read a baseline.

    Raises:
        BaselineError: it is cut, of another schema, or no baseline. OSError: it cannot be read.
    """
    again = f"write it again with conformance run --baseline {path} --update-baseline"
    try:
        content = strict_json(path.read_text(encoding="utf-8"))
    except ValueError as error:
        why = f"{path}: not JSON, perhaps cut off ({error})"
        raise BaselineError(f"{why}: restore it from version control, or delete it and {again}") from None
    if not isinstance(content, dict) or content.get("type") != "baseline":
        raise BaselineError(f"{path}: not a baseline: give the file that conformance run --update-baseline wrote")
    if content.get("schema") != SCHEMA:
        why = f"{path}: schema {content.get('schema')!r}; this version reads schema {SCHEMA}"
        raise BaselineError(f"{why}: use the version that wrote it, or delete it and {again}")
    try:
        found = BaselineFile.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        why = f"{path}: {place}: {first['msg']}"
        raise BaselineError(f"{why}: restore it from version control, or delete it and {again}") from None
    _check_environments(found, path, again)
    return found


def _check_environments(found: BaselineFile, path: Path, again: str) -> None:
    named = {(name, subject.environment) for name, subject in found.subjects.items()}
    for name, subject in found.subjects.items():
        named |= {(name, cell.environment) for cell in subject.cells.values() if cell.environment}
    for name, environment in sorted(named):
        if environment not in found.environments:
            why = f"{path}: subjects.{name}: there is no environment {environment!r} in the file"
            raise BaselineError(f"{why}: restore it from version control, or delete it and {again}")


def text_of(content: Mapping[str, Any]) -> str:
    """The file: a line for each cell, so that a change is a changed line."""
    lines = ["{", f' "type": "baseline", "schema": {content["schema"]},', ' "environments": {']
    lines += _lines(content["environments"], 2)
    lines += [" },", ' "cases": {', *_lines(content["cases"], 2), " },", ' "subjects": {']
    for number, (name, subject) in enumerate(content["subjects"].items(), 1):
        head = f'  {json.dumps(name)}: {{"environment": {json.dumps(subject["environment"])}, '
        lines.append(f'{head}"adapter": {json.dumps(subject["adapter"])}, "cells": {{')
        lines += _lines(subject["cells"], 3)
        lines.append("  }}" + ("," if number < len(content["subjects"]) else ""))
    return "\n".join([*lines, " }", "}"]) + "\n"


def _lines(mapping: Mapping[str, Any], indent: int) -> list[str]:
    last = len(mapping)
    return [
        f"{' ' * indent}{json.dumps(name)}: {json.dumps(value, allow_nan=False)}{',' if number < last else ''}"
        for number, (name, value) in enumerate(mapping.items(), 1)
    ]


def write_baseline(path: Path, content: Mapping[str, Any]) -> None:
    """Write a baseline, whole or not at all."""
    write_asked(path, text_of(content))
