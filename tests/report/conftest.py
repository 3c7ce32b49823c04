"""The builder of run folders, and the runs that several tests read."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

HOSTILE = "<script>alert(1)</script>]]>\"'&`|\x1b[31m\x00\u2028"
"""What a name or a reason may hold at worst; the last three are control characters and a line separator."""


def load(name: str) -> ModuleType:
    """A module beside this one, which no import finds."""
    spec = importlib.util.spec_from_file_location(f"conformance_tests_{name}", Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def build() -> ModuleType:
    return load("build_run")


@pytest.fixture(scope="session")
def demonstration(build: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    builder = build.RunBuilder(tmp_path_factory.mktemp("demonstration"))
    load("demonstration").fill(builder)
    folder: Path = builder.write()
    return folder


@pytest.fixture
def hostile() -> str:
    return HOSTILE


@pytest.fixture
def hostile_run(build: ModuleType, tmp_path: Path) -> Path:
    """A run in which every text that reaches a report is hostile."""
    builder = build.RunBuilder(tmp_path / "hostile")
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
    folder: Path = builder.write()
    return folder
