"""The end of a run: the footer of its log, with decision and timing, and verdict.json."""

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from conformance.bridge.strict_json import plain_data
from conformance.disk import write_whole
from conformance.engine.logged_cell import JudgedCell
from conformance.engine.run_header import utc_now
from conformance.engine.runlog import Record
from conformance.engine.session import Session
from conformance.gate.decision import INCOMPLETE, INTERRUPTED, Decision, decide
from conformance.verdicts.verdict import CONFORMING, GRAVITY

SCHEMA = 1


def verdict(run: str, decision: Decision, cells: Iterable[JudgedCell]) -> dict[str, Any]:
    """The content of verdict.json (docs/run-log.md). It does not depend on the order in which the calls were judged."""
    subjects: dict[str, dict[str, Any]] = {}
    for cell in cells:
        about = subjects.setdefault(cell.subject, {"counts": {}, "worst_budget": 0.0})
        about["counts"][cell.verdict] = about["counts"].get(cell.verdict, 0) + 1
        if cell.verdict in CONFORMING:
            about["worst_budget"] = max(about["worst_budget"], cell.budget or 0.0)
    for about in subjects.values():
        about["counts"] = {verdict: about["counts"][verdict] for verdict in GRAVITY if verdict in about["counts"]}
    return {
        "schema": SCHEMA,
        "run": run,
        "exit_code": decision.exit_code,
        "conforms": decision.conforms,
        "complete": decision.exit_code not in (INCOMPLETE, INTERRUPTED),
        "counts": dict(decision.counts),
        "gate": decision.record(),
        "subjects": {name: subjects[name] for name in sorted(subjects)},
        "report": "index.html",
    }


def write_verdict(folder: Path, decision: Decision, cells: Iterable[JudgedCell]) -> None:
    """Write verdict.json into a run folder."""
    content = plain_data(verdict(folder.name, decision, cells))
    text = json.dumps(content, indent=2, allow_nan=False)
    write_whole(folder / "verdict.json", text + "\n")


@dataclass(frozen=True)
class Clock:
    """The start time of a run; one process may judge several runs, an upgrade two."""

    wall: float = field(default_factory=time.monotonic)
    cpu: float = field(default_factory=time.process_time)

    def timing(self) -> dict[str, float]:
        """Seconds since the start: wall time and CPU time of this process."""
        return {"wall": time.monotonic() - self.wall, "cpu": time.process_time() - self.cpu}


@contextmanager
def ending(session: Session, incomplete: Sequence[str] = ()) -> Iterator[None]:
    """
    Keep the log open until everything is written; if the run is interrupted, verdict.json says so.

    incomplete: sentences that say what else is missing.
    """
    try:
        yield
    except KeyboardInterrupt:
        decision = decide(session.cells, incomplete, (), {}, interrupted=True)
        if session.log.footer is not None:  # only reports are missing
            decision = Decision.recorded(session.log.footer)
        write_verdict(session.folder, decision, session.cells)
        raise
    finally:
        session.log.close()


def finish(session: Session, decision: Decision, clock: Clock, *, stopped: bool = False) -> Record:
    """
    Append the footer to the log, write verdict.json next to it, and return the footer; the log stays open.

    stopped: -x ended the run.
    """
    footer = session.log.append(_footer(session, decision, clock) | ({"stopped": True} if stopped else {}))
    write_verdict(session.folder, Decision.recorded(footer), session.cells)
    return footer


def _footer(session: Session, decision: Decision, clock: Clock) -> dict[str, Any]:
    """The footer record (docs/run-log.md)."""
    return {
        "type": "footer",
        "finished": utc_now(),
        "exit_code": decision.exit_code,
        "complete": decision.exit_code != INCOMPLETE,
        "counts": dict(decision.counts),
        "timing": clock.timing(),
        "workers": [asdict(each) for report in session.reports for each in report.usage],
        "second_look": dict(sorted(session.calls.further.items())),
        "replies": {"known": session.replies.known, "made": session.replies.made},
        "signatures": {name: len(found) for name, found in sorted(session.calls.signatures.items())},
        "gate": decision.record(),
    }
