"""Generated text contains no unfilled placeholder: no braces in help, tables, pages, names, and sentences."""

import argparse
from pathlib import Path

import pytest
import yaml

from conformance.cli.read_only_commands import FIRST
from conformance.deviations import names
from conformance.deviations.catalogue import TABLE
from conformance.deviations.mask_arguments import slot_deviations
from conformance.diagnosis.explanation import CANONICAL, sentence
from conformance.engine.adapters import read_adapters
from conformance.report.adapter_table import table

from ..parsers import COMMANDS

ROOT = Path(__file__).parents[2]
GENERATED = (ROOT / "docs" / "coverage.md", *sorted((ROOT / "docs" / "coverage").glob("*.md")))
PAGES = (*GENERATED, ROOT / "docs" / "probe-against-semantics.md", ROOT / "docs" / "published.md")


DEVIATIONS = [*TABLE, *slot_deviations("attn_mask")]


def without_choices(parser: argparse.ArgumentParser) -> str:
    """Return the help of a command without its lists of choices, which argparse writes in braces."""
    text = parser.format_help()
    for action in parser._actions:
        if action.choices is not None:
            text = text.replace(f"{{{','.join(map(str, action.choices))}}}", "")
    return text


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_no_page_has_a_brace(path: Path) -> None:
    assert [line for line in path.read_text(encoding="utf-8").splitlines() if "{" in line] == []


@pytest.mark.parametrize("parser", COMMANDS, ids=lambda parser: parser.prog.replace(" ", "-"))
def test_no_help_has_a_brace(parser: argparse.ArgumentParser) -> None:
    assert "{" not in without_choices(parser)


def test_no_table_of_adapters_has_a_brace() -> None:
    lines = list(table(read_adapters([ROOT / "adapters"])))
    assert len(lines) > 20
    assert [line for line in lines if "{" in line or "join(" in line] == []


def test_no_name_and_no_remedy_has_a_brace() -> None:
    assert "{" not in (Path(names.__file__).parent / "names.toml").read_text(encoding="utf-8")
    assert "{" not in FIRST


def test_no_sentence_of_a_finding_has_a_brace() -> None:
    said = [sentence(row.decision, row.name) for row in DEVIATIONS]
    said += [sentence(decision, CANONICAL) for decision in {row.decision for row in DEVIATIONS}]
    assert len(said) > 200
    assert [each for each in said if "{" in each or "SLOT" in each] == []


def test_no_reason_of_a_known_deviation_has_a_brace() -> None:
    entries = yaml.safe_load((ROOT / "conformance" / "gate" / "known.yaml").read_text(encoding="utf-8"))
    reasons = [entry["reason"] for entry in entries["deviations"]]
    assert len(reasons) > 20
    assert [reason for reason in reasons if "{" in reason] == []
