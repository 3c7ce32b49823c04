"""A fixture that checks a function in this process, with its worker."""

from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.checking.function_check import Checked, CheckRequest, check
from conformance.checking.target import parse_target
from conformance.engine.cell_records import RunListener

HERE = Path(__file__).parent


@pytest.fixture
def checked(tmp_path: Path) -> Callable[..., Checked]:
    """A function that checks `checked_sdpa:right` or any FILE:FUNCTION, on some or all cases; into: a new folder."""

    def run(given: str, *globs: str, into: str = "out", **options: object) -> Checked:
        target = parse_target(given if ".py:" in given else str(HERE / given.replace(":", ".py:")))
        folder = tmp_path / into
        folder.mkdir()
        return check(CheckRequest(target, globs=globs, **options), folder, RunListener())  # type: ignore[arg-type]

    return run
