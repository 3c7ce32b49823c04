"""Baselines: the results of a run in a small file that is committed with the code; format, reading and writing."""

import json
import shlex
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from hashlib import sha256
from math import isfinite, isnan
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from conformance.bridge.strict_json import strict_json
from conformance.disk import write_asked
from conformance.engine.records import Key, native
from conformance.gate.observations import Circumstances, ComparedRun, Observed
from conformance.spec.old_names import current_record
from conformance.verdicts.verdict import Verdict

SCHEMA = 1
Budget = float | Literal["inf", "nan"]


class CellKey(BaseModel):
    """An environment: versions of distributions, the other properties that output bits depend on, the judging code."""

    model_config = ConfigDict(extra="forbid")

    versions: dict[str, str]
    machine: dict[str, str | int | None]
    judge: str


class BaselineEntry(BaseModel):
    """One cell, see `Observed`; keys that do not apply are absent. environment: if it is not the subject's."""

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


class BaselineSubject(BaseModel):
    """The cells of one subject, by case."""

    model_config = ConfigDict(extra="forbid")

    environment: str
    adapter: str
    cells: dict[str, BaselineEntry]


class BaselineFile(BaseModel):
    """The format of a baseline."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["baseline"]
    schema_: Annotated[Literal[1], Field(alias="schema")]
    environments: dict[str, CellKey]
    cases: dict[str, str]
    subjects: dict[str, BaselineSubject]


class BaselineError(ValueError):
    """A file is not a baseline of this version; the message says where, what is wrong, and what to do."""


def read_baseline(path: Path, writer: str = "conformance run") -> BaselineFile:
    """
    Read a baseline. writer: the command that writes it again.

    Raises:
        BaselineError: it is cut off, has another schema, or is not a baseline. OSError: it cannot be read.
    """
    again = f"write it again with {writer} --baseline {shlex.quote(str(path))} --update-baseline"
    try:
        content = current_record(strict_json(path.read_text(encoding="utf-8")))
    except ValueError as error:
        why = f"{path}: not JSON, perhaps cut off ({error})"
        raise BaselineError(f"{why}: restore it from version control, or delete it and {again}") from None
    if not isinstance(content, dict) or content.get("type") != "baseline":
        raise BaselineError(f"{path}: not a baseline: give the file that {writer} --update-baseline wrote")
    if content.get("schema") != SCHEMA:
        why = f"{path}: schema {content.get('schema')!r}; this version reads schema {SCHEMA}"
        raise BaselineError(f"{why}: use the version that wrote it, or delete it and {again}")
    try:
        found = BaselineFile.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        location = ".".join(map(str, first["loc"]))
        why = f"{path}: {location}: {first['msg']}"
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
    """The text of the file, with one line for each cell, so that a changed cell is a changed line."""
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
    """Write a baseline atomically."""
    write_asked(path, text_of(content))


# Significant digits of a budget: enough to show drift, few enough to be stable.
DIGITS = 3


def side_of_baseline(baseline: BaselineFile, name: str) -> ComparedRun:
    """A baseline as a side of a comparison."""
    cells: dict[Key, Observed] = {}
    asked = {}
    for subject, about in baseline.subjects.items():
        asked[subject] = _circumstances(baseline.environments[about.environment], about.adapter)
        for case, entry in about.cells.items():
            environment = baseline.environments[entry.environment or about.environment]
            where = _circumstances(environment, about.adapter) if entry.environment else None
            cells[case, subject] = _observed(entry, baseline.cases.get(case, ""), environment.judge, where)
    return ComparedRun(name, baseline.cases, asked, cells)


def _circumstances(environment: CellKey, adapter: str) -> Circumstances:
    return Circumstances(environment.versions, environment.machine, adapter)


def _observed(entry: BaselineEntry, problem: str, judge: str, where: Circumstances | None) -> Observed:
    return Observed(
        verdict=entry.verdict,
        budget=None if entry.budget is None else float(entry.budget),
        ways=tuple(entry.ways),
        declared=entry.declared,
        klass=entry.klass,
        error=entry.error,
        root=entry.root,
        bits=entry.bits,
        problem=problem,
        judge=judge,
        uncalibrated=entry.uncalibrated,
        looked=entry.looked,
        where=where,
    )


def within(base: ComparedRun, candidate: ComparedRun, *, whole: bool, left_out: Collection[str] = ()) -> ComparedRun:
    """
    The part of a base that a run can be compared with: only the cases and subjects that were requested.

    whole: all cases were requested except those in `left_out`, so other cases that are absent have been deleted.
    """
    absent = candidate.not_offered.keys() if whole else ()
    kept = {
        key: cell
        for key, cell in base.cells.items()
        if (candidate.asks(key[1]) or key[1] in absent)
        and key[0] not in left_out
        and (whole or key[0] in candidate.cases)
    }
    return replace(base, cells=kept)


def updated(
    baseline: BaselineFile | None, run: ComparedRun, *, whole: bool, left_out: Collection[str] = ()
) -> dict[str, Any]:
    """
    The content of a baseline after a run: judged cells replace earlier ones, all others are kept.

    whole: all cases were requested except those in `left_out`, so cells of the run's subjects on other cases are
    dropped: those cases no longer exist. Cells of dense forms that the run was asked for and does not have are dropped.
    """
    old = baseline.model_dump(by_alias=True, exclude_defaults=True) if baseline is not None else {}
    environments: dict[str, Any] = dict(old.get("environments", {}))
    subjects: dict[str, Any] = {}
    for name in sorted({*old.get("subjects", {}), *(subject for _, subject in run.cells)}):
        before = old.get("subjects", {}).get(name, {})
        cells = {case: _with_environment(cell, before) for case, cell in before.get("cells", {}).items()}
        if run.asks(name):
            gone = run.cases if native(name) != name else ()  # of a dense form, the run adds what there is
            kept = {*run.cases, *left_out} if whole else cells.keys()
            cells = {case: cell for case, cell in cells.items() if case in kept and case not in gone}
        cells |= _entries(run, name, environments)
        if not cells:
            continue
        subjects[name] = _subject(cells, run.asked[name].adapter if name in run.asked else before["adapter"])
    seen = {case for subject in subjects.values() for case in subject["cells"]}
    cases = {**old.get("cases", {}), **run.cases}
    used = {cell.get("environment") for subject in subjects.values() for cell in subject["cells"].values()}
    used |= {subject["environment"] for subject in subjects.values()}
    return {
        "type": "baseline",
        "schema": SCHEMA,
        "environments": {name: environments[name] for name in sorted(environments) if name in used},
        "cases": {case: cases[case] for case in sorted(seen)},
        "subjects": subjects,
    }


def _with_environment(cell: Mapping[str, Any], subject: Mapping[str, Any]) -> dict[str, Any]:
    return {"environment": subject["environment"], **cell}


def _entries(run: ComparedRun, subject: str, environments: dict[str, Any]) -> dict[str, Any]:
    """The cells of one subject in a run; their environments are added to `environments`."""
    found = {}
    for (case, name), cell in run.cells.items():
        if name == subject:
            about = run.asked[subject]
            versions = dict(sorted(about.versions.items()))
            environment = {"versions": versions, "machine": dict(about.machine), "judge": cell.judge}
            digest = sha256(json.dumps(environment, sort_keys=True).encode()).hexdigest()[:8]
            environments[digest] = environment
            found[case] = {"environment": digest, **_entry(cell)}
    return found


def _entry(cell: Observed) -> dict[str, Any]:
    optional = {
        "class": cell.klass,
        "ways": list(cell.ways),
        "declared": dict(sorted(cell.declared.items())) if cell.verdict == "dialect" else {},
        "error": cell.error,
        "root": cell.root,
        "uncalibrated": cell.uncalibrated,
        "looked": cell.looked and cell.conforms,  # which failures were checked depends on where a run was cut off
        "budget": _rounded(cell.budget),
        "bits": cell.bits,
    }
    given = {name: value for name, value in optional.items() if value or name == "budget"}
    return {"verdict": cell.verdict, **{name: value for name, value in given.items() if value is not None}}


def _rounded(budget: float | None) -> Budget | None:
    if budget is None:
        return None
    if not isfinite(budget):
        return "nan" if isnan(budget) else "inf"
    return float(f"{budget:.{DIGITS}g}")


def _subject(cells: Mapping[str, dict[str, Any]], adapter: str) -> dict[str, Any]:
    """The record of one subject; the most common environment of its cells is stated once."""
    common = Counter(cell["environment"] for cell in cells.values()).most_common()
    usual = min((name for name, number in common if number == common[0][1]), default="")
    kept = {
        case: {name: value for name, value in cells[case].items() if (name, value) != ("environment", usual)}
        for case in sorted(cells)
    }
    return {"environment": usual, "adapter": adapter, "cells": kept}
