"""docs/coverage.md is the table that the adapters give today."""

from pathlib import Path

from conformance.engine.adapters import read_adapters
from conformance.report.adapter_table import table

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "coverage.md"


def test_the_page_is_current() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("| entry point"))
    now = list(table(read_adapters([ROOT / "adapters"])))
    assert lines[start:] == now, "put what `conformance list adapters --table` prints at the end of docs/coverage.md"


def test_every_adapter_has_a_row() -> None:
    shipped = {adapter.name for adapter in read_adapters([ROOT / "adapters"])}
    rows = {line.split("`")[1] for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")}
    assert rows == shipped
