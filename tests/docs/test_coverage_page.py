"""docs/coverage.md is up to date with the adapters, and the page of each framework has all facts about its adapters."""

import re
from pathlib import Path

import pytest

from conformance.engine.adapters import read_adapters

from ..coverage import pages

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "coverage.md"
STALE = "docs/coverage.md is out of date: run `python -m tests.coverage.pages`"


def test_the_page_is_current() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert pages.with_overview(text) == text, STALE


def test_a_page_that_is_out_of_date_is_found() -> None:
    text = PAGE.read_text(encoding="utf-8").replace("| `torch.sdpa` | sdpa |", "| `torch.sdpa` | mha |")
    assert pages.with_overview(text) != text


def test_every_adapter_has_a_row_and_a_section() -> None:
    shipped = {adapter.name: adapter.framework for adapter in read_adapters([ROOT / "adapters"])}
    rows = {line.split("`")[1] for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")}
    assert rows == shipped.keys()
    for name, framework in shipped.items():
        assert f"\n## `{name}`\n" in (pages.PAGES / f"{framework}.md").read_text(encoding="utf-8")


def words(text: str) -> set[str]:
    return set(re.findall(r"[^\s;|()]+", text.replace("<br>", " ")))


@pytest.mark.parametrize("name", sorted(pages.facts()))
def test_nothing_that_the_table_of_adapters_says_is_lost(name: str) -> None:
    section = "\n".join(pages._adapter(name))
    row = pages.facts()[name]
    for heading, cell in row.items():
        lost = words(cell) - {word.strip(",") for word in words(section)} - words(section) - {"-"}
        assert not lost, f"{heading}: {lost}"


def test_a_summary_with_a_semicolon_stays_with_its_variant() -> None:
    assert pages._parts("`eval`: inference; takes the fast path; `train`: training") == [
        "`eval`: inference; takes the fast path",
        "`train`: training",
    ]


def test_what_is_declined_for_one_reason_stands_together() -> None:
    parts = pages._parts(
        "weights (not returned); scale (none; ever); logits (not returned); one call; a call of two (no)"
    )
    assert pages._declined(parts) == {
        "not returned": ["weights", "logits"],
        "none; ever": ["scale"],
        "one call": [],
        "a call of two (no)": [],
    }
