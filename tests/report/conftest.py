"""The runs that several tests read."""

from pathlib import Path

import pytest

from .build_run import RunBuilder
from .demonstration import fill

# The worst text that a name or a reason can contain: a workflow command, markup, a colour code, a control character, a
# line separator, and a lone surrogate.
HOSTILE = "::error::<script>alert(1)</script>]]>\"'&`|\x1b[31m\x00\u2028\udce9"

# HOSTILE after it is read from a run log.
HARMLESS = r"""\::error::<script>alert(1)</script>]]>"'&`|\x00\u2028\udce9"""


@pytest.fixture(scope="session")
def demonstration(tmp_path_factory: pytest.TempPathFactory) -> Path:
    builder = RunBuilder(tmp_path_factory.mktemp("demonstration"))
    fill(builder)
    return builder.write()


@pytest.fixture
def hostile() -> str:
    """The text that `hostile_run` has in every field, as it is read from the run log."""
    return HARMLESS


@pytest.fixture
def hostile_run(tmp_path: Path) -> Path:
    """A run in which every text that reaches a report is hostile."""
    builder = RunBuilder(tmp_path / "hostile")
    case = builder.case(f"theme/{HOSTILE}", summary=HOSTILE, yaml=HOSTILE, tags=[HOSTILE], source=f"{HOSTILE}:3")
    subject = builder.subject(HOSTILE, framework=HOSTILE)
    other = builder.subject("plain.mha")
    builder.header["versions"] = {HOSTILE: HOSTILE}
    builder.header["not_offered"] = [{"adapter": HOSTILE, "missing": [HOSTILE], "extra": HOSTILE}]
    builder.worker(HOSTILE, [subject], status="failed", reason=HOSTILE, stderr=HOSTILE)
    builder.cell(
        case,
        subject,
        "fail",
        rejected=True,
        class_="semantic",
        reason=HOSTILE,
        rerun=HOSTILE,
        explanation={"decision": HOSTILE, "name": HOSTILE, "sentence": HOSTILE, "remedy": HOSTILE},
    )
    known = {"reason": HOSTILE, "link": "javascript:alert(1)", "entry": HOSTILE}
    error = {"type": HOSTILE, "message": HOSTILE, "traceback": HOSTILE}
    builder.cell(case, other, "error", known=known, error=error, reason=HOSTILE)
    builder.gate = {"problems": [HOSTILE]}
    return builder.write()
