"""The last record of a run: what it came to, and what it took."""

import datetime as dt
import time
from dataclasses import asdict
from typing import Any

from conformance.engine.session import Session
from conformance.gate.decide import INCOMPLETE, Decision


def footer(session: Session, decision: Decision, wall: float) -> dict[str, Any]:
    """The footer record (docs/run-log.md); wall: seconds since the start."""
    return {
        "type": "footer",
        "finished": f"{dt.datetime.now(tz=dt.UTC):%Y-%m-%dT%H:%M:%SZ}",
        "exit_code": decision.exit_code,
        "complete": decision.exit_code != INCOMPLETE,
        "counts": dict(decision.counts),
        "timing": {"wall": wall, "cpu": time.process_time()},
        "workers": [asdict(each) for report in session.reports for each in report.usage],
        "second_look": dict(sorted(session.further.items())),
        "signatures": {name: len(found) for name, found in sorted(session.signatures.items())},
        "gate": decision.record(),
    }
