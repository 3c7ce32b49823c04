"""verdict.json: the gate's decision for machines, since exit codes are flattened on their way (nox, make, CI)."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from conformance.bridge.values import plain
from conformance.disk import write_whole
from conformance.gate.decide import INCOMPLETE, Decision
from conformance.judge.verdict import CONFORMING

SCHEMA = 1


def verdict(run: str, decision: Decision, records: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The content of verdict.json (docs/run-log.md)."""
    subjects: dict[str, dict[str, Any]] = {}
    for record in records:
        about = subjects.setdefault(record["subject"], {"counts": {}, "worst_budget": 0.0})
        about["counts"][record["verdict"]] = about["counts"].get(record["verdict"], 0) + 1
        if record["verdict"] in CONFORMING:
            about["worst_budget"] = max(about["worst_budget"], record.get("budget", 0.0))
    return {
        "schema": SCHEMA,
        "run": run,
        "exit_code": decision.exit_code,
        "conforms": decision.conforms,
        "complete": decision.exit_code != INCOMPLETE,
        "counts": dict(decision.counts),
        "gate": decision.record(),
        "subjects": {name: subjects[name] for name in sorted(subjects)},
        "report": "index.html",
    }


def write_verdict(folder: Path, decision: Decision, records: Iterable[Mapping[str, Any]]) -> None:
    """Write verdict.json into a run folder."""
    content = plain(verdict(folder.name, decision, records))
    text = json.dumps(content, indent=2, allow_nan=False)
    write_whole(folder / "verdict.json", text + "\n")
