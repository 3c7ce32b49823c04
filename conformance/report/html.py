"""
The page: one self-contained file that asks the network for nothing.

What must be seen first is written here; the matrix, the details and the pair view are drawn by the page's own script
from the data that payload.py packs.
"""

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, urlsplit

from markupsafe import Markup

from conformance import __version__
from conformance.bridge.values import strict_json
from conformance.disk import write_whole
from conformance.engine.records import Cell, Key
from conformance.engine.run import Run
from conformance.engine.runlog import RunLogError
from conformance.report import port_text, portrait
from conformance.report.conclusion import gate_notes, headline, left_out_note, replies_note, subject_lines
from conformance.report.coverage import counted_subjects, coverage
from conformance.report.finding import Finding
from conformance.report.findings import findings
from conformance.report.frame import asset, environment, policy, script_of
from conformance.report.known_groups import known_groups
from conformance.report.numbers import budget_text, share_text
from conformance.report.payload import blobs, chunks, index, joined, script_json
from conformance.report.verdicts import verdict_counts
from conformance.spec.counting import counted
from conformance.spec.texts import shown

NAME = "index.html"
SCRIPTS = ("elements", "dom", "state", "matrix", "colour", "heatmap", "picture", "detail", "pair", "main")
"""The parts of the page's script, in the order in which they build on each other."""

FILES = ("verdict.json", "summary.md", "junit.xml", "run.jsonl")
"""What a run leaves beside the page."""

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
"""A verdict is never told by colour alone."""

MEANINGS = {
    "pass": "within the bound of what is canonical",
    "dialect": "within the bound of what is declared, which differs from canonical here",
    "unsupported": "declined by the adapter before the framework was called",
    "inconclusive": "could not be judged",
    "known": "fails, and a known deviation accepts it for a stated reason",
    "fail": "outside the bound of what is declared",
    "error": "the framework raised an exception",
    "timeout": "no answer in time",
    "crash": "the worker died",
    "missing": "owed, and not in the log",
}


def write_page(run: Run) -> None:
    """Write index.html into the run folder."""
    write_whole(run.folder / NAME, page(run))


def page(run: Run) -> str:
    """The whole page as text."""
    style, script = asset("page.css"), script_of(SCRIPTS)
    found = blobs(run)
    packed, places = joined(chunks(run, found) | found.packed)
    port = recorded(run, port_text.FILE)
    data = index(run) | {
        "port": port and {side: port[side] for side in ("from", "to")},
        "symbols": SYMBOLS,
        "meanings": MEANINGS,
        "places": places,
    }
    return (
        environment(_filters(run))
        .get_template("page.html.j2")
        .render(
            **_told(run),
            style=Markup(style),  # noqa: S704 - our own file
            script=Markup(script),  # noqa: S704 - our own files
            policy=policy(style, script),
            index=Markup(script_json(data)),  # noqa: S704 - escaped there
            packed=packed,
        )
    )


def _told(run: Run) -> dict[str, Any]:
    return {
        "run": run,
        "version": __version__,
        "headline": headline(run),
        "mood": "good" if run.conforms else "open" if run.footer is None else "bad",
        "notes": gate_notes(run),
        "findings": findings(run),
        "lines": subject_lines(run),
        "counts": verdict_counts(run.cells.values()) | ({"missing": len(run.missing)} if run.missing else {}),
        "known": known_groups(run),
        "portraits": (recorded(run, portrait.FILE) or {}).get("subjects", []),
        "port": recorded(run, port_text.FILE),
        "roles": port_text.ROLES,
        "stamp": stamp(run),
        "files": FILES,
        "coverage": coverage(run),
        "counted_subjects": counted_subjects(run),
        "symbols": SYMBOLS,
        "meanings": MEANINGS,
    }


def _filters(run: Run) -> dict[str, Callable[..., Any]]:
    return {
        "budget": budget_text,
        "share": share_text,
        "counted": counted,
        "shown": shown_value,
        "target": cell_address,
        "address": web_address,
        "picture": lambda finding: picture(run, finding),
        "apart": apart,
    }


def stamp(run: Run) -> str:
    """When it ran, where, and with which releases."""
    versions: dict[str, dict[str, None]] = {}
    for worker in run.workers:
        for name, version in worker.versions.items():
            versions.setdefault(name, {})[version] = None
    releases = [f"{name} {' and '.join(found)}" for name, found in sorted(versions.items())]
    started = run.header.started.replace("T", " ").removesuffix("Z").partition("+")[0]
    device = [run.header.device] if run.header.device else []
    notes = filter(None, (left_out_note(run), replies_note(run)))
    return " · ".join([f"{started} UTC", *device, *releases, *notes])


def apart(table: list[list[str]]) -> tuple[list[list[str]], list[list[str]]]:
    """The rows of a table of decisions where observed is not declared, and those where it is."""
    worth = tuple(filter(None, portrait.REMARKS.values()))
    differ = [row for row in table if row[1] != row[2] or row[3].startswith(worth)]
    return differ, [row for row in table if row not in differ]


def recorded(run: Run, name: str) -> Any:
    """
    What `probe` or `port` left in the run folder, or None; such a file is theirs alone.

    Raises:
        RunLogError: it is no JSON, or a link.
    """
    path = run.folder / name
    if not path.is_file():
        return None
    if path.is_symlink():
        raise RunLogError(f"{path}: a link, which is not followed: remove it, and write the reports again")
    try:
        return strict_json(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RunLogError(f"{path}: {error}: remove it, and write the reports again") from None


def picture(run: Run, finding: Finding) -> Key | None:
    """The cell whose effective pattern shows a finding best: the one with most of its weights beyond the bound."""
    shares = {key: _beyond(run.cells[key]) for key in finding.cells}
    best = max(shares, key=lambda key: shares[key])
    return best if shares[best] else None


def _beyond(cell: Cell) -> float:
    """The share of weights beyond the bound in the effective pattern; 0 where none was read."""
    return cell.pattern.beyond / cell.pattern.elements


def shown_value(value: Any) -> str:
    """A fact as people read it: words as they stand, the rest as short JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {shown_value(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return " ".join(shown_value(item) for item in value)
    return shown(value)


def cell_address(key: tuple[str, str]) -> str:
    """The part of the page's address that opens one cell."""
    return f"#cell={quote(key[0], safe='')}&of={quote(key[1], safe='')}"


def web_address(text: str) -> str:
    """`text` where it is an http address, else nothing: no other scheme becomes a link."""
    try:
        return text if urlsplit(text).scheme in ("http", "https") else ""
    except ValueError:
        return ""
