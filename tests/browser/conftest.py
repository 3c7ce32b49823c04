"""One Chromium for the tests of each file. Without it the tests fail, since a skipped test shows nothing."""

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    executable = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if executable is None:
        pytest.fail("no Chromium on PATH: install one, on Debian and Ubuntu with `apt-get install -y chromium`")
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - a missing Chromium is reported first

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=executable, args=ARGUMENTS)
        yield opened
        opened.close()
