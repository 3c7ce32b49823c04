"""The end of a run: its last record, what it came to and what it took, and verdict.json."""

import time
from dataclasses import asdict, dataclass, field
from typing import Any

from conformance.engine.header import utc_now
from conformance.engine.session import Session
from conformance.gate.decide import INCOMPLETE, Decision
from conformance.gate.verdict_file import write_verdict


@dataclass(frozen=True)
class Clock:
    """When a run began: one process may judge several, an upgrade two."""

    wall: float = field(default_factory=time.monotonic)
    cpu: float = field(default_factory=time.process_time)

    def timing(self) -> dict[str, float]:
        """Seconds since, of the clock and of this process."""
        return {"wall": time.monotonic() - self.wall, "cpu": time.process_time() - self.cpu}


def finish(session: Session, decision: Decision, clock: Clock) -> None:
    """End the log with its footer, and write verdict.json beside it."""
    session.log.append(_footer(session, decision, clock))
    session.log.close()
    write_verdict(session.folder, decision, session.records)


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
        "second_look": dict(sorted(session.further.items())),
        "replies": {"known": session.replies.known, "made": session.replies.made},
        "signatures": {name: len(found) for name, found in sorted(session.signatures.items())},
        "gate": decision.record(),
    }
