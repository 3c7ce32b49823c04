"""The HTML page of a run: verdicts, findings, coverage of features, and the data for its scripts."""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, partial
from typing import IO, Any
from urllib.parse import quote, urlsplit

from jinja2 import Template
from markupsafe import Markup

from conformance import __version__
from conformance.bridge.strict_json import strict_json
from conformance.disk import write_pieces
from conformance.engine.logged_cell import JudgedCell, LoggedCell
from conformance.engine.records import Key
from conformance.engine.run_folder import Run
from conformance.engine.runlog import RunLogError
from conformance.report import port_text, probe_report
from conformance.report.conclusion import gate_notes, headline, known_groups, left_out_note, replies_note, subject_lines
from conformance.report.counts import budget_text, share_text, verdict_counts
from conformance.report.findings import Finding, advice, findings, unexplained_kind
from conformance.report.page_data import (
    PackedParts,
    TextLines,
    Texts,
    add_cases,
    asset,
    blobs,
    environment,
    index,
    policy,
    script_json,
    script_of,
)
from conformance.spec.old_names import current_record
from conformance.spec.texts import capital, counted, quoted

# What the coverage table shows for a feature without a judged case.
DECLINED = "declined"
NOT_REACHED = "not reached"


@dataclass
class Reach:
    """How many cases with a feature were judged for a subject, and how many it declined."""

    judged: int = 0
    declined: int = 0

    @property
    def text(self) -> str:
        """The number of judged cases, or why there is none."""
        if self.judged:
            return str(self.judged)
        return DECLINED if self.declined else NOT_REACHED


@dataclass(frozen=True)
class Row:
    """A feature and its reach for each counted subject, by name."""

    feature: str
    reach: Mapping[str, Reach]


def counted_subjects(run: Run) -> tuple[str, ...]:
    """The names of the counted subjects, in the order of the run."""
    return tuple(name for name, subject in run.header.subjects.items() if subject.counted)


def coverage(run: Run) -> tuple[Row, ...]:
    """A row for each feature that a case of the run has, sorted by name."""
    names = counted_subjects(run)
    features = sorted({feature for case in run.header.cases.values() for feature in case.features})
    found = {feature: {name: Reach() for name in names} for feature in features}
    for cell in run.judged.values():
        if cell.subject in names:
            for feature in run.header.cases[cell.case].features:
                _count(found[feature][cell.subject], cell, feature)
    return tuple(Row(feature, reach) for feature, reach in found.items())


def _count(reach: Reach, cell: JudgedCell, feature: str) -> None:
    """Count one cell; an output that the subject does not have counts as declined, whatever the verdict is."""
    kind, _, name = feature.partition(" ")
    if cell.verdict == "unsupported" or (kind == "output" and name in cell.dropped_outputs):
        reach.declined += 1
    else:
        reach.judged += 1


PAGE_FILE = "index.html"
# The parts of the page's script, in the order in which they build on each other.
SCRIPTS = ("elements", "dom", "state", "matrix", "colour", "heatmap", "picture", "detail", "pair", "main")

# Files of the run that the page links to.
FILES = ("verdict.json", "summary.md", "junit.xml", "run.jsonl")

# One symbol per verdict: a verdict is never shown by colour alone.
SYMBOLS = {
    "pass": "✓",
    "dialect": "≈",
    "unsupported": "–",
    "inconclusive": "?",
    "known": "K",
    "fail": "✗",
    "error": "E",
    "timeout": "T",
    "crash": "C",
    "missing": "○",
}

MEANINGS = {
    "pass": "within the bound of canonical attention",
    "dialect": "within the bound of what is declared, which differs from canonical attention here",
    "unsupported": "declined by the adapter before the framework was called",
    "inconclusive": "could not be judged",
    "known": "fails, but a known deviation accepts it for a stated reason",
    "fail": "the reply differs from the expected one by more than the allowed error",
    "error": "an exception, a declaration that cannot be judged, or a reply from another device than the requested one",
    "timeout": "no reply within the time limit",
    "crash": "the worker process died",
    "missing": "expected, but not in the log",
}


def write_page(run: Run) -> None:
    """Write index.html into the run folder."""
    write_pieces(run.folder / PAGE_FILE, page(run))


def page(run: Run) -> Iterator[str]:
    """The page in pieces, because it grows with the run."""
    style, script = asset("page.css"), script_of(SCRIPTS)
    with ExitStack() as stack:

        def file() -> IO[str]:
            return stack.enter_context(tempfile.TemporaryFile("w+", encoding="ascii", dir=run.folder))

        parts, rows = PackedParts(file(), TextLines(file())), TextLines(file())
        yield from template().generate(
            **_reported(run),
            picture=partial(picture, run),
            style=Markup(style),  # noqa: S704 - our own file
            script=Markup(script),  # noqa: S704 - our own files
            policy=policy(style, script),
            index=map(Markup, _index(run, parts, rows)),
            packed=parts,
        )


def _index(run: Run, parts: PackedParts, rows: TextLines) -> Iterator[str]:
    """The index as script JSON, after everything that it names has been packed; rows: an empty file for its rows."""
    tensors, texts = blobs(run), Texts()
    for row in add_cases(run, tensors, parts, texts):
        rows.append(row)
    for name, text in tensors.packed.items():
        parts.add(name, text)
    port = recorded(run, port_text.FILE)
    about = {"port": port and {side: port[side] for side in ("from", "to")}, "symbols": SYMBOLS, "meanings": MEANINGS}
    yield f"{script_json(about)[:-1]},"
    yield from index(run, rows, texts, parts.places)
    yield "}"


def _reported(run: Run) -> dict[str, Any]:
    return {
        "run": run,
        "version": __version__,
        "headline": headline(run),
        "mood": "good" if run.conforms else "open" if run.footer is None else "bad",
        "notes": gate_notes(run),
        "findings": findings(run),
        "lines": subject_lines(run),
        "counts": verdict_counts(run.judged.values()) | ({"missing": len(run.missing)} if run.missing else {}),
        "known": known_groups(run),
        "profiles": (recorded(run, probe_report.FILE) or {}).get("subjects", []),
        "port": recorded(run, port_text.FILE),
        "roles": port_text.ROLES,
        "stamp": stamp(run),
        "files": FILES,
        "coverage": coverage(run),
        "counted_subjects": counted_subjects(run),
        "symbols": SYMBOLS,
        "meanings": MEANINGS,
    }


@cache
def template() -> Template:
    """The template of the page; it is compiled once in a process."""
    filters: dict[str, Callable[..., Any]] = {
        "budget": budget_text,
        "share": share_text,
        "counted": counted,
        "shown": shown_value,
        "target": cell_address,
        "address": web_address,
        "by_difference": split_by_difference,
        "in_words": unexplained_kind,
        "advice": lambda remedy: capital(advice(remedy)),
    }
    return environment(filters).get_template("page.html.j2")


def stamp(run: Run) -> str:
    """When the run started, on which device, and with which package versions."""
    versions: dict[str, dict[str, None]] = {}
    for worker in run.workers:
        for name, version in worker.versions.items():
            versions.setdefault(name, {})[version] = None
    releases = [f"{name} {' and '.join(found)}" for name, found in sorted(versions.items())]
    started = run.header.started.replace("T", " ").removesuffix("Z").partition("+")[0]
    device = [run.header.device] if run.header.device else []
    notes = filter(None, (left_out_note(run), replies_note(run)))
    return " · ".join([f"{started} UTC", *device, *releases, *notes])


def split_by_difference(table: list[list[str]]) -> tuple[list[list[str]], list[list[str]]]:
    """Split the rows of a decision table: first those where observed differs from declared, then the others."""
    remarks = tuple(filter(None, probe_report.REMARKS.values()))
    differ = [row for row in table if row[1] != row[2] or row[3].startswith(remarks)]
    return differ, [row for row in table if row not in differ]


def recorded(run: Run, name: str) -> Any:
    """
    The record that `probe` or `port` wrote into the run folder, or None if there is none.

    Raises:
        RunLogError: the file is not JSON, or it is a link.
    """
    path = run.folder / name
    if not path.is_file():
        return None
    if path.is_symlink():
        raise RunLogError(f"{path} is a symbolic link, which is not followed: remove it and write the reports again")
    try:
        return current_record(strict_json(path.read_text(encoding="utf-8")))
    except ValueError as error:
        raise RunLogError(f"{path}: {error}: remove the file and write the reports again") from None


def picture(run: Run, finding: Finding) -> Key | None:
    """
    The cell whose effective pattern shows a finding best: the largest share of weights is beyond the bound.

    Cells with a fact about their weights come first: where NaN is expected, little is to be seen.
    """
    shares = {key: _beyond(run.cells[key]) for key in finding.cells}
    best = max(shares, key=lambda key: (shares[key] > 0 and bool(run.cells[key].pattern.odd), shares[key]))
    return best if shares[best] else None


def _beyond(cell: LoggedCell) -> float:
    """The share of weights beyond the bound in the effective pattern; 0 if it was not read."""
    return (cell.pattern.beyond or 0) / (cell.pattern.elements or 1)


def shown_value(value: Any) -> str:
    """A fact as text: strings unchanged, mappings and lists joined, everything else as short JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {shown_value(each)}" for key, each in value.items())
    if isinstance(value, list | tuple):
        return " ".join(shown_value(each) for each in value)
    return quoted(value)


def cell_address(key: tuple[str, str]) -> str:
    """The fragment of the page's address that opens one cell."""
    return f"#cell={quote(key[0], safe='')}&of={quote(key[1], safe='')}"


def web_address(text: str) -> str:
    """`text` if it is an http(s) address, else "": no other scheme becomes a link."""
    try:
        return text if urlsplit(text).scheme in ("http", "https") else ""
    except ValueError:
        return ""
