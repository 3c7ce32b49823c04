"""The comparison page in a real browser: its filters, its detail view, and that it loads nothing else."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.gate.comparison import compare
from conformance.gate.observations import Observed
from conformance.report.comparison_report import write_comparison_page

from ..gate.handmade_comparisons import mean_row, nan_row, side

pytestmark = pytest.mark.browser

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 drifted cells, 3 fully masked rows that are the mean of V now, 2 new errors, 1 fixed cell."""
    error = Observed("error", error="ValueError", text=HOSTILE, rerun="conformance run -a onnxruntime.sdpa -k causal/0")
    passing = Observed("pass", budget=0.2, bits="b1")
    drifted = {f"shapes/{number}": passing for number in range(300)}
    dead = {f"dead/{number}": nan_row() for number in range(3)}
    causal = {f"causal/{number}": passing for number in range(2)}
    base = drifted | dead | causal | {"scale/negative": error}
    now = {
        **dict.fromkeys(drifted, Observed("pass", budget=0.5, bits="b2")),
        **dict.fromkeys(dead, mean_row()),
        **dict.fromkeys(causal, error),
        "scale/negative": passing,
    }
    found = compare(side("base", base), side("candidate", now, "1.24.4"))
    out = tmp_path_factory.mktemp("comparison")
    write_comparison_page(found.record(), out)
    return out


@pytest.fixture
def page(browser: Any, folder: Path) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1440, "height": 950})
    opened = context.new_page()
    requests: list[str] = []
    complaints: list[str] = []
    opened.on("request", lambda request: requests.append(request.url))
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("console", lambda message: complaints.append(message.text))
    opened.goto((folder / "index.html").as_uri())
    opened.wait_for_selector("#cells tr")
    yield opened
    context.close()
    assert [url.split(":", 1)[0] for url in requests] == ["file"]
    assert complaints == []


def test_the_first_line_says_what_changed_and_each_group_has_its_sentence(page: Any) -> None:
    assert page.inner_text("h1").startswith("Regressed: onnxruntime 1.24.4: it raises ValueError: <img src=x")
    sentences = page.locator(".findings strong").all_inner_texts()
    assert len(sentences) == 4
    assert sentences[1] == "onnxruntime 1.24.4: a fully masked row is the mean of V (in 1.23.2: NaN): 3 cases"
    counts = ["2 regressed", "3 fails in another way", "1 fixed", "300 drifted", "0 unchanged", "306 compared"]
    assert page.locator(".counts > span").all_inner_texts() == counts


def test_filters_narrow_the_cells(page: Any) -> None:
    assert page.inner_text("#shown") == "306 changed cells of 306"
    assert page.locator("#cells tr").count() == 200
    page.click("#more")
    assert page.locator("#cells tr").count() == 306
    page.click("[data-kind=regressed]")
    page.click("[data-kind=fixed]")
    assert page.inner_text("#shown") == "3 changed cells of 306"
    page.fill("#by-text", "scale")
    assert page.locator("#cells tr").all_inner_texts() == ["fixed\tscale/negative\tonnxruntime.sdpa\tE→✓"]
    page.fill("#by-text", "nothing of the kind")
    assert page.locator("#empty").is_visible()
    page.click("#reset")
    assert page.inner_text("#shown") == "306 changed cells of 306"
    page.select_option("#by-subject", "onnxruntime.sdpa")
    assert page.inner_text("#shown") == "306 changed cells of 306"


def test_a_group_shows_its_cells(page: Any) -> None:
    page.locator("[data-group]").nth(1).click()
    assert page.inner_text("#shown").startswith("3 changed cells of 306, one group: onnxruntime 1.24.4: a fully masked")


def test_the_detail_shows_both_sides_as_text_and_how_to_rerun(page: Any) -> None:
    page.click("[data-kind=regressed]")
    page.locator("#cells .link").first.click()
    detail = page.locator("#detail")
    assert detail.locator("h2").inner_text() == "causal/0"
    base, candidate = detail.locator(".side").all_inner_texts()
    assert "It conforms." in base
    assert "onnxruntime 1.23.2" in base
    assert f"It raises ValueError: {HOSTILE}." in candidate
    assert "onnxruntime 1.24.4" in candidate
    assert "conformance run -a onnxruntime.sdpa -k causal/0" in candidate
    page.keyboard.press("Escape")
    assert not detail.is_visible()
    assert page.evaluate("document.activeElement.textContent") == "causal/0"
