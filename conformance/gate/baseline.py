"""
Baselines: what a run showed, in a small file that is committed beside the code.

A baseline is memory, never a licence: it makes nothing green. One line per cell, in a fixed order, so that a change of
behaviour is a changed line in a review.
"""

import json
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from hashlib import sha256
from math import isfinite, isnan
from typing import Any

from conformance.engine.records import Key
from conformance.gate.baseline_file import SCHEMA, BaselineFile, Budget, Entry, Place
from conformance.gate.side import Circumstances, Observed, Side

DIGITS = 3
"""Significant digits of a budget: enough to see it drift, few enough to stay where it is."""


def side_of_baseline(baseline: BaselineFile, name: str) -> Side:
    """What a baseline remembers, as a side of a comparison."""
    cells: dict[Key, Observed] = {}
    asked = {}
    for subject, about in baseline.subjects.items():
        asked[subject] = _circumstances(baseline.environments[about.environment], about.adapter)
        for case, entry in about.cells.items():
            place = baseline.environments[entry.environment or about.environment]
            where = _circumstances(place, about.adapter) if entry.environment else None
            cells[case, subject] = _observed(entry, baseline.cases.get(case, ""), place.judge, where)
    return Side(name, baseline.cases, asked, cells)


def _circumstances(place: Place, adapter: str) -> Circumstances:
    return Circumstances(place.versions, place.machine, adapter)


def _observed(entry: Entry, problem: str, judge: str, where: Circumstances | None) -> Observed:
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


def within(base: Side, candidate: Side, *, whole: bool, left_out: Collection[str] = ()) -> Side:
    """
    What a run can be compared with: of a part of the cases or subjects, only what was asked for.

    whole: every case was asked for but those that were left out, so that others that are absent have been deleted.
    """
    subjects = candidate.asked.keys() | (candidate.not_offered.keys() if whole else set())
    kept = {
        key: cell
        for key, cell in base.cells.items()
        if key[1] in subjects and key[0] not in left_out and (whole or key[0] in candidate.cases)
    }
    return replace(base, cells=kept)


def updated(baseline: BaselineFile | None, run: Side, *, whole: bool, left_out: Collection[str] = ()) -> dict[str, Any]:
    """
    The content of a baseline after a run: cells that were judged replace what stood there, all others stay.

    whole: every case was asked for but those that were left out, so that cells of the run's subjects on other cases are
    of cases that are gone.
    """
    old = baseline.model_dump(by_alias=True, exclude_defaults=True) if baseline is not None else {}
    places: dict[str, Any] = dict(old.get("environments", {}))
    subjects: dict[str, Any] = {}
    for name in sorted({*old.get("subjects", {}), *(subject for _, subject in run.cells)}):
        before = old.get("subjects", {}).get(name, {})
        cells = {case: _placed(cell, before) for case, cell in before.get("cells", {}).items()}
        if whole and name in run.asked:
            cells = {case: cell for case, cell in cells.items() if case in run.cases or case in left_out}
        cells |= _entries(run, name, places)
        subjects[name] = _subject(cells, run.asked[name].adapter if name in run.asked else before["adapter"])
    seen = {case for subject in subjects.values() for case in subject["cells"]}
    cases = {**old.get("cases", {}), **run.cases}
    used = {cell.get("environment") for subject in subjects.values() for cell in subject["cells"].values()}
    used |= {subject["environment"] for subject in subjects.values()}
    return {
        "type": "baseline",
        "schema": SCHEMA,
        "environments": {name: places[name] for name in sorted(places) if name in used},
        "cases": {case: cases[case] for case in sorted(seen)},
        "subjects": subjects,
    }


def _placed(cell: Mapping[str, Any], subject: Mapping[str, Any]) -> dict[str, Any]:
    return {"environment": subject["environment"], **cell}


def _entries(run: Side, subject: str, places: dict[str, Any]) -> dict[str, Any]:
    """The cells of one subject in a run; their environments are added to `places`."""
    found = {}
    for (case, name), cell in run.cells.items():
        if name == subject:
            about = run.asked[subject]
            versions = dict(sorted(about.versions.items()))
            place = {"versions": versions, "machine": dict(about.machine), "judge": cell.judge}
            digest = sha256(json.dumps(place, sort_keys=True).encode()).hexdigest()[:8]
            places[digest] = place
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
        "looked": cell.looked and cell.conforms,  # which failures were looked at depends on where a run was cut
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
    """One subject: the environment of most of its cells is said once."""
    common = Counter(cell["environment"] for cell in cells.values()).most_common()
    usual = min((name for name, number in common if number == common[0][1]), default="")
    kept = {
        case: {name: value for name, value in cells[case].items() if (name, value) != ("environment", usual)}
        for case in sorted(cells)
    }
    return {"environment": usual, "adapter": adapter, "cells": kept}
