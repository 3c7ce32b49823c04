"""The page of a comparison: one self-contained file, the groups first, every changed cell behind filters."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup

from conformance import __version__
from conformance.bridge.values import plain
from conformance.disk import write_whole
from conformance.report.comparison import heading
from conformance.report.frame import asset, environment, policy, script_of
from conformance.report.html import NAME, SYMBOLS
from conformance.report.payload import script_json

SCRIPTS = ("elements", "comparison")
Record = Mapping[str, Any]


def write_comparison_page(record: Record, folder: Path) -> Path:
    """Write index.html into `folder`; returns its path."""
    path = folder / NAME
    write_whole(path, comparison_page(record))
    return path


def comparison_page(record: Record) -> str:
    """The whole page as text."""
    style, script = asset("page.css") + asset("comparison.css"), script_of(SCRIPTS)
    titles = {kind: heading({"kind": kind}) for kind in record["counts"]}
    versions = {side: record[side]["subjects"] for side in ("base", "candidate")}
    data = {"groups": record["groups"], "titles": titles, "symbols": SYMBOLS, "versions": versions}
    return (
        environment({})
        .get_template("comparison.html.j2")
        .render(
            **{name: record[name] for name in ("headline", "base", "candidate", "counts", "groups", "incomplete")},
            **{name: record[name] for name in ("notes", "compared", "unchanged")},
            mood="good" if record["conforms"] else "bad" if record["complete"] else "open",
            meanings={group["kind"]: group["meaning"] for group in record["groups"]},
            titles=titles,
            environments=_environments(record),
            version=__version__,
            style=Markup(style),  # noqa: S704 - our own files
            script=Markup(script),  # noqa: S704 - our own files
            policy=policy(style, script),
            index=Markup(script_json(plain(data))),  # noqa: S704 - escaped there
        )
    )


def _environments(record: Record) -> list[dict[str, Any]]:
    """Subjects by their versions on either side, those that differ marked."""
    before, now = record["base"]["subjects"], record["candidate"]["subjects"]
    rows: dict[str, dict[str, Any]] = {}
    for subject in sorted({*before, *now}):
        base, candidate = before.get(subject, {}), now.get(subject, {})
        row = {"subjects": [], "base": base, "candidate": candidate, "changed": _changed(base, candidate)}
        rows.setdefault(f"{sorted(base.items())} {sorted(candidate.items())}", row)["subjects"].append(subject)
    return list(rows.values())


def _changed(base: Mapping[str, str], candidate: Mapping[str, str]) -> list[str]:
    return sorted(name for name in {*base, *candidate} if base.get(name) != candidate.get(name))
