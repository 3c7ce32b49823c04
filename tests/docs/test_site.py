"""The documentation site builds without warnings; in a browser, wide or narrow, it works from a folder."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ..browser.conftest import browser  # noqa: F401 - the fixture from the report tests

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[2]
NARROW = 390
WIDTHS = (NARROW, 1400)

# What fits on a narrow screen nearly always fits on a wide one, so one of so many pages is opened on both.
SAMPLE = 8


def build(site: Path, config: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Build the site as `nox -s docs` does."""
    words = ["--config-file", str(config)] if config else []
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site), *words]
    variables = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300, env=variables)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(params=WIDTHS)
def page(browser: Any, request: pytest.FixtureRequest) -> Iterator[Any]:  # noqa: F811 - the fixture above
    """A page that must load nothing from the network and must log no error or warning."""
    opened = browser.new_page(viewport={"width": request.param, "height": 900})
    asked: list[str] = []
    complaints: list[str] = []
    opened.on("request", lambda each: asked.append(each.url))
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
    yield opened
    opened.close()
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert complaints == []


def named(part: Any) -> Iterator[str]:
    """The paths of the pages in the navigation."""
    if isinstance(part, str):
        yield part
    for each in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from named(each)


def test_every_page_of_the_navigation_is_built_and_fits(site: Path, page: Any) -> None:
    paths = list(named(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]))
    assert len(paths) > 40
    for path in paths if page.viewport_size["width"] == NARROW else paths[::SAMPLE]:
        page.goto((site / path.replace(".md", ".html")).as_uri())
        assert page.inner_text("h1")
        root = "document.documentElement"
        assert page.evaluate(f"{root}.scrollWidth - {root}.clientWidth") == 0, path
        assert page.evaluate("[...document.images].every(image => image.complete && image.naturalWidth > 0)"), path


def test_the_search_works_without_a_server(site: Path, page: Any) -> None:
    page.goto((site / "index.html").as_uri())
    narrow = page.viewport_size["width"] == NARROW
    page.click("label.md-header__button[for=__search]" if narrow else ".md-search__input")
    page.keyboard.type("softmax_denominator", delay=10)
    page.wait_for_selector(".md-search-result__item")
    assert "Deviations" in page.locator(".md-search-result__item h1").all_inner_texts()


def test_a_broken_link_is_an_error(tmp_path: Path) -> None:
    links = ("gone.md", "check.md#gone", "reference/deviations.md#gone")
    pages = tmp_path / "docs"
    pages.mkdir()
    (pages / "check.md").write_text("# A page\n", encoding="utf-8")
    (pages / "index.md").write_text("".join(f"[gone]({link})\n" for link in links), encoding="utf-8")
    changed = {
        "INHERIT": str(ROOT / "mkdocs.yml"),
        "docs_dir": str(pages),
        "nav": ["index.md", "check.md"],
        "hooks": [str(ROOT / "tests" / "docs" / "hooks.py")],  # adds the pages of the reference
    }
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump(changed), encoding="utf-8")
    done = build(tmp_path / "site", tmp_path / "mkdocs.yml")
    assert done.returncode == 1
    assert all(f"'{link}'" in done.stderr for link in links)
    assert re.search(r"Aborted with \d+ warnings in strict mode", done.stdout + done.stderr)
