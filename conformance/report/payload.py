"""
The data of the page.

The index, plain JSON, is what the matrix, the filters and the pair view need. Everything else is compressed and
opened with the cell that it belongs to: one chunk per case (its YAML and the records of its cells), one blob per
tensors file. Nothing here is markup: the page only ever writes it as text.
"""

import base64
import gzip
import json
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from conformance.bridge.values import plain
from conformance.engine.records import Case, Cell, Key, Subject
from conformance.engine.run import Run
from conformance.judge.verdict import CONFORMING, GRAVITY
from conformance.report.numbers import budget_text
from conformance.report.tensors import pack
from conformance.report.verdicts import first_line, kind_of, what_happened

REJECTED, KNOWN, UNCALIBRATED = 1, 2, 4
"""Marks of a cell in the index."""

MISSING = len(GRAVITY)
"""Stands in the index where a verdict is owed and absent."""

LARGEST_PAGE = 48 * 1024 * 1024
"""Bytes of packed tensors beyond which further ones stay in the run folder."""

LARGEST_ACCEPTED = 2 * 1024 * 1024
"""The same beyond which those of cells that the gate accepts stay there: a page is opened for what it rejects."""

DIGITS = 3
"""Significant digits of a time on the page."""

SHOWN_ELSEWHERE = frozenset({"type", "schema", "case", "subject"})


@dataclass
class Texts:
    """Strings that many cells share, each kept once; number 0 is the empty one."""

    numbers: dict[str, int] = field(default_factory=lambda: {"": 0})

    def number(self, text: str) -> int:
        """Where `text` stands in the list."""
        return self.numbers.setdefault(text, len(self.numbers))


@dataclass
class Blobs:
    """Packed tensors by element id, and why some are left out."""

    packed: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    size: int = 0

    def add(self, name: str, run: Run, cell: Cell) -> None:
        """Pack the tensors of `cell` while there is room."""
        path = (run.folder / cell.tensors).resolve()
        if not path.is_relative_to(run.folder.resolve()):
            self.left_out[name] = f"{cell.tensors} is outside the run folder"
        elif self.size > (LARGEST_PAGE if cell.key in run.rejected else LARGEST_ACCEPTED):
            self.left_out[name] = f"the page is full; the arrays are in {cell.tensors}"
        else:
            data, self.left_out[name] = pack(path)
            if data is not None:
                self.packed[name] = packed(data)
                self.size += len(self.packed[name])


def packed(data: bytes) -> str:
    """Compressed, and in letters that mean nothing to HTML."""
    return base64.b64encode(gzip.compress(data, compresslevel=6, mtime=0)).decode("ascii")


def script_json(value: Any) -> str:
    """Strict JSON that stands safely inside a script element."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def index(run: Run) -> dict[str, Any]:
    """What the page holds in memory: subjects, cases, and a short row of numbers per cell."""
    texts = Texts()
    rows = _rows(run, texts)
    return {
        "run": run.header.run,
        "verdicts": [*GRAVITY, "missing"],
        "subjects": [_subject(subject) for subject in run.header.subjects.values()],
        "cases": [_case(case) for case in run.header.cases.values()],
        "cells": [rows[name] for name in run.header.cases],
        "texts": list(texts.numbers),
    }


def _subject(subject: Subject) -> dict[str, Any]:
    return {
        "name": subject.name,
        "framework": subject.framework,
        "operators": list(subject.operators),
        "counted": subject.counted,
    }


def _case(case: Case) -> dict[str, Any]:
    return {
        "name": case.name,
        "suite": case.suite,
        "operator": case.operator,
        "dtype": case.dtype,
        "summary": case.summary,
    }


def _rows(run: Run, texts: Texts) -> Mapping[str, list[list[Any]]]:
    rows: dict[str, list[list[Any]]] = defaultdict(list)
    numbers = {name: number for number, name in enumerate(run.header.subjects)}
    for cell in run.cells.values():
        rows[cell.case].append([numbers[cell.subject], *_cell(cell, run, texts)])
    for case, subject in sorted(run.missing):
        rows[case].append([numbers[subject], MISSING, "", 0, 0, 0, 0])
    return rows


def _cell(cell: Cell, run: Run, texts: Texts) -> list[Any]:
    marks = REJECTED * (cell.key in run.rejected) + KNOWN * (cell.known is not None)
    said = "" if cell.verdict == "pass" else _said(cell)
    return [
        GRAVITY.index(cell.verdict),
        budget_text(cell.budget),
        marks + UNCALIBRATED * cell.uncalibrated,
        texts.number(said),
        texts.number(_way(cell)),
        texts.number(", ".join(f"{item.decision}: {item.name}" for item in cell.dialect)),
    ]


def _said(cell: Cell) -> str:
    return cell.explanation.sentence if cell.explanation else what_happened(cell)


def _way(cell: Cell) -> str:
    """In which way a cell does not conform: equal ways are the same disagreement."""
    if cell.verdict in CONFORMING:
        return ""
    if cell.explanation is not None:
        return f"{cell.verdict} {cell.explanation.decision}={cell.explanation.name}"
    if cell.verdict == "fail":
        return kind_of(cell)
    said = f"{cell.error.kind} {first_line(cell.error.message)}" if cell.error else first_line(cell.reason)
    return f"{cell.verdict} {re.sub(r'[0-9]+', '#', said)}"


def blobs(run: Run) -> Blobs:
    """
    The tensors of cells that name some, packed, as far as there is room; ids are `cell-CASE-SUBJECT` by number.

    Those of rejected cells come first, then one for each known deviation of each subject.
    """
    found = Blobs()
    ids = _ids(run)
    for cell in sorted((cell for cell in run.cells.values() if cell.tensors), key=_rank(run)):
        found.add(ids[cell.key], run, cell)
    return found


def _rank(run: Run) -> Callable[[Cell], int]:
    """Where a cell stands: rejected ones, then the first of each known deviation and subject, then the others."""
    first: dict[tuple[str, str], Key] = {}
    for cell in run.cells.values():
        if cell.tensors and cell.known is not None:
            first.setdefault((cell.known.reason, cell.subject), cell.key)
    shown = frozenset(first.values())

    def rank(cell: Cell) -> int:
        return 0 if cell.key in run.rejected else 1 if cell.key in shown else 2

    return rank


def _ids(run: Run) -> dict[tuple[str, str], str]:
    return {
        (case, subject): f"cell-{row}-{column}"
        for row, case in enumerate(run.header.cases)
        for column, subject in enumerate(run.header.subjects)
    }


def chunks(run: Run, found: Blobs) -> dict[str, str]:
    """One compressed chunk per case: its own record and those of its cells, by the number of their subject."""
    numbers = {name: number for number, name in enumerate(run.header.subjects)}
    ids = _ids(run)
    cells: dict[str, dict[int, Any]] = defaultdict(dict)
    for key, cell in run.cells.items():
        record = {name: value for name, value in cell.record.items() if name not in SHOWN_ELSEWHERE}
        if "seconds" in record:
            record["seconds"] = plain({name: float(f"{each:.{DIGITS}g}") for name, each in cell.seconds.items()})
        if note := found.left_out.get(ids[key]):
            record["tensors_note"] = note
        cells[cell.case][numbers[cell.subject]] = record
    return {
        f"case-{number}": packed(json.dumps(_chunk(case, cells[name]), allow_nan=False).encode())
        for number, (name, case) in enumerate(run.header.cases.items())
    }


def joined(parts: Mapping[str, str]) -> tuple[str, dict[str, list[int]]]:
    """All packed parts as one text, and where each begins and how long it is: one element costs less than hundreds."""
    places: dict[str, list[int]] = {}
    start = 0
    for name, text in parts.items():
        places[name] = [start, len(text)]
        start += len(text)
    return "".join(parts.values()), places


def _chunk(case: Case, cells: Mapping[int, Any]) -> dict[str, Any]:
    about = {"yaml": case.yaml, "source": case.source, "digest": case.digest, "tags": list(case.tags)}
    return {"case": about, "cells": cells}
