"""Every kind of page on a wide light screen and on a dark phone: axe finds nothing, and no page is too wide."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe

from conformance.gate.comparison import compare
from conformance.gate.observations import Observed
from conformance.report import write_reports
from conformance.report.comparison_report import write_comparison_page

from ..gate.handmade_comparisons import mean_row, nan_row, side
from ..report.build_run import RunBuilder
from ..report.demonstration import fill

pytestmark = pytest.mark.browser

NARROW, WIDE = 390, 1400
PORTRAITS = {
    "subjects": [
        {
            "subject": name,
            "conclusion": "5 of 7 probe cases answered; 1 decision contradicts the declaration",
            "table": [["polarity[attn_mask]", "attend", "ignore", "CONTRADICTED"], ["scale", "none", "none", ""]],
            "notes": ["not reached: softcap, https://example.org/known"],
        }
        for name in ("torch.mha", "keras.mha[jax]")
    ]
}
PORT = {
    "from": "torch.mha",
    "to": "keras.mha[jax]",
    "shared": 7,
    "calls": [{"topic": "constructor", "from": "Layer(embed_dim)", "to": ""}],
    "conventions": {"from": ["arrays are (batch, seq_len, width)"], "to": []},
    "arguments": [
        {
            "kind": "attention",
            "from": "attn_mask",
            "to": "attention_mask",
            "described": {"from": "attn_mask (True ignores)", "to": "attention_mask (True attends)"},
            "changes": [],
        }
    ],
    "differences": [
        {
            "sentences": {"from": "reads True as: ignore this key", "to": "reads True as: attend to this key"},
            "changes": ["pass ~attn_mask as attention_mask"],
            "declared": {"from": "ignore", "to": "attend"},
            "observed": {"from": "ignore", "to": "attend"},
            "command": "conformance run -a torch.mha -a 'keras.mha[jax]' -k masks/attention_2d/holes",
        }
    ],
    "notes": ["Only torch.mha has: outputs weights_mean"],
    "refused": [],
}


def of_run(folder: Path, **told: Any) -> Path:
    builder = RunBuilder(folder)
    fill(builder)
    written = builder.write()
    for name, record in told.items():
        (written / f"{name}.json").write_text(json.dumps(record), encoding="utf-8")
    write_reports(written)
    return written / "index.html"


def of_comparison(folder: Path) -> Path:
    passing = Observed("pass", budget=0.2, bits="b1")
    error = Observed("error", error="ValueError", text="no such argument", rerun="conformance run -a onnxruntime.sdpa")
    base = {"shapes/one": passing, "dead/one": nan_row(), "scale/one": error}
    now = {"shapes/one": Observed("pass", budget=0.5, bits="b2"), "dead/one": mean_row(), "scale/one": passing}
    died = f"onnx.sdpa: died 6 times in a row, in degenerate/{'in_other_calls_' * 8}"
    incomplete = replace(side("base", base), missing=(died,))
    write_comparison_page(compare(incomplete, side("candidate", now, "1.24.4")).record(), folder)
    return folder / "index.html"


PAGES: dict[str, Callable[[Path], Path]] = {
    "run": of_run,
    "probe": lambda folder: of_run(folder, probe=PORTRAITS),
    "port": lambda folder: of_run(folder, probe=PORTRAITS, port=PORT),
    "comparison": of_comparison,
}


@pytest.fixture(scope="module", params=PAGES)
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    return PAGES[request.param](tmp_path_factory.mktemp(request.param)).as_uri()


def violations(page: Any) -> list[tuple[str, str, str]]:
    """Return what axe finds: the rule, its impact, and the first element that breaks it."""
    found = Axe().run(page).response["violations"]
    return [(each["id"], each["impact"], each["nodes"][0]["html"]) for each in found]


@pytest.mark.parametrize(("width", "scheme"), [(WIDE, "light"), (NARROW, "dark")])
def test_a_page_is_accessible_and_as_wide_as_the_screen(browser: Any, address: str, width: int, scheme: str) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("main table tbody tr")
    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") == width
    context.close()


def test_a_page_with_a_fault_is_told(browser: Any) -> None:
    page = browser.new_page()
    page.set_content("<main><h1>Page</h1><p style='color: #ddd; background: #fff'>pale</p></main>")
    assert "color-contrast" in [rule for rule, _, _ in violations(page)]
    page.close()
