"""The HTML page is one file, interprets no text of the run as markup, and requests nothing."""

import base64
import gzip
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jinja2 import Environment

from conformance.report import load_run, page_data, run_page
from conformance.report.run_page import shown_value, web_address

from .build_run import RunBuilder


def test_a_second_page_of_a_process_compiles_no_template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = load_run(RunBuilder(tmp_path).write())
    first = "".join(run_page.page(run))
    with monkeypatch.context() as patch:
        patch.setattr(Environment, "compile", lambda *_, **__: pytest.fail("a template is compiled again"))
        assert "".join(run_page.page(run)) == first


class Page(HTMLParser):
    """The elements of a page with their attributes, and the text of its scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.raw: list[tuple[str, dict[str, str | None], str]] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self.raw.append((tag, dict(attrs), ""))

    def handle_data(self, data: str) -> None:
        if self.elements and self.elements[-1][0] in ("script", "style") and self.cdata_elem:
            tag, attributes, before = self.raw[-1]
            self.raw[-1] = (tag, attributes, before + data)
        else:
            self.text += data

    def script(self, name: str) -> str:
        return next(text for _, attributes, text in self.raw if attributes.get("id") == name)


def no_constant(name: str) -> Any:
    raise AssertionError(f"{name} in strict JSON")


def opened(page: Page) -> tuple[dict[str, Any], dict[str, bytes]]:
    index = json.loads(page.script("index"), parse_constant=no_constant)
    packed = page.script("packed")
    places = index["places"].items()
    return index, {
        name: gzip.decompress(base64.b64decode(packed[start : start + size])) for name, (start, size) in places
    }


@pytest.fixture(scope="module")
def page(demonstration: Path) -> Page:
    return Page("".join(run_page.page(load_run(demonstration))))


def test_nothing_is_fetched(page: Page) -> None:
    for tag, attributes in page.elements:
        assert tag not in ("img", "iframe", "object", "embed", "base")
        assert "action" not in attributes
        assert not attributes.get("src")
        if tag == "link":
            assert attributes["href"] == "data:,"
        assert not any(name.startswith("on") for name in attributes)
        assert "style" not in attributes


def test_the_policy_allows_our_script_and_style_by_hash_and_nothing_else(page: Page) -> None:
    policy = next(
        attributes["content"] for tag, attributes in page.elements if tag == "meta" and "http-equiv" in attributes
    )
    assert policy is not None
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert "require-trusted-types-for 'script'" in policy
    running = [text for tag, attributes, text in page.raw if tag == "style" or "type" not in attributes]
    for text in running:
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert len(running) == 2


def test_the_conclusion_is_written_without_script(page: Page) -> None:
    assert "Does not conform: 18 of 332 judged calls are rejected" in page.text
    assert "it reads True in attn_mask as ignore" in page.text
    assert "; no cause found): " in page.text
    assert "https://github.com/pytorch/pytorch/issues/103749" in page.text
    assert "python -m pip install tensorflow" in page.text
    assert "No module named 'keras'" in page.text


def test_the_index_is_strict_and_complete(page: Page) -> None:
    index, parts = opened(page)
    assert len(index["cases"]) == 56
    assert len(index["subjects"]) == 13
    assert sum(len(cells) for cells in index["cells"]) == 346
    rejected = [cell for cells in index["cells"] for cell in cells if cell[3] & 1]
    assert len(rejected) == 18
    assert sum(name.startswith("case-") for name in parts) == 56
    assert sum(name.startswith("cell-") for name in parts) == 16


def test_the_record_of_a_cell_is_in_the_chunk_of_its_case(page: Page) -> None:
    index, parts = opened(page)
    row = [case["name"] for case in index["cases"]].index("masks/key_padding/sdpa_trailing[dtype=float32]")
    column = [subject["name"] for subject in index["subjects"]].index("torch.sdpa[math]")
    chunk = json.loads(parts[f"case-{row}"], parse_constant=no_constant)
    assert chunk["case"]["yaml"].startswith("name: trailing")
    record = chunk["cells"][str(column)]
    assert record["explanation"]["remedy"] == "pass ~attn_mask"
    assert (
        record["rerun"] == "conformance run -a 'torch.sdpa[math]' -k 'masks/key_padding/sdpa_trailing[dtype=float32]'"
    )


def test_nothing_from_the_run_becomes_markup(hostile_run: Path, hostile: str) -> None:
    text = "".join(run_page.page(load_run(hostile_run)))
    page = Page(text)
    assert "alert(1)" not in "".join(part for tag, attributes, part in page.raw if "type" not in attributes)
    assert [tag for tag, _ in page.elements].count("script") == 3
    assert not any("javascript:" in (attributes.get("href") or "") for _, attributes in page.elements)
    index, parts = opened(page)
    assert index["subjects"][0]["name"] == hostile
    assert json.loads(parts["case-0"])["case"]["yaml"] == hostile


def test_a_cell_names_why_its_arrays_are_absent(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path / "run")
    subject = builder.subject("torch.mha")
    for number, path in enumerate(("tensors/none.npz", "../outside.npz")):
        builder.cell(builder.case(f"shapes/{number}"), subject, "fail", rejected=True, tensors=path)
    _, parts = opened(Page("".join(run_page.page(load_run(builder.write())))))
    notes = [json.loads(parts[f"case-{number}"])["cells"]["0"]["tensors_note"] for number in (0, 1)]
    assert notes == ["none.npz is not in the run folder", "../outside.npz is outside the run folder"]


def test_arrays_of_rejected_cells_come_first_then_one_for_each_known_deviation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = RunBuilder(tmp_path / "run")
    subject = builder.subject("torch.mha")
    one = np.random.default_rng(5).standard_normal((2, 3, 5, 7))
    path = builder.tensors("one", output=(one, one + 1, one))
    known = [{"reason": reason, "link": "", "entry": "known.yaml:7"} for reason in ("leaks", "leaks", "is NaN")]
    for number, each in enumerate((*known, None)):
        accepted = {"rejected": True} if each is None else {"known": each}
        builder.cell(builder.case(f"shapes/{number}"), subject, "fail", tensors=path, **accepted)
    run = load_run(builder.write())
    size = len(page_data.blobs(run).packed["cell-0-0"])
    kept = []
    for room in (0, 1, 2):
        monkeypatch.setattr(page_data, "MAX_ACCEPTED_BYTES", room * size)
        found = page_data.blobs(run)
        kept.append(sorted(found.packed))
        assert set(found.left_out.values()) <= {"", "the page is full; the arrays are in tensors/one.npz"}
    assert kept == [["cell-3-0"], ["cell-0-0", "cell-3-0"], ["cell-0-0", "cell-2-0", "cell-3-0"]]


def test_what_is_missing_has_its_own_mark(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path)
    builder.case("shapes/one")
    builder.cell(builder.case("shapes/two"), builder.subject("torch.mha"))
    builder.footed = False
    page = Page("".join(run_page.page(load_run(builder.write()))))
    index, _ = opened(page)
    assert index["verdicts"][index["cells"][0][0][1]] == "missing"
    assert "Undecided: the run was interrupted" in page.text


def test_an_empty_run_is_a_page_too(tmp_path: Path) -> None:
    assert "<h1>" in "".join(run_page.page(load_run(RunBuilder(tmp_path).write())))


def test_only_web_addresses_become_links() -> None:
    assert web_address("https://example.org/a") == "https://example.org/a"
    for text in ("javascript:alert(1)", "data:text/html,x", "file:///etc/passwd", "http//x", "https://[x"):
        assert web_address(text) == ""


def test_facts_are_shown_as_words() -> None:
    assert shown_value({"a": "x", "b": ["y", 2], "c": {"d": None}}) == "a x, b y 2, c d null"


def test_the_script_takes_no_text_as_markup() -> None:
    folder = Path(__file__).parents[2] / "conformance" / "report" / "page"
    for path in folder.glob("*.js"):
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", path.read_text()
        )
