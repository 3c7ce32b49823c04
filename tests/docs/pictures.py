"""
Take the screenshots of README.md and docs/tutorial.md: the report on the function of `conformance check --example`.

`nox -s pictures` takes them again in Chromium. Run it when the look of the report changes.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

from playwright.sync_api import sync_playwright

IMAGES = Path(__file__).parents[2] / "docs" / "images"
CELL = ("masks/key_padding/trailing[operator=sdpa]", "my_attention.attention")
WIDTH = 1200


def report(folder: Path) -> Path:
    """Write the example, check it as the tutorial does, and return the path of the report."""
    command = [sys.executable, "-m", "conformance", "check"]
    subprocess.run([*command, "--example"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    words = [*command, "my_attention.py:attention", "--out", "report", "--exit-zero", "-q"]
    subprocess.run(words, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return folder / "report" / "index.html"


def take(page: Any, address: str) -> None:
    """Take three screenshots: the finding, the matrix of failing cases, and one cell."""
    page.goto(address)
    page.wait_for_selector("#grid tbody tr")
    page.screenshot(path=str(IMAGES / "finding.png"), clip=_down_to(page, "#matrix"))
    page.click("#expand")
    page.screenshot(path=str(IMAGES / "matrix.png"), clip=_section(page, "#matrix", 760), full_page=True)
    case, subject = (quote(part, safe="") for part in CELL)
    page.goto(f"{address}#cell={case}&of={subject}")
    page.reload()
    page.wait_for_selector("dialog[open] canvas")
    page.locator("#detail").screenshot(path=str(IMAGES / "cell.png"))


def _section(page: Any, selector: str, height: int) -> dict[str, float]:
    """Return the clip of the top `height` pixels of a section, over the whole width."""
    y = page.locator(selector).bounding_box()["y"] + page.evaluate("window.scrollY")
    return {"x": 0, "y": y - 16, "width": WIDTH, "height": height}


def _down_to(page: Any, selector: str) -> dict[str, float]:
    """Return the clip from the top of the page to the start of a section."""
    return {"x": 0, "y": 0, "width": WIDTH, "height": page.locator(selector).bounding_box()["y"]}


def main() -> None:
    """Take every screenshot."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": 1000})
        take(page, report(Path(folder)).as_uri())
        browser.close()


if __name__ == "__main__":
    main()
