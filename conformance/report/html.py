"""
The page: one self-contained file that asks the network for nothing.

What must be seen first is written here; the matrix, the details and the pair view are drawn by the page's own script
from the data that payload.py packs. The content security policy allows that script and that style, by their hashes,
and nothing else; Trusted Types forbid the script to turn text into markup.
"""

import base64
import hashlib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from conformance import __version__
from conformance.report.fields import shown
from conformance.report.findings import (
    budget_text,
    counted,
    findings,
    gate_notes,
    headline,
    known_groups,
    share_text,
    subject_lines,
    verdict_counts,
)
from conformance.report.payload import blobs, chunks, index, joined, script_json
from conformance.report.records import Run
from conformance.report.run import load_run

NAME = "index.html"
SCRIPTS = ("dom", "state", "matrix", "colour", "heatmap", "detail", "pair", "main")
"""The parts of the page's script, in the order in which they build on each other."""

SYMBOLS = {
    "pass": "✓",
    "dialect": "≈",
    "unsupported": "–",
    "inconclusive": "?",
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
    "fail": "outside the bound of what is declared",
    "error": "the framework raised an exception",
    "timeout": "no answer in time",
    "crash": "the worker died",
    "missing": "owed, and not in the log",
}


def write_html(folder: Path) -> Path:
    """Write index.html for the run in `folder`; returns its path."""
    return write_page(load_run(folder))


def write_page(run: Run) -> Path:
    """Write index.html for a run that was read."""
    path = run.folder / NAME
    path.write_text(page(run), encoding="utf-8", newline="\n")
    return path


def page(run: Run) -> str:
    """The whole page as text."""
    style, script = _asset("page.css"), _script()
    found = blobs(run)
    packed, places = joined(chunks(run, found) | found.packed)
    data = index(run) | {"symbols": SYMBOLS, "meanings": MEANINGS, "places": places}
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            **_told(run),
            style=Markup(style),  # noqa: S704 - our own file
            script=Markup(script),  # noqa: S704 - our own files
            policy=_policy(style, script),
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
        "symbols": SYMBOLS,
        "meanings": MEANINGS,
    }


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("conformance.report", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "budget": budget_text,
        "share": share_text,
        "counted": counted,
        "shown": shown_value,
        "target": cell_address,
        "address": web_address,
    }
    return environment


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


def _asset(name: str) -> str:
    return files("conformance.report").joinpath("page", name).read_text(encoding="utf-8")


def _script() -> str:
    parts = "\n".join(_asset(f"{name}.js") for name in SCRIPTS)
    return f'(() => {{\n"use strict";\n{parts}\n}})();'


def _policy(style: str, script: str) -> str:
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
