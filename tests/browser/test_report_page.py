"""The report page in a real browser: what a user does with it, and that it loads nothing else."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

from conformance.report import port_text, write_reports

from ..report.build_run import RunBuilder, large
from ..report.demonstration import fill

pytestmark = pytest.mark.browser

INVERTED = ("masks/key_padding/sdpa_trailing[dtype=float32]", "torch.sdpa[math]")
NAN_ROW = ("degenerate/fully_masked_rows/mha_one_row[dtype=float32]", "torch.mha")


@dataclass
class Witness:
    """A page with all of its requests, errors and warnings."""

    page: Any
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def listen(self) -> None:
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", self.heard)

    def heard(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def open(self, folder: Path, state: str = "") -> Any:
        self.page.goto((folder / "index.html").as_uri() + state)
        self.page.wait_for_selector("#grid tbody tr")
        return self.page


@pytest.fixture
def witness(browser: Any) -> Iterator[Witness]:
    context = browser.new_context(viewport={"width": 1440, "height": 950})
    watching = Witness(context.new_page())
    watching.listen()
    yield watching
    context.close()
    assert len(set(watching.requests)) == 1
    assert watching.requests[0].startswith("file://")
    assert watching.complaints == []


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    builder = RunBuilder(tmp_path_factory.mktemp("run"))
    fill(builder)
    written = builder.write()
    write_reports(written)
    return written


def cell_of(key: tuple[str, str]) -> str:
    return f"#cell={quote(key[0], safe='')}&of={quote(key[1], safe='')}"


def shown(page: Any) -> str:
    return str(page.inner_text("#shown"))


def readout(page: Any, name: str) -> str:
    return str(page.inner_text(f".readout [data-name={name}] dd"))


def test_the_conclusion_and_the_whole_matrix_are_there(witness: Witness, folder: Path) -> None:
    page = witness.open(folder)
    assert page.inner_text("h1").startswith("Does not conform: 18 of 332 judged calls are rejected")
    assert shown(page) == "346 verdicts in 56 cases on 12 subjects and 1 dense form"
    assert page.locator("#grid td[tabindex]").count() == 346


def test_filters_narrow_the_matrix_and_stand_in_the_address(witness: Witness, folder: Path) -> None:
    page = witness.open(folder)
    page.click("[data-verdict=rejected]")
    assert shown(page).startswith("18 verdicts in ")
    page.select_option("#theme", "causal")
    assert shown(page) == "4 verdicts in 4 cases on 12 subjects"
    page.select_option("#op", "mha")
    assert "No verdict matches these filters." in page.inner_text("#grid")
    assert page.url.endswith("#theme=causal&op=mha&v=rejected")
    page.click("#reset")
    page.select_option("#dtype", "bfloat16")
    assert "in 28 cases" in shown(page)
    page.fill("#q", "trailing TORCH.mha")
    page.wait_for_function("() => location.hash.includes('q=trailing')")
    assert shown(page).startswith("1 verdict in 1 case")


def test_subjects_are_chosen_in_the_menu_and_in_the_table(witness: Witness, folder: Path) -> None:
    page = witness.open(folder)
    page.click("#pick summary")
    page.check("#picks input[value='torch.mha']")
    assert shown(page).endswith("on 1 subject")
    page.click("#subjects tbody button:has-text('jax.nn.dot_product_attention')")
    assert page.locator("#grid .names th").all_inner_texts() == ["Case", "jax.nn.dot_product_attention"]


def test_an_address_restores_the_filters(witness: Witness, folder: Path) -> None:
    page = witness.open(folder, "#v=dialect&s=keras.mha%5Bjax%5D")
    assert shown(page) == "4 verdicts in 4 cases on 1 subject"
    assert page.get_attribute("[data-verdict=dialect]", "aria-pressed") == "true"


def test_suites_fold(witness: Witness, folder: Path) -> None:
    page = witness.open(folder)
    page.click("#collapse")
    assert page.locator("#grid tr.case").count() == 0
    page.click("button.fold:has-text('masks')")
    page.click("button.fold:has-text('masks/attention')")
    assert page.locator("#grid tr.case").count() == 8
    page.click("#expand")
    assert page.locator("#grid tr.case").count() == 56


def test_a_failing_cell_tells_everything(witness: Witness, folder: Path) -> None:
    page = witness.open(folder)
    page.click(f"td[aria-label$='{INVERTED[0]} on {INVERTED[1]}']")
    page.wait_for_selector("dialog .map canvas")
    text = page.inner_text("dialog")
    for part in (
        *INVERTED,
        "reads True in attn_mask as ignore",
        "Workaround: pass ~attn_mask",
        "polarity[attn_mask]: found ignore, expected attend",
        "use[attn_mask]=ignored",
        f"conformance run -a '{INVERTED[1]}' -k '{INVERTED[0]}'",
        "key_padding + causal",
        "name: trailing",
        "cases/masks/key_padding.yaml:6",
    ):
        assert part in text
    assert page.locator("dialog .map").count() == 4
    assert page.url.endswith(cell_of(INVERTED)[1:])


def test_hovering_a_map_reads_its_values(witness: Witness, folder: Path) -> None:
    page = witness.open(folder, cell_of(INVERTED))
    page.wait_for_selector("dialog .map canvas")
    page.select_option("dialog .selectors select >> nth=0", "1")
    canvas = page.locator("dialog .map canvas").nth(1)
    box = canvas.bounding_box()
    canvas.hover(position={"x": box["width"] * 2.5 / 8, "y": box["height"] * 1.5 / 5})
    index = readout(page, "index")
    assert re.fullmatch(r"\[1, \d, 1, 2\]", index)
    want, got, error = (float(readout(page, name)) for name in ("expected", "actual", "error"))
    assert got - want == pytest.approx(error, abs=1e-6)
    assert abs(error) > 1e-3
    assert float(readout(page, "budget")) == pytest.approx(abs(error) / 1e-6, rel=1e-3)
    canvas.press("ArrowRight")
    assert readout(page, "index") == index.replace(", 2]", ", 3]")


def test_values_that_are_not_finite_are_told(witness: Witness, folder: Path) -> None:
    page = witness.open(folder, cell_of(NAN_ROW))
    page.wait_for_selector("dialog .map canvas")
    assert (readout(page, "index"), readout(page, "expected"), readout(page, "actual")) == ("[1, 2, 0]", "0", "NaN")
    assert readout(page, "budget") == "+inf"
    assert "NaN" in page.inner_text("dialog .map >> nth=1")
    page.select_option("dialog .selectors select", "2")
    assert "+inf" in page.inner_text("dialog .map >> nth=0")
    assert "Known deviation" in page.inner_text("dialog")


def test_outputs_are_chosen_and_shapes_that_differ_stand_alone(witness: Witness, folder: Path) -> None:
    page = witness.open(folder, cell_of(INVERTED))
    page.click("dialog .tabs button:has-text('weights')")
    assert "key" in page.inner_text("dialog .map >> nth=0")
    page = witness.open(folder)
    page.goto(page.url + cell_of(("numerics/large/sdpa_equal_logits[dtype=float32]", "jax.nn.dot_product_attention")))
    page.wait_for_selector("dialog .alone canvas")
    assert "Actual: shape (3, 5, 2, 8)" in page.inner_text("dialog")


def test_a_passing_cell_opens_without_maps(witness: Witness, folder: Path) -> None:
    page = witness.open(folder)
    page.click("td[aria-label^='pass'] >> nth=0")
    page.wait_for_selector("dialog[open]")
    text = page.inner_text("dialog")
    assert "Argument that receives each mask" in text
    assert "Declared" in text
    assert page.locator("dialog canvas").count() == 0


def test_the_keyboard_is_enough(witness: Witness, folder: Path) -> None:
    page = witness.open(folder)
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "q"
    page.locator("#grid td[tabindex='0']").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog[open]")
    assert page.evaluate("document.activeElement.id") == "detail-title"
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog[open]", state="detached")
    assert page.evaluate("document.activeElement.tagName") == "TD"
    assert "cell=" not in page.url


def test_back_closes_a_cell_and_arrows_walk_the_rejected_ones(witness: Witness, folder: Path) -> None:
    page = witness.open(folder)
    page.click("a:has-text('Open an example') >> nth=0")
    page.wait_for_selector("dialog[open]")
    before = page.inner_text("dialog h2")
    page.click("dialog [aria-label='Next rejected cell']")
    page.wait_for_function("before => document.querySelector('dialog h2').textContent !== before", arg=before)
    assert page.inner_text("dialog h2") != before
    page.go_back()
    page.go_back()
    page.wait_for_selector("dialog[open]", state="detached")
    assert "cell=" not in page.url


def test_two_subjects_are_compared(witness: Witness, folder: Path) -> None:
    page = witness.open(folder)
    page.select_option("#pair-a", "keras.mha[jax]")
    page.select_option("#pair-b", "keras.mha[torch]")
    assert page.inner_text("#pair-summary").startswith("28 cases judged on both sides: they agree on 24, disagree on 4")
    rows = page.locator("#pair-table tbody tr:not(.cause)")
    assert rows.count() == 4
    assert "declared dialect differs" in rows.nth(0).inner_text()
    assert "fully_masked_row: unmasked_softmax" in rows.nth(0).inner_text()
    page.select_option("#pair-b", "torch.mha")
    assert "verdict differs" in rows.nth(0).inner_text()
    page.select_option("#pair-b", "onnx.torch_mha")
    page.click("[data-kind=alone]")
    assert "judged on one side only" in page.inner_text("#pair-table")
    page.select_option("#pair-b", "torch.sdpa[math]")
    assert "share no case" in page.inner_text("#pair-summary")
    page.select_option("#pair-b", "torch.mha")
    page.click("#pair-table tbody a >> nth=1")
    page.wait_for_selector("dialog[open]")
    assert "torch.mha" in page.inner_text("dialog header")
    assert "a=keras.mha" in page.url


def test_a_command_is_copied(browser: Any, folder: Path) -> None:
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    page = Witness(context.new_page()).open(folder, cell_of(INVERTED))
    page.click("dialog .copy >> nth=0")
    page.wait_for_selector("dialog .copy:has-text('Copied')")
    assert page.evaluate("navigator.clipboard.readText()").startswith("conformance run -a 'torch.sdpa[math]'")
    context.close()


def test_hostile_text_stays_text(witness: Witness, tmp_path: Path) -> None:
    evil = "</script><img src=x onerror=alert(1)>'\"&\x00\u2028"
    builder = RunBuilder(tmp_path)
    subject = builder.subject(evil, framework=evil)
    builder.cell(
        builder.case(f"theme/{evil}", summary=evil, yaml=evil),
        subject,
        "fail",
        rejected=True,
        reason=evil,
        rerun=evil,
        known={"reason": evil, "link": "javascript:alert(1)"},
        error={"type": evil, "message": evil, "traceback": evil},
        declared={"dialect": [{"decision": evil, "name": evil, "source": "javascript:alert(1)"}]},
    )
    write_reports(builder.write())
    page = witness.open(tmp_path)
    page.click("#grid td[tabindex]")
    page.wait_for_selector("dialog[open]")
    assert page.locator("img").count() == 0
    assert page.locator("a[href^='javascript']").count() == 0
    assert "onerror=alert(1)" in page.inner_text("dialog h2")


def test_dark_and_narrow_windows_show_it_too(browser: Any, folder: Path) -> None:
    context = browser.new_context(viewport={"width": 420, "height": 800}, color_scheme="dark")
    page = Witness(context.new_page()).open(folder, cell_of(INVERTED))
    page.wait_for_selector("dialog .map canvas")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(19, 21, 25)"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    context.close()


COUNTING = """
window.counted = {drawn: 0, inflated: 0};
const { getContext } = HTMLCanvasElement.prototype, Inflating = DecompressionStream;
HTMLCanvasElement.prototype.getContext = function (...words) {
  counted.drawn += 1;
  return getContext.apply(this, words);
};
window.DecompressionStream = class extends Inflating {
  constructor(...words) {
    super(...words);
    counted.inflated += 1;
  }
};
"""


def test_a_large_run_draws_and_inflates_nothing_that_is_not_looked_at(witness: Witness, tmp_path: Path) -> None:
    write_reports(large(tmp_path))
    witness.page.add_init_script(COUNTING)
    page = witness.open(tmp_path)
    page.evaluate("new Promise(done => requestIdleCallback(done))")
    assert page.evaluate("counted") == {"drawn": 0, "inflated": 0}
    assert shown(page) == "9,000 verdicts in 300 cases on 30 subjects"
    assert page.locator("#grid tr.case").count() <= 40
    assert page.locator("*").count() < 9_000, "an element for each verdict"
    page.locator("#grid tr.case td.rejected").first.click()
    page.wait_for_selector("dialog .map canvas")
    counted = page.evaluate("counted")
    assert 0 < counted["inflated"] <= 2, "its case and its arrays"
    assert counted["drawn"] > 0


@pytest.fixture(scope="module")
def pictured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two failing cells with one cause. The second has a pattern: query 1 of head 1 attends to the wrong key."""
    builder = RunBuilder(tmp_path_factory.mktemp("pictured"))
    expected, actual, tolerance = np.zeros((1, 2, 2, 3)), np.zeros((1, 2, 2, 3)), np.full((1, 2, 2, 3), 1e-6)
    expected[..., 0], actual[..., 0] = 1.0, 1.0
    actual[0, 1, 1] = [0.0, 0.0, 1.0]
    explained = {
        "decision": "polarity[attn_mask]",
        "name": "ignore",
        "sentence": "reads True as: ignore",
        "budget": 0.1,
    }
    more: dict[str, Any] = {
        "class_": "semantic",
        "rejected": True,
        "reason": "output: 3 of 6 elements beyond the bound",
    }
    builder.subject("torch.sdpa[math]", "sdpa")
    for name in ("small", "large"):
        builder.case(f"masks/attention/{name}", "sdpa")
    builder.cell("masks/attention/small", "torch.sdpa[math]", "fail", explanation=explained, **more)
    builder.cell(
        "masks/attention/large",
        "torch.sdpa[math]",
        "fail",
        explanation={**explained, "budget": 0.2},
        pattern={"calls": 1, "beyond": 2, "elements": 12},
        invariants=[{"name": "key_order", "found": "broken", "sentence": "gives another reply", "where": "output: 3"}],
        tensors=builder.tensors("large", pattern=(expected, actual, tolerance)),
        **more,
    )
    written = builder.write()
    write_reports(written)
    return written


def test_the_pattern_that_was_read_stands_beside_the_finding(witness: Witness, pictured: Path) -> None:
    page = witness.open(pictured)
    page.wait_for_selector(".findings .picture canvas")
    assert page.locator(".findings .picture figcaption").all_inner_texts() == ["Expected weights", "Measured weights"]
    assert page.inner_text(".findings .picture p") == "Batch element 0, head 1 of masks/attention/large"
    scales = page.locator(".findings .picture .scale").all_inner_texts()
    assert [scale.split()[0] for scale in scales] == ["0", "0"]  # weights are not negative
    assert "2 by 3" in page.get_attribute(".findings .picture canvas", "aria-label")


def test_the_second_look_is_told_in_the_detail(witness: Witness, pictured: Path) -> None:
    page = witness.open(pictured, cell_of(("masks/attention/large", "torch.sdpa[math]")))
    page.wait_for_selector("#detail .maps canvas")
    said = page.inner_text("#detail")
    assert "Repeated 3 times in the same worker, alone in a new one: the same reply" in said
    assert "Attention weights, measured with one-hot values: read in 1 call, 2 of 12 weights beyond the bound" in said
    assert "it gives another reply; output: 3" in said


def test_the_page_of_port_begins_with_its_advice(witness: Witness, tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path)
    names = [builder.subject(name, "sdpa") for name in ("jax.sdpa", "torch.sdpa[math]", "keras.sdpa")]
    builder.case("masks/attention/one", "sdpa")
    for name in names:
        builder.cell("masks/attention/one", name)
    written = builder.write()
    sides = {"from": "attend", "to": "ignore"}
    told = {
        "decision": sides,
        "declared": sides,
        "observed": sides,
        "changes": ["pass ~mask"],
        "command": "conformance",
    }
    told |= {
        "sentences": {"from": "reads True as: attend", "to": "reads True as: ignore"},
        "case": "masks/attention/one",
    }
    port = {
        "schema": 1,
        "from": names[1],
        "to": names[2],
        "calls": [{"topic": "weights", "from": "need_weights=True", "to": "return_attention_scores=False"}],
        "conventions": {"from": ["arrays are (batch, seq_len, width)"], "to": []},
        "shared": 7,
        "arguments": [],
        "differences": [told],
        "notes": [],
        "refused": [],
    }
    (written / "port.json").write_text(json.dumps(port), encoding="utf-8")
    write_reports(written)
    page = witness.open(written)
    told = page.inner_text("main")
    assert told.index("torch.sdpa[math] to keras.sdpa: 1 difference") < told.index("Conforms: ")
    advice = page.inner_text("#advice")
    assert "reads True as: attend\treads True as: ignore\tpass ~mask" in advice
    assert "torch.sdpa[math]: arrays are (batch, seq_len, width)" in advice
    assert "7 probe cases judged on both sides." in advice
    assert "weights\tneed_weights=True\treturn_attention_scores=False" in advice
    assert page.input_value("#pair-a") == names[1]
    assert page.input_value("#pair-b") == names[2]


def test_the_page_of_port_is_made_of_an_older_record_too(witness: Witness, tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path)
    names = [builder.subject(name, "sdpa") for name in ("torch.sdpa[math]", "keras.sdpa")]
    builder.case("masks/attention/one", "sdpa")
    for name in names:
        builder.cell("masks/attention/one", name)
    written = builder.write()
    port = {"from": names[0], "to": names[1], "conventions": {"from": [], "to": []}, "shared": 7, "arguments": []}
    port |= {"differences": [], "notes": [], "refused": []}
    (written / "port.json").write_text(json.dumps(port), encoding="utf-8")
    write_reports(written)
    assert "no difference" in witness.open(written).inner_text("#advice h1")
    assert next(iter(port_text.lines(port))) == "From torch.sdpa[math] to keras.sdpa"
