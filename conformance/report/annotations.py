"""
What the gate rejects, as workflow commands of GitHub Actions, each at the source line of its case.

Each command is one line on stdout. GitHub shows at most ten annotations of a level per step, so there is one for each
cause, not for each cell.
https://docs.github.com/actions/reference/workflow-commands-for-github-actions
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from conformance.engine.run_folder import Run
from conformance.report.comparison_report import example, heading
from conformance.report.conclusion import LOG_NOTE, gate_notes
from conformance.report.findings import advice, findings, unexplained_kind
from conformance.spec.texts import capital, counted


def run_annotations(run: Run, root: Path) -> Iterator[str]:
    """
    One command for each finding, at its first case, and one for each other objection of the gate.

    root: the folder that the source paths of cases are relative to.
    """
    for finding in findings(run):
        cell = run.cells[finding.example]
        what_to_do = f" {capital(advice(finding.remedy))}." if finding.remedy else ""
        rerun = f"\n{cell.rerun}" if cell.rerun else ""
        kind = "" if finding.explained else f" ({unexplained_kind(finding)})"
        said = f"it {finding.full_sentence}" if finding.explained else finding.full_sentence
        message = f"{counted(finding.count, 'verdict')}{kind}: {said}.{what_to_do}{rerun}"
        yield command("error", message, finding.subject, run.header.cases[cell.case].source, root)
    for kind, text in gate_notes(run):
        yield command("warning" if kind == LOG_NOTE else "error", text, kind)


def comparison_annotations(record: Mapping[str, Any], root: Path) -> Iterator[str]:
    """One command for each group, at its first case: an error if the group is rejected, else a notice."""
    for text in record["incomplete"]:
        yield command("error", text, "incomplete")
    for group in record["groups"]:
        rerun = example(group) if group["rejected"] else ""
        source = group["cells"][0].get("source", "")
        message = f"{group['sentence']}\n{rerun}" if rerun else group["sentence"]
        yield command("error" if group["rejected"] else "notice", message, heading(group), source, root)


def command(level: str, message: str, title: str, source: str = "", root: Path = Path()) -> str:
    """One workflow command; `source` is `file:line`, left out if the working folder has no such file."""
    properties = {**_location(source, root), "title": title}
    given = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{level} {given}::{_data(message)}"


def _location(source: str, root: Path) -> dict[str, str]:
    file, _, line = source.rpartition(":")
    path, here = (root / file).absolute(), Path.cwd()
    if not (file and line.isdigit() and path.is_file() and path.is_relative_to(here)):
        return {}
    return {"file": path.relative_to(here).as_posix(), "line": line}


def _data(text: str) -> str:
    """A message with percent signs and line ends escaped: a runner interprets them."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
