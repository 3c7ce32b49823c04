"""Functions to check, and a check that runs here, with its worker."""

from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.engine.watch import Watch
from conformance.own.checking import Checked, Request, check
from conformance.own.target import parse_target

HERE = Path(__file__).parent


@pytest.fixture
def checked(tmp_path: Path) -> Callable[..., Checked]:
    """Check `plain_sdpa:right` or any FILE:FUNCTION, on some cases."""

    def run(given: str, *globs: str, **options: object) -> Checked:
        target = parse_target(given if ".py:" in given else str(HERE / given.replace(":", ".py:")))
        folder = tmp_path / "out"
        folder.mkdir()
        return check(Request(target, globs=globs, **options), folder, Watch())  # type: ignore[arg-type]

    return run
