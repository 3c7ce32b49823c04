"""
The data inside an HTML page: the index of cells, their texts, and their packed arrays; and the frame around them.

The content security policy of a page allows only its one script and its one style, by their hashes. Trusted Types
prevent the script from turning text into markup.
"""

import base64
import gzip
import hashlib
import json
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import IO, Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from numpy.typing import NDArray

from conformance.bridge.strict_json import plain_data
from conformance.engine.logged_cell import JudgedCell, LoggedCell
from conformance.engine.records import Key, LoggedCase, LoggedSubject
from conformance.engine.run_folder import Run
from conformance.report.counts import budget_text, first_line, kind_of, what_happened
from conformance.report.findings import advice
from conformance.spec.texts import capital
from conformance.verdicts.verdict import CONFORMING, GRAVITY

Array = NDArray[np.float64]

# Maximum number of array elements of one cell; larger arrays stay in the run folder.
MAX_CELL_ELEMENTS = 4 * 1024 * 1024

# Number of characters of the packed parts that are read at once.
PIECE = 1 << 16


@dataclass
class Planes:
    """The binary part of a blob under construction."""

    parts: list[bytes] = field(default_factory=list)

    def add(self, array: NDArray[Any]) -> dict[str, Any]:
        """Append `array` with its bytes grouped by significance; return the dtype and length needed to read it back."""
        little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        grouped = little.reshape(-1).view(np.uint8).reshape(-1, little.itemsize).T
        self.parts.append(grouped.tobytes())
        return {"type": f"{little.dtype.kind}{little.itemsize}", "length": int(little.size)}


def pack(path: Path) -> tuple[bytes | None, str]:
    """The blob of a tensors file and "", or None and the reason why there is none."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: np.asarray(archive[name], dtype=np.float64) for name in archive.files}
    except FileNotFoundError:
        return None, f"{path.name} is not in the run folder"
    except Exception as error:  # noqa: BLE001 - a damaged archive fails in many ways; the report must still be written
        return None, f"{path.name} cannot be read: {error}"
    if (size := sum(array.size for array in arrays.values())) > MAX_CELL_ELEMENTS:
        return None, f"the page cannot hold {size:,} numbers; they are in {path.name}"
    return blob(arrays), ""


def blob(arrays: dict[str, Array]) -> bytes:
    """The bytes of a blob: header length (uint32, little-endian), JSON header, planes."""
    planes = Planes()
    header = json.dumps([_output(name, arrays, planes) for name in _outputs(arrays)]).encode()
    return struct.pack("<I", len(header)) + header + b"".join(planes.parts)


def _outputs(arrays: dict[str, Array]) -> Iterator[str]:
    names = (name.rpartition(".") for name in arrays)
    yield from dict.fromkeys(output for output, _, part in names if part in ("expected", "actual"))


def _output(name: str, arrays: dict[str, Array], planes: Planes) -> dict[str, Any]:
    want, got = arrays.get(f"{name}.expected"), arrays.get(f"{name}.actual")
    if want is None or got is None or want.shape != got.shape:
        return {"name": name, "alone": {"want": _alone(want, planes), "got": _alone(got, planes)}}
    entry = {"name": name, "shape": list(want.shape)} | _pair(want, got, planes)
    tolerance = arrays.get(f"{name}.tolerance")
    if tolerance is not None:
        entry["tolerance"] = planes.add(_seven_digits(np.broadcast_to(tolerance, want.shape)))
    return entry


def _alone(array: Array | None, planes: Planes) -> dict[str, Any] | None:
    if array is None:
        return None
    return {"shape": list(array.shape)} | planes.add(_narrow(array))


def _pair(want: Array, got: Array, planes: Planes) -> dict[str, Any]:
    finite = np.isfinite(want) & np.isfinite(got)
    error = np.subtract(got, want, out=np.zeros_like(got), where=finite)
    kept, narrow = _narrow(got), _float32(error)
    exact = _restored(kept, narrow, want, finite)
    nonfinite = np.flatnonzero(~finite).astype(np.uint32)
    return {
        "got": planes.add(kept),
        "error": planes.add(narrow if exact else error),
        "odd": planes.add(nonfinite),
        "odd_want": planes.add(want.reshape(-1)[nonfinite]),
    }


def _restored(got: NDArray[Any], error: NDArray[Any], want: Array, finite: NDArray[np.bool_]) -> bool:
    """Whether `got - error` gives the expected values back to seven digits."""
    back = np.subtract(got, error, out=np.zeros_like(want), where=finite, dtype=np.float64)
    near = np.abs(back - np.where(finite, want, 0)) <= 1e-6 * np.abs(np.where(finite, want, 0))  # seven digits
    return bool(np.all(near | ~finite))


def _narrow(array: Array) -> NDArray[Any]:
    """The array as float32 if that is exact, else unchanged."""
    narrow = _float32(array)
    return narrow if np.array_equal(narrow, array, equal_nan=True) else np.asarray(array)


def _seven_digits(array: Array) -> NDArray[Any]:
    """The array as float32, unless a number would become zero or infinite."""
    narrow = _float32(array)
    same = np.array_equal(narrow == 0, array == 0) and np.array_equal(np.isinf(narrow), np.isinf(array))
    return narrow if same else np.asarray(array)


def _float32(array: Array) -> NDArray[np.float32]:
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return array.astype(np.float32)


# Bits of the marks of a cell in the index.
REJECTED, KNOWN, UNCALIBRATED = 1, 2, 4

# The number of the verdict "missing" in the index.
MISSING = len(GRAVITY)

# Maximum number of bytes of packed tensors; further ones stay in the run folder.
MAX_PAGE_BYTES = 48 * 1024 * 1024

# The lower maximum from which tensors of accepted cells stay there: a page is opened to see rejected cells.
MAX_ACCEPTED_BYTES = 2 * 1024 * 1024

# Significant digits of times on the page.
DIGITS = 3

WITHOUT_TYPE = frozenset({"type", "schema", "case", "subject"})


@dataclass
class Texts:
    """Strings shared by many cells, each stored once; number 0 is the empty string."""

    numbers: dict[str, int] = field(default_factory=lambda: {"": 0})

    def number(self, text: str) -> int:
        """The position of `text` in the list; it is added if it is new."""
        return self.numbers.setdefault(text, len(self.numbers))


@dataclass
class Blobs:
    """Packed tensors by element id, and the reason for those that are left out."""

    packed: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    size: int = 0

    def add(self, name: str, run: Run, cell: JudgedCell) -> None:
        """Pack the tensors of `cell` if the page has room."""
        path = (run.folder / cell.tensors).resolve()
        if not path.is_relative_to(run.folder.resolve()):
            self.left_out[name] = f"{cell.tensors} is outside the run folder"
        elif self.size > (MAX_PAGE_BYTES if cell.key in run.rejected else MAX_ACCEPTED_BYTES):
            self.left_out[name] = f"the page is full; the arrays are in {cell.tensors}"
        else:
            data, self.left_out[name] = pack(path)
            if data is not None:
                self.packed[name] = packed(data)
                self.size += len(self.packed[name])


def packed(data: bytes) -> str:
    """`data` compressed by gzip and encoded in base64, which HTML does not interpret."""
    return base64.b64encode(gzip.compress(data, compresslevel=6, mtime=0)).decode("ascii")


def script_json(value: Any) -> str:
    """Strict JSON that is safe inside a script element."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


class TextLines:
    """Lines of text in a file, because they grow with the run."""

    def __init__(self, file: IO[str]) -> None:
        """Start with an empty file, opened for writing and reading."""
        self._file = file

    def append(self, line: str) -> None:
        """Add a line, which has no line end."""
        self._file.write(f"{line}\n")

    def __iter__(self) -> Iterator[str]:
        """Each line."""
        self._file.seek(0)
        return (line[:-1] for line in self._file)


class PackedParts:
    """
    The packed parts of a page as one text: one HTML element is cheaper than hundreds.

    The text is in a file, because it grows with the run. places: the entries of a JSON object with the start and the
    length of each part.
    """

    def __init__(self, file: IO[str], places: TextLines) -> None:
        """Start with an empty file, opened for writing and reading, and without places."""
        self._file, self.places = file, places
        self._end = 0

    def add(self, name: str, text: str) -> None:
        """Append a packed part."""
        self._file.write(text)
        self.places.append(f"{script_json(name)}:{script_json([self._end, len(text)])}")
        self._end += len(text)

    def __iter__(self) -> Iterator[str]:
        """The text in pieces."""
        self._file.seek(0)
        return iter(lambda: self._file.read(PIECE), "")


def index(run: Run, rows: Iterable[str], texts: Texts, places: Iterable[str]) -> Iterator[str]:
    """
    The index that the page loads at once, as the entries of a JSON object, in pieces because it grows with the run.

    It has subjects, cases, and a short row of numbers for each cell.

    rows: those of each case, from `add_cases`. texts: what they number. places: of `PackedParts`.
    """
    subjects = [_subject(subject) for subject in run.header.subjects.values()]
    yield f'"run":{script_json(run.header.run)},"verdicts":{script_json([*GRAVITY, "missing"])},'
    yield f'"subjects":{script_json(subjects)},"texts":{script_json(list(texts.numbers))},"cases":['
    yield from _listed(script_json(_case(case)) for case in run.header.cases.values())
    yield '],"cells":['
    yield from _listed(rows)
    yield '],"places":{'
    yield from _listed(places)
    yield "}"


def _listed(entries: Iterable[str]) -> Iterator[str]:
    """The entries of a JSON list or object, with commas between them."""
    for number, entry in enumerate(entries):
        yield f",{entry}" if number else entry


def _subject(subject: LoggedSubject) -> dict[str, Any]:
    return {
        "name": subject.name,
        "framework": subject.framework,
        "operators": list(subject.operators),
        "counted": subject.counted,
    }


def _case(case: LoggedCase) -> dict[str, Any]:
    return {
        "name": case.name,
        "suite": case.suite,
        "operator": case.operator,
        "dtype": case.dtype,
        "summary": case.summary,
    }


def _cell(cell: LoggedCell, judged: JudgedCell, run: Run, texts: Texts) -> list[Any]:
    marks = REJECTED * (judged.key in run.rejected) + KNOWN * (judged.known is not None)
    text = "" if cell.verdict == "pass" else _text(cell)
    return [
        GRAVITY.index(cell.verdict),
        budget_text(cell.budget),
        marks + UNCALIBRATED * cell.uncalibrated,
        texts.number(text),
        texts.number(_way(cell)),
        texts.number(", ".join(f"{each.decision}: {each.name}" for each in cell.dialect)),
    ]


def _text(cell: LoggedCell) -> str:
    return cell.explanation.sentence if cell.explanation else what_happened(cell)


def _way(cell: LoggedCell) -> str:
    """How a cell fails, as a text that is equal for equal disagreements; "" if it conforms."""
    if cell.verdict in CONFORMING:
        return ""
    if cell.explanation is not None:
        return f"{cell.verdict} {cell.explanation.decision}={cell.explanation.name}"
    if cell.verdict == "fail":
        return kind_of(cell)
    text = f"{cell.error.kind} {first_line(cell.error.message)}" if cell.error else first_line(cell.reason)
    return f"{cell.verdict} {re.sub(r'[0-9]+', '#', text)}"


def blobs(run: Run) -> Blobs:
    """
    The packed tensors of all cells that have some, as far as the page has room; ids are `cell-CASE-SUBJECT`, by number.

    Rejected cells come first, then one cell for each known deviation of each subject, then the others.
    """
    result = Blobs()
    rows, columns = ({name: at for at, name in enumerate(names)} for names in (run.header.cases, run.header.subjects))
    for cell in sorted((cell for cell in run.judged.values() if cell.tensors), key=_rank(run)):
        result.add(f"cell-{rows[cell.case]}-{columns[cell.subject]}", run, cell)
    return result


def _rank(run: Run) -> Callable[[JudgedCell], int]:
    """The sort key of cells: rejected ones, then the first of each known deviation and subject, then the others."""
    first: dict[tuple[str, str], Key] = {}
    for cell in run.judged.values():
        if cell.tensors and cell.known is not None:
            first.setdefault((cell.known.reason, cell.subject), cell.key)
    shown = frozenset(first.values())

    def rank(cell: JudgedCell) -> int:
        return 0 if cell.key in run.rejected else 1 if cell.key in shown else 2

    return rank


def add_cases(run: Run, tensors: Blobs, parts: PackedParts, texts: Texts) -> Iterator[str]:
    """
    Add one compressed chunk for each case: its record, and those of its cells by subject number.

    The cells of a case are read from the log, and forgotten before the next case. Yields the rows of the case in the
    index, as script JSON.
    """
    numbers = {name: number for number, name in enumerate(run.header.subjects)}
    missing = _missing_by_case(run)
    for row, case in enumerate(run.header.cases.values()):
        records: dict[int, Any] = {}
        rows: list[list[Any]] = []
        for name, number in numbers.items():
            if (judged := run.judged.get((case.name, name))) is not None:
                record = run.cells.record(judged.key)
                cell = LoggedCell.model_validate(record)
                records[number] = _shown(record, cell, tensors.left_out.get(f"cell-{row}-{number}", ""))
                rows.append([number, *_cell(cell, judged, run, texts)])
        rows += [[numbers[name], MISSING, "", 0, 0, 0, 0] for name in missing.get(case.name, ())]
        parts.add(f"case-{row}", packed(json.dumps(_chunk(case, records), allow_nan=False).encode()))
        yield script_json(rows)


def _missing_by_case(run: Run) -> dict[str, list[str]]:
    """The names of the subjects that owe a verdict, by case."""
    found: dict[str, list[str]] = {}
    for case, subject in sorted(run.missing):
        found.setdefault(case, []).append(subject)
    return found


def _shown(record: Mapping[str, Any], cell: LoggedCell, note: str) -> dict[str, Any]:
    """The record of a cell as the page shows it; note: why its arrays are absent, or ""."""
    shown = {name: value for name, value in record.items() if name not in WITHOUT_TYPE}
    if "seconds" in shown:
        shown["seconds"] = plain_data({name: float(f"{each:.{DIGITS}g}") for name, each in cell.seconds.items()})
    if cell.explanation is not None:
        shown["advice"] = capital(advice(cell.explanation.remedy))
    return shown | ({"tensors_note": note} if note else {})


def _chunk(case: LoggedCase, cells: Mapping[int, Any]) -> dict[str, Any]:
    about = {"yaml": case.yaml, "source": case.source, "digest": case.digest, "tags": list(case.tags)}
    return {"case": about, "cells": cells}


def environment(filters: Mapping[str, Callable[..., Any]]) -> Environment:
    """A Jinja environment for the templates in page/; everything that a template inserts is escaped."""
    templates = Environment(
        loader=PackageLoader("conformance.report", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= filters
    return templates


def asset(name: str) -> str:
    """The text of a file in page/."""
    return files("conformance.report").joinpath("page", name).read_text(encoding="utf-8")


def script_of(names: Iterable[str]) -> str:
    """One script made of several files, in the given order, which must respect their dependencies."""
    parts = "\n".join(asset(f"{name}.js") for name in names)
    return f'(() => {{\n"use strict";\n{parts}\n}})();'


def policy(style: str, script: str) -> str:
    """The content security policy of a page with this style and this script."""
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hash(script)}",
            f"style-src {_hash(style)}",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
        )
    )


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
